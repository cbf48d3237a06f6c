//! Prototype files of mkfs.xfs, compared with the original program.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{contents, done, file, home, run};

/// Each file type, names with spaces, comments, and a set-user-ID program.
const PROTO: &str = "/stand/diskboot\n0 0\nd--751 3 1\n: the system\netc d--755 0 0\nhostname ---644 0 0 tree/etc/hostname\n\
    $\nusr d-g775 0 50\nsh -ug755 3 4 tree/large : a shell\na/b p--600 7 8\n$\nnull c--666 0 0 1 3\nsda1 b--660 0 6 8 1\n\
    link l--777 5 6 etc/hostname\na:b ---400 0 0 tree/link\n$\n";

#[test]
fn a_prototype_file_becomes_what_mkfs_xfs_makes_of_it() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let home = home();
    let dir = home.path();
    fs::write(dir.join("proto"), PROTO).unwrap();
    for image in ["ours", "theirs"] {
        file(dir, image, 400 << 20);
    }
    done(dir, "mkfs.xfs -q -p proto,slashes_are_spaces=1 ours");
    let mut theirs = testkit::command("mkfs.xfs");
    theirs.current_dir(dir).args(["-q", "-p", "proto,slashes_are_spaces=1", "theirs"]);
    let output = theirs.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    testkit::xfs_repair(dir.join("ours"));
    // Names, types, owners, permissions, targets, numbers, contents.
    assert_eq!(archived(dir, "ours"), archived(dir, "theirs"));
    assert_eq!(contents(dir, "ours", "/etc/hostname"), "box\n");
    assert_eq!(contents(dir, "ours", "/a:b"), "box\n");
}

/// Returns the contents of an image except times, as lines.
fn archived(dir: &Path, image: &str) -> String {
    let script = "exec \"$0\" extract \"$1\" - | tar --list --verbose --numeric-owner --full-time | \
        sed -E 's/ +[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+ +/ /'; \"$0\" extract \"$1\" - | tar --extract --to-stdout | md5sum";
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_diskwright");
    let output = command.current_dir(dir).args(["-c", script, program, image]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("sda1"), "{text}");
    text
}

#[test]
fn errors_of_a_prototype_file_report_their_line() {
    let home = home();
    let dir = home.path();
    file(dir, "image", 320 << 20);
    for (text, expected) in [
        ("x 0 0\nd--755 0 0\nname x--644 0 0 a\n$\n", "line 3: the mode: expected a type"),
        ("x 0 0\nd--755 0 0\nname ---644 0 0 nowhere\n$\n", "cannot open \"nowhere\""),
        (
            "x 0 0\nd--755 0 0\nname ---644 0 0 tree/etc\n$\n",
            "expected a regular file, found a directory",
        ),
        ("x 0 0\nd--755 0 0\nhas/slash p--644 0 0\n$\n", "a name without slashes"),
        ("x 0 0\nd--755 0 0\n", "a $ for each directory"),
    ] {
        fs::write(dir.join("proto"), text).unwrap();
        let ended = run(dir, "mkfs.xfs -q -p proto image");
        assert_eq!(ended.status, 1, "{text}: {ended:?}");
        assert!(ended.messages.contains(expected), "{text}: {ended:?}");
    }
    let ended = run(dir, "mkfs.xfs -q -p proto,frob=1 image");
    assert!(ended.status == 1 && ended.messages.contains("frob"), "{ended:?}");
}
