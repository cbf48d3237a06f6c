//! Early ends: Ctrl-C, and a reader that closes the pipe.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::common::{build, command, count, damage_inode, inode_offset};

/// Number of files, for more findings than a pipe and the program's buffers can hold.
const FILES: u64 = 8000;
const INODE_BYTES: u64 = 256;

/// Creates an image `a.img` with damage in many inodes, and a sound one, `b.img`.
fn with_many_findings(dir: &Path) {
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    build(dir, "b.img", "--size 64M");
    for number in 0..FILES {
        File::create(source.join(format!("{number:04}"))).unwrap();
    }
    // One group, so that all inodes are in one table.
    build(dir, "a.img", "--size 64M --inodes 10000");
    // Inode numbers follow the order of the source, which is arbitrary.
    let offsets = ["0000", "7999"].map(|name| inode_offset(dir, "a.img", &format!("/{name}")));
    let lowest = offsets[0].min(offsets[1]);
    assert_eq!(offsets[0].abs_diff(offsets[1]), (FILES - 1) * INODE_BYTES, "in the order of names");
    for number in 0..FILES {
        damage_inode(&dir.join("a.img"), lowest + number * INODE_BYTES);
    }
}

fn start(dir: &Path, line: &str) -> Child {
    command(dir, line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn findings_before_an_interruption_are_reported() {
    let home = testkit::scratch();
    with_many_findings(home.path());
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = start(home.path(), "check --jsonl a.img b.img");
        // The program cannot end before all its output is read.
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        assert!(first.contains("\"type\":\"finding\""), "{first}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
        assert!(said.contains("interrupted: 1 more image was not checked"), "{said}");
        let lines: Vec<Value> =
            rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, findings) = lines.split_last().unwrap();
        assert_eq!((&summary["type"], &summary["image"]), (&"summary".into(), &"a.img".into()));
        assert_eq!(count(summary), findings.len() as u64 + 1, "with the first");
        // A check may have completed while it waited for the reader.
        assert_ne!(summary["is_complete"], summary["is_interrupted"], "{summary}");
    }
}

#[test]
fn a_closed_pipe_ends_the_command_silently() {
    let home = testkit::scratch();
    with_many_findings(home.path());
    let mut child = start(home.path(), "check --jsonl a.img b.img");
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let home = testkit::scratch();
    with_many_findings(home.path());
    let report = super::common::object(home.path(), "check --json a.img", 1);
    let kinds = super::common::list(&report, "kinds");
    let long: Vec<_> = kinds.iter().filter(|kind| kind["count"].as_u64() >= Some(FILES)).collect();
    assert!(!long.is_empty(), "{report}");
    for kind in long {
        let (count, left_out) =
            (kind["count"].as_u64().unwrap(), kind["left_out"].as_u64().unwrap());
        let findings = super::common::list(kind, "findings");
        assert!(!findings.is_empty() && findings.len() <= 1000, "{}", findings.len());
        assert_eq!(count, left_out + findings.len() as u64);
    }
}
