//! `diskwright workload`, which runs another program.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::{copy_program, scratch};

/// Prints its name, arguments and input, and fails.
const SCRIPT: &str = "#!/bin/sh\nprintf '%s|' \"${0##*/}\" \"$@\"\ncat\necho said >&2\nexit 7\n";

/// Puts a program `diskwright-bench` into a new directory.
fn put_bench(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let text = directory.join("text");
    fs::write(&text, SCRIPT).unwrap();
    let program = directory.join("diskwright-bench");
    copy_program(&text, &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the program in a directory without others.
fn alone(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let program = directory.join("diskwright");
    let original = env!("CARGO_BIN_EXE_diskwright");
    if fs::hard_link(original, &program).is_err() {
        copy_program(original, &program);
    }
    program
}

fn run(program: &Path, path: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may end without reading.
    let _ = child.stdin.take().unwrap().write_all(b"input\n");
    child.wait_with_output().unwrap()
}

#[test]
fn it_runs_the_program_with_all_arguments_streams_and_its_status() {
    let dir = scratch();
    let program = alone(&dir.path().join("bin"));
    let other = dir.path().join("other");
    put_bench(&other);
    let path = format!("/usr/bin:/bin:{}", other.display());
    for (arguments, passed) in [
        (&["workload"][..], ""),
        (&["workload", "--help"], "--help|"),
        (&["workload", "-h"], "-h|"),
        (&["workload", "create", "-n", "1k", "--json"], "create|-n|1k|--json|"),
        (&["workload", "help", "--", "workload"], "help|--|workload|"),
    ] {
        let output = run(&program, &path, arguments);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed, format!("diskwright-bench|{passed}input\n"), "{arguments:?}");
        assert_eq!(output.status.code(), Some(7), "{arguments:?}");
        assert_eq!(output.stderr, b"said\n", "{arguments:?}");
    }
    #[cfg(feature = "anywhere")]
    {
        let output = run(&program, &path, &["--no-read-ahead", "workload", "find"]);
        assert_eq!(output.stdout, b"diskwright-bench|--no-read-ahead|find|input\n");
    }
}

#[test]
fn the_program_beside_it_is_preferred_to_path() {
    let dir = scratch();
    let bin = dir.path().join("bin");
    let program = alone(&bin);
    put_bench(&bin);
    let output = run(&program, "/usr/bin:/bin", &["workload", "find"]);
    assert_eq!(output.stdout, b"diskwright-bench|find|input\n");
}

#[test]
fn without_the_program_the_message_says_how_to_get_it() {
    let dir = scratch();
    let program = alone(&dir.path().join("bin"));
    for arguments in [&["workload"][..], &["workload", "--help"], &["workload", "find"]] {
        let output = run(&program, "/usr/bin:/bin", arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(said.contains("diskwright-bench, a separate program"), "{said}");
        assert!(said.contains("cargo install --git https://"), "{said}");
    }
}
