//! Builds and extractions ended by a signal: they leave nothing behind and keep existing files.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{require, scratch};

use crate::build::common::{build, build_command, names_in, same_every_time, tar};

use crate::program::diskwright;

/// Returns the signals that end programs, except those that this process ignores, because its
/// children ignore them too.
fn signals() -> Vec<Signal> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap();
    let (heeded, unheard): (Vec<_>, Vec<_>) = [Signal::INT, Signal::TERM, Signal::HUP]
        .into_iter()
        .partition(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
    if !unheard.is_empty() {
        eprintln!("SKIPPED: {unheard:?}, which these tests were started to ignore");
    }
    heeded
}

/// Number of moments to test per run.
fn moments() -> u32 {
    testkit::effort(3, 5, 50)
}

/// Creates a source whose build takes a short time, and an archive of it.
fn source(dir: &Path) {
    let source = dir.join("source");
    for n in 0..3000_usize {
        let part = source.join((n % 10).to_string());
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join(n.to_string()), vec![7; n * 3]).unwrap();
    }
    tar(&source, &dir.join("source.tar"), &[]);
}

/// Sends a signal. Asserts that the signal ended the process, or that its work had ended before.
/// Returns whether it was the signal.
fn end(mut child: Child, signal: Signal) -> bool {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    let is_ended = status.signal() == Some(signal.as_raw());
    assert!(is_ended || status.success(), "{signal:?}: {status}");
    is_ended
}

/// Starts a command that creates a file repeatedly, and ends it at moments throughout its run. Each
/// time the file must be unchanged or complete, and the directory must contain nothing else except
/// `others`.
fn end_often(made: &Path, before: Option<&[u8]>, others: &[&str], start: impl Fn() -> Child) {
    let again = || {
        match before {
            Some(before) => fs::write(made, before).unwrap(),
            None => drop(fs::remove_file(made)),
        }
        start()
    };
    let digest = || made.exists().then(|| testkit::digest(made));
    let old = before.and_then(|before| {
        fs::write(made, before).unwrap();
        digest()
    });
    let clock = Instant::now();
    assert!(again().wait().unwrap().success());
    let run = clock.elapsed();
    let whole = digest();
    assert!(whole.is_some() && whole != old, "{whole:?}");
    let mut ended = 0;
    for signal in signals() {
        for moment in 0..moments() {
            let child = again();
            // Sleep for a fraction of the run time, whatever the command does then.
            std::thread::sleep((run * moment / moments()).min(Duration::from_secs(20)));
            let is_ended = end(child, signal);
            ended += u32::from(is_ended);
            let found = digest();
            let is_whole = found == whole;
            // The signal may arrive after all work is done.
            let is_as_before = found == old;
            assert!(is_whole || is_ended && is_as_before, "{signal:?}: neither old nor new");
            let _ = fs::remove_file(made);
            assert_eq!(names_in(made.parent().unwrap()), others);
        }
    }
    assert!(ended > 0, "no signal came in time");
}

fn silent(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn signals_leave_nothing_of_a_build() {
    require!(Tool("tar"));
    let directory = scratch();
    let dir = directory.path();
    source(dir);
    let image = dir.join("image");
    for options in ["", "--fs xfs"] {
        end_often(&image, None, &["source", "source.tar"], || {
            silent(&mut same_every_time(&dir.join("source"), &image, options))
        });
    }
}

#[test]
fn signals_leave_the_image_that_a_build_would_replace() {
    require!(Tool("tar"));
    let directory = scratch();
    let dir = directory.path();
    source(dir);
    let image = dir.join("image");
    end_often(&image, Some(b"precious"), &["source", "source.tar"], || {
        silent(&mut same_every_time(&dir.join("source"), &image, "--force"))
    });
}

/// The signal arrives when a given part of the archive is in the process or in the pipe.
#[test]
fn signals_leave_nothing_of_a_build_from_standard_input() {
    require!(Tool("tar"));
    let directory = scratch();
    let dir = directory.path();
    source(dir);
    let bytes = fs::read(dir.join("source.tar")).unwrap();
    let image = dir.join("image");
    for signal in signals() {
        for options in ["", "--size 200M", "--size 200M --inodes 5000"] {
            for share in [0, 1, 2, 3] {
                let mut command = build_command(Path::new("-"), &image, options);
                let mut child = silent(command.stdin(Stdio::piped()));
                let mut pipe = child.stdin.take().unwrap();
                pipe.write_all(&bytes[..bytes.len() * share / 4]).unwrap();
                assert!(end(child, signal), "{options}: it ended before its input did");
                assert_eq!(names_in(dir), ["source", "source.tar"]);
            }
        }
    }
    // The signal arrives when the process has received everything.
    end_often(&image, None, &["source", "source.tar"], || {
        let mut command = same_every_time(Path::new("-"), &image, "");
        silent(command.stdin(File::open(dir.join("source.tar")).unwrap()))
    });
}

#[test]
fn signals_leave_no_part_of_an_archive() {
    require!(Tool("tar"));
    let directory = scratch();
    let dir = directory.path();
    source(dir);
    let (image, archive) = (dir.join("image"), dir.join("x.tar"));
    build(&dir.join("source"), &image, "");
    let extract =
        |force: &[&str]| silent(diskwright().arg("extract").args(force).arg(&image).arg(&archive));
    let others = ["image", "source", "source.tar"];
    end_often(&archive, None, &others, || extract(&[]));
    end_often(&archive, Some(b"precious"), &others, || extract(&["--force"]));
}

/// A failed extraction also leaves the older archive.
#[test]
fn an_archive_that_cannot_be_finished_leaves_the_older_one() {
    let directory = scratch();
    let dir = directory.path();
    fs::create_dir(dir.join("source")).unwrap();
    fs::write(dir.join("source/file"), vec![1; 100_000]).unwrap();
    let (image, archive) = (dir.join("image"), dir.join("x.tar"));
    build(&dir.join("source"), &image, "");
    fs::write(&archive, "precious").unwrap();
    let extract = |more: &[&str]| {
        diskwright().arg("extract").args(more).arg(&image).arg(&archive).output().unwrap()
    };
    let output = extract(&["--force", "--path", "/absent"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = extract(&[]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--force"), "{output:?}");
    assert_eq!(fs::read(&archive).unwrap(), b"precious");
    assert!(extract(&["--force"]).status.success());
    assert_ne!(fs::read(&archive).unwrap(), b"precious");
    assert_eq!(names_in(dir), ["image", "source", "x.tar"]);
}

/// A process started with a signal ignored keeps ignoring it, as `nohup` requires.
#[test]
fn a_signal_that_is_to_be_ignored_is() {
    require!(Tool("tar"), Tool("sh"));
    let directory = scratch();
    let dir = directory.path();
    source(dir);
    let image = dir.join("image");
    let program = env!("CARGO_BIN_EXE_diskwright");
    let script = "trap '' HUP; exec \"$0\" build - \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, program]).arg(&image);
    let mut child = silent(command.stdin(Stdio::piped()));
    let mut pipe = child.stdin.take().unwrap();
    let bytes = fs::read(dir.join("source.tar")).unwrap();
    // More than the pipe's capacity, so the program is running by now.
    pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    pipe.write_all(&bytes[bytes.len() / 2..]).unwrap();
    drop(pipe);
    assert!(child.wait().unwrap().success());
    assert!(image.exists());
}
