//! Real mounts of a file system in memory, served by this process.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Memory, PANICS};
use fuse_device::{MountOptions, Session, SessionOptions, Unmounter};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> MountOptions {
    MountOptions { fs_name: "a, b".into(), subtype: "memory".into(), ..MountOptions::default() }
}

/// Lines of `/proc/mounts` about a path.
fn mounts_at(path: &Path) -> Vec<String> {
    let path = path.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let lines = mounts.lines().filter(|line| line.split(' ').nth(1) == Some(path));
    lines.map(str::to_owned).collect()
}

/// Serves `memory` while `test` runs. That has to unmount it; `serve` must then end well.
fn serve(memory: &Memory, threads: usize, test: impl FnOnce(&Path, &Unmounter)) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let session = Session::mount(place, &options()).unwrap();
    let unmounter = session.unmounter();
    let (started, starts) = mpsc::channel();
    let (finished, finishes) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let options = SessionOptions { threads, io_uring: false };
            let served = session.serve(memory, &options, || started.send(()).unwrap());
            finished.send(served).unwrap();
        });
        starts.recv_timeout(PATIENCE).expect("ready is called");
        // What is left mounted by a failing test would be waited for.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(place, &unmounter);
            finishes.recv_timeout(PATIENCE).expect("the session ends").unwrap();
        }));
        let _ = Command::new("umount")
            .arg("-l")
            .arg(place)
            .stderr(std::process::Stdio::null())
            .status();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(mounts_at(place), [""; 0]);
    unmounter.unmount().expect("it is not mounted any more");
}

#[test]
fn files_are_made_read_and_listed() {
    oracle::require!(Root, Fuse);
    let memory = Memory::new(0);
    serve(&memory, 2, |place, unmounter| {
        let mounts = mounts_at(place);
        assert_eq!(mounts.len(), 1);
        let fields: Vec<_> = mounts[0].split(' ').collect();
        assert_eq!((fields[0], fields[2]), ("a,\\040b", "fuse.memory"));
        for option in ["rw", "nosuid", "nodev", "noatime", "user_id=0", "default_permissions"] {
            assert!(fields[3].split(',').any(|found| found == option), "{option} in {}", fields[3]);
        }
        let large: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        fs::write(place.join("large"), &large).unwrap();
        assert!(fs::read(place.join("large")).unwrap() == large);
        fs::create_dir(place.join("directory")).unwrap();
        for n in 0..1000 {
            fs::write(place.join(format!("directory/file {n}")), n.to_string()).unwrap();
        }
        assert_eq!(fs::read_dir(place.join("directory")).unwrap().count(), 1000);
        assert_eq!(fs::read_to_string(place.join("directory/file 17")).unwrap(), "17");
        fs::remove_file(place.join("directory/file 17")).unwrap();
        let error = fs::read(place.join("directory/file 17")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        unmounter.unmount().unwrap();
    });
}
