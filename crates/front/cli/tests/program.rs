//! Running the program.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns the program with a defined environment.
pub(crate) fn diskwright() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    // They change the messages: width and colour.
    command.env_remove("COLUMNS").env_remove("CLICOLOR_FORCE");
    command.env_remove("SOURCE_DATE_EPOCH").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs a command line in a directory. Its words contain no spaces.
pub(crate) fn run(dir: &Path, line: &str) -> Output {
    diskwright().current_dir(dir).args(line.split_whitespace()).output().unwrap()
}

/// Runs a command line that must succeed. Returns its output.
#[track_caller]
pub(crate) fn ok(dir: &Path, line: &str) -> String {
    let output = run(dir, line);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command line that must end with this status. Returns its messages.
#[track_caller]
pub(crate) fn fails(dir: &Path, line: &str, status: i32) -> String {
    failed(run(dir, line), line, status)
}

/// Returns the messages of a command line that must have ended with this status and a message of its program.
#[track_caller]
pub(crate) fn failed(output: Output, line: &str, status: i32) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{line}: {said}");
    let is_told = said.starts_with("diskwright: ") || (status == 2 && said.starts_with("error: "));
    // Drop-in programs have their own messages.
    assert!(is_told || line.starts_with("as "), "{line}: {said}");
    assert!(!said.contains("panicked"), "{line}: {said}");
    said
}
