//! The program itself: arguments, messages and exit statuses.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.env_remove("SOURCE_DATE_EPOCH").args(arguments).output().unwrap()
}

/// Exit status and messages, with nothing on standard output.
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?} wrote to standard output");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn file(dir: &Path, name: &str, contents: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, contents).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn help_tells_how_to_work_with_every_command() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for command in [
        "build", "info", "ls", "cat", "find", "extract", "cp", "paths", "mount", "unmount",
        "mkdir", "rm", "rmdir", "mv", "ln", "chmod", "chown", "setfattr", "truncate", "recover",
        "dump", "check", "convert", "workload",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
        assert!(run(&[command, "--help"]).status.success(), "{command}");
    }
    assert!(help.contains("Exit status") && help.contains("powers of 1024"));
}

#[cfg(not(feature = "anywhere"))]
#[test]
fn a_place_is_told_from_a_file_that_is_missing() {
    for arguments in [
        &["ls", "s3://bucket/root.img"][..],
        &["mkdir", "qcow2:disk", "/new"],
        &["cp", "https://localhost/root.img:/etc/hosts", "hosts"],
        &["check", "https://localhost/root.img?signature=secret"],
    ] {
        let (status, told) = failure(arguments);
        assert_eq!(status, 2, "{arguments:?}: {told}");
        assert!(told.contains("one with the feature anywhere does"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
}

#[test]
fn senseless_arguments_exit_with_2() {
    let nowhere = "/nonexistent/source";
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["ls"],
        &["ls", "x", "--partition", "1", "--offset", "512"],
        &["ls", "x", "--offset", "1X"],
        &["find", "x", "--type", "q"],
        &["cat", "x"],
        &["build", nowhere, "y", "--size", "big"],
        &["build", nowhere, "y", "--size", "1G", "--free", "1M"],
        &["build", nowhere, "y", "--owner", "root"],
        &["build", nowhere, "y", "--uuid", "123"],
        &["build", nowhere, "y", "--features", "+,"],
        &["build", nowhere, "y", "--fs", "btrfs"],
        &["build", nowhere, "y", "--threads", "0"],
        &["build", nowhere, "-"],
        &["extract", "x", "-", "--json"],
        &["check"],
        &["check", "x", "--json", "--jsonl"],
        &["check", "x", "--threads", "0"],
    ] {
        let (status, said) = failure(arguments);
        assert_eq!(status, 2, "{arguments:?}: {said}");
        assert!(!said.is_empty(), "{arguments:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.env("SOURCE_DATE_EPOCH", "yesterday").args(["build", nowhere, "y"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SOURCE_DATE_EPOCH"));
}

#[test]
fn who_asks_for_nothing_is_told_what_to_do_first() {
    let (status, said) = failure(&[]);
    assert_eq!(status, 2);
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    let steps: Vec<_> = said.lines().filter(|line| line.starts_with("  diskwright ")).collect();
    assert!(steps.len() >= 5 && said.contains("diskwright --help"), "{said}");
    for step in steps {
        let command = step.split_whitespace().nth(1).unwrap();
        assert!(help.contains(&format!("\n  {command} ")), "{step}");
        assert!(step.len() <= 120, "{step}");
    }
}

#[test]
fn an_image_that_is_not_there_exits_with_4() {
    let (status, said) = failure(&["ls", "/nonexistent/image"]);
    assert_eq!(status, 4);
    assert!(said.starts_with("diskwright: cannot open /nonexistent/image: No such file"), "{said}");
}

#[test]
fn what_is_no_image_exits_with_3_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents, advice) in [
        ("empty", &b""[..], "use --partition or --offset"),
        ("text", b"hello", "neither an ext2/3/4 nor an XFS image"),
        ("zeros", &[0; 8192], "nothing but zeros"),
        ("qcow2", b"QFI\xfb\0\0\0\x03", "qemu-img convert -O raw"),
        ("gzip", b"\x1f\x8b\x08\0", "gunzip"),
    ] {
        let (status, said) = failure(&["info", &file(dir.path(), name, contents)]);
        assert_eq!(status, 3, "{name}: {said}");
        assert!(said.contains(advice), "{name}: {said}");
    }
}

#[test]
fn a_whole_disk_names_its_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = vec![0; 1 << 20];
    disk[450] = 0x83;
    disk[455] = 1; // First sector 256.
    disk[459] = 2; // 512 sectors.
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let disk = file(dir.path(), "disk", &disk);
    let (status, said) = failure(&["ls", &disk]);
    assert_eq!(status, 3);
    assert!(said.contains("1 (type 0x83, 256.0 KiB); choose one with --partition N"), "{said}");
    let (status, said) = failure(&["ls", &disk, "--partition", "2"]);
    assert_eq!(status, 1);
    assert!(said.contains("no partition 2; there are: 1 "), "{said}");
    let (status, said) = failure(&["ls", &disk, "--partition", "1"]);
    assert_eq!((status, said.contains("nothing but zeros")), (3, true), "{said}");
    let (status, said) = failure(&["ls", &disk, "--offset", "1M"]);
    assert_eq!((status, said.contains("past the end")), (2, true), "{said}");
}

#[test]
fn a_control_character_in_a_message_is_escaped() {
    let (_, said) = failure(&["ls", "/nonexistent/\x1b[31m"]);
    assert!(said.contains("\\x1b[31m") && !said.contains('\x1b'), "{said:?}");
}
