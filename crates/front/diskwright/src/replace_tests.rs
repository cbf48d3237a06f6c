//! Tests of new files with and without a temporary name.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::*;
use crate::clean_up_on_signals;

/// Returns the names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Creates a file as on a file system without anonymous files.
fn begin_named(path: &Path, replace: Replace) -> Result<Replacement, Refused> {
    Replacement::create_in(path, replace, |_| None)
}

/// Serialises tests, because a starting process briefly has copies of all open files and their locks.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

type Begin = fn(&Path, Replace) -> Result<Replacement, Refused>;
const BOTH: [Begin; 2] = [Replacement::create, begin_named];

#[test]
fn a_new_file_has_no_name_of_its_own_where_that_can_be() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let new = Replacement::create(&path, Replace::Nothing).unwrap();
    if new.part.is_some() {
        eprintln!("SKIPPED: the file system of {} has no O_TMPFILE", dir.path().display());
        return;
    }
    assert_eq!(names(dir.path()), [""; 0]);
    new.file().write_all_at_start(b"whole");
    new.keep().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
}

trait WriteAll {
    fn write_all_at_start(&self, bytes: &[u8]);
}

impl WriteAll for File {
    fn write_all_at_start(&self, bytes: &[u8]) {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, 0).unwrap();
    }
}

#[test]
fn the_old_file_remains_until_the_new_one_is_complete() {
    let _alone = alone();
    for begin in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"old").unwrap();
        let dropped = begin(&path, Replace::Anything).unwrap();
        dropped.file().write_all_at_start(b"new");
        drop(dropped);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let new = begin(&path, Replace::Anything).unwrap();
        new.file().write_all_at_start(b"new");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        new.keep().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["x"]);
    }
}

#[test]
fn the_old_file_is_locked_until_it_is_replaced() {
    let _alone = alone();
    for begin in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"old").unwrap();
        let old = File::open(&path).unwrap();
        let new = begin(&path, Replace::Anything).unwrap();
        assert!(old.try_lock_shared().is_err());
        assert!(matches!(begin(&path, Replace::Anything), Err(Refused::InUse { .. })));
        new.keep().unwrap();
        old.try_lock_shared().unwrap();
        // A lock on a file without a name excludes no program.
        drop(crate::lock::open_to_write(&path).unwrap());
        let reader = crate::lock::open_to_read(&path, false).unwrap();
        assert!(matches!(begin(&path, Replace::Anything), Err(Refused::InUse { .. })));
        drop(reader);
    }
}

/// A lock always applies to the file that has the name, whatever the order of opening, locking and replacing.
#[test]
fn the_holder_of_the_lock_has_the_current_file() {
    let _alone = alone();
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, b"first").unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..1000_usize {
                // The other thread may hold the lock.
                if let Ok(new) = BOTH[number % 2](&path, Replace::Anything) {
                    new.keep().unwrap();
                }
            }
            is_done.store(true, relaxed);
        });
        let mut locked = 0;
        while !is_done.load(relaxed) {
            let file = match locked % 2 {
                0 => crate::lock::open_to_write(&path),
                _ => crate::lock::open_to_read(&path, false),
            };
            match file {
                Ok(file) => {
                    let inode = file.metadata().unwrap().ino();
                    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
                    locked += 1;
                }
                Err(crate::Error::InUse { .. }) => {}
                // On a loaded machine, the other thread may replace the file before each attempt.
                Err(error) if error.to_string().contains("other programs replace it") => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn files_created_meanwhile_are_not_replaced_without_force() {
    let _alone = alone();
    for begin in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut begun = [Replace::Nothing, Replace::Empty, Replace::Anything]
            .map(|replace| Some(begin(&path, replace).unwrap()));
        let mut keep = |number: usize| begun[number].take().unwrap().keep();
        std::fs::write(&path, b"came meanwhile").unwrap();
        assert!(matches!(keep(0), Err(Refused::Exists)));
        assert!(matches!(keep(1), Err(Refused::Exists)));
        assert_eq!(std::fs::read(&path).unwrap(), b"came meanwhile");
        keep(2).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        assert_eq!(names(dir.path()), ["x"]);
    }
}

#[test]
fn a_name_as_long_as_names_can_be_is_replaced() {
    let _alone = alone();
    for begin in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n".repeat(255));
        for _ in 0..2 {
            begin(&path, Replace::Anything).unwrap().keep().unwrap();
        }
        assert_eq!(names(dir.path()), ["n".repeat(255)]);
    }
}

#[test]
fn the_next_file_of_a_name_removes_one_without_an_owner() {
    let _alone = alone();
    for begin in BOTH {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".x.0.part"), b"left by kill -9").unwrap();
        std::fs::write(dir.path().join(".x.1.part"), b"left by kill -9").unwrap();
        std::fs::write(dir.path().join(".other.0.part"), b"").unwrap();
        // A file in use must remain.
        let other = begin_named(&dir.path().join("y"), Replace::Nothing).unwrap();
        let more = begin(&dir.path().join("y"), Replace::Nothing).unwrap();
        begin(&dir.path().join("x"), Replace::Nothing).unwrap().keep().unwrap();
        assert!(names(dir.path()).contains(&".y.0.part".to_owned()));
        assert_eq!(names(dir.path()).iter().filter(|name| name.contains(".x.")).count(), 0);
        drop((other, more));
        assert_eq!(names(dir.path()), [".other.0.part", "x"]);
    }
}

/// Path of the file created by the child process of [`signals_leave_no_named_file`].
const CHILD: &str = "DISKWRIGHT_TEST_REPLACE";

/// Helper of the next test, not a test of its own.
#[test]
fn child_of_signals_leave_no_named_file() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    clean_up_on_signals().unwrap();
    let new = begin_named(&path, Replace::Anything).unwrap();
    new.file().write_all_at_start(b"new");
    println!("\nbegun");
    // The parent sends its signal before there is any input.
    let _ = std::io::stdin().read(&mut [0]);
    drop(new);
}

#[test]
fn signals_leave_no_named_file() {
    let _alone = alone();
    use rustix::process::{Pid, Signal, kill_process};
    // Signals ignored by this process are ignored by its child too.
    let heeded = crate::signals::heeded().filter_map(Signal::from_named_raw);
    for signal in heeded.chain([Signal::KILL]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"old").unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "replace::tests::child_of_signals_leave_no_named_file"]);
        command.arg("--nocapture").env(CHILD, &path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Closing it would end the child.
        let _input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "begun"));
        assert_eq!(names(dir.path()), [".x.0.part", "x"]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        if signal == Signal::KILL {
            // After SIGKILL, only the next program can remove the file.
            drop(Replacement::create(&path, Replace::Anything).unwrap());
        }
        assert_eq!(names(dir.path()), ["x"], "{signal:?}");
    }
}
