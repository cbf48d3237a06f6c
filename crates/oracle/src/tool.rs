//! Running reference programs, and where their images live.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a finished program said and how it ended.
pub(crate) struct Finished {
    /// Exit status; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output followed by standard error, as text.
    pub(crate) text: String,
}

/// A new directory for images, in memory where the machine offers that.
///
/// It is removed with everything in it when dropped.
///
/// # Panics
/// If no directory can be made.
pub fn scratch() -> tempfile::TempDir {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("diskwright-test-");
        builder
    };
    let in_memory = Path::new("/dev/shm");
    if in_memory.is_dir()
        && let Ok(directory) = builder().tempdir_in(in_memory)
    {
        return directory;
    }
    builder().tempdir().unwrap_or_else(|error| panic!("no scratch directory: {error}"))
}

/// Finds a program: among those that the project's scripts installed, where the current xfsprogs comes
/// before the system's, then in `PATH` and in the `sbin` directories that a user's `PATH` often lacks.
///
/// A name with a folder (`xfsprogs-6.1/bin/mkfs.xfs`) means the one release that is installed there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let tools = installed();
    let path = std::env::var_os("PATH").unwrap_or_default();
    [tools.join("xfsprogs/bin"), tools.join("bin"), tools]
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// The program that stands for a name in tests: among those that the project's scripts installed, or of the
/// system. `None` if there is none.
pub fn program(name: &str) -> Option<PathBuf> {
    find(name)
}

/// Where the project's scripts install programs; `DISKWRIGHT_TOOLS` names another folder.
fn installed() -> PathBuf {
    let ours = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    std::env::var_os("DISKWRIGHT_TOOLS").map_or_else(ours, PathBuf::from)
}

/// A command in the C locale with no standard input.
///
/// # Panics
/// If there is no such program; tests say [`require!`](crate::require) first.
pub(crate) fn command(name: &str) -> Command {
    let program = find(name).unwrap_or_else(|| panic!("{name} is not installed"));
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs a command to its end and collects everything it prints.
pub(crate) fn finish(command: &mut Command) -> Finished {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Finished { code: output.status.code(), text }
}

/// Runs a program that must succeed and returns what it printed.
///
/// # Panics
/// With the whole output if the program fails.
pub(crate) fn run<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> String {
    let mut command = command(name);
    command.args(arguments);
    let finished = finish(&mut command);
    assert!(
        finished.code == Some(0),
        "{command:?} ended with {:?}:\n{}",
        finished.code,
        finished.text
    );
    finished.text
}
