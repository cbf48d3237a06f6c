//! Invalid arguments are rejected with advice.

use std::fs;

use testkit::scratch;

use crate::command::common::{ok, run};

#[test]
fn senseless_arguments_exit_with_2_and_say_what_would_make_sense() {
    let dir = scratch();
    fs::write(dir.path().join("text"), "hello").unwrap();
    for (line, advice) in [
        ("", "Usage"),
        ("frobnicate", "unrecognized subcommand"),
        ("create --target memory:btrfs", "write memory:ext4 or memory:xfs"),
        ("create --target memory:ext4,nonsense", "nonsense"),
        ("create --target kernel:xfs,free-index=tree", "memory:xfs only"),
        ("create --target nowhere/at/all", "No such file"),
        ("create --target text", "neither an ext2/3/4 nor an XFS image"),
        ("create --files 0", "at least 1"),
        ("create --files 10x", "not a unit of counts"),
        ("create --files 10,,20", "not a number"),
        ("create --threads 0", "at least 1"),
        ("create --rounds 0", "at least 1"),
        ("create --free-index fastest", "forward-decode"),
        ("create --free-index tree --target memory:ext4", "add that as a --target"),
        ("create --scratch nowhere", "create it first"),
        ("create --json --markdown", "cannot be used with"),
        ("fs-mark -S 1", "0..=0"),
        ("fs-mark -L 0", "at least 1"),
        ("find --walks 0", "at least 1"),
        ("find --tree existing", "use an image or a directory"),
        ("find --tree nowhere", "no such directory"),
        ("find --tree generated:0", "at least 1"),
        ("stress-orphan --threads 1,0", "at least 1"),
        ("stress-orphan --file-size 0", "at least 1 byte"),
        ("fserver --file-size 1K", "at least 4K"),
        ("fserver --tasks many", "not a number"),
        ("compare --set everything", "quick, seeds, full"),
        ("compare --only create,destroy", "stress-orphan"),
    ] {
        let output = run(dir.path(), line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(advice), "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a refusal leaves something behind");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_work() {
    let dir = scratch();
    fs::write(dir.path().join("file"), "").unwrap();
    let output = run(dir.path(), "create --files 10M --report file/report");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("cannot create file/report"), "{said}");
}

#[test]
fn what_cannot_be_had_is_skipped_and_named() {
    let dir = scratch();
    let lines = "create --files 500 --target memory:xfs";
    let (_, said) = ok(dir.path(), &format!("{lines} --target memory:ext4,size=4M"));
    assert!(said.contains("memory:ext4,size=4M: skipped: "), "{said}");
    let output = run(dir.path(), "create --files 500 --target memory:ext4,size=4M");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing was run"), "{said}");
}

#[test]
fn every_workload_explains_itself() {
    let dir = scratch();
    for workload in [
        "create",
        "remove",
        "change",
        "fs-mark",
        "find",
        "stress-orphan",
        "stress-unlink",
        "fserver",
    ] {
        let (help, _) = ok(dir.path(), &format!("{workload} --help"));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["Timed: ", "Default target: memory:", "Examples:", "Targets:", "kernel:xfs"] {
            assert!(help.contains(part), "{workload}: no {part:?} in {help}");
        }
    }
    let (help, _) = ok(dir.path(), "compare --help");
    assert!(help.contains("quick") && help.contains("about 15 minutes"), "{help}");
    let (help, _) = ok(dir.path(), "--help");
    assert!(help.contains("Exit status") && help.contains("130"), "{help}");
}
