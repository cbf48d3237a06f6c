//! Real mounts of an in-memory file system, served by this process.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use linux::{MountOptions, Session};
use rustix::thread::{CpuSet, sched_setaffinity};
use testkit::wait_until;

use crate::common::{
    IS_WAITED_FOR, Memory, PANICS, Transport, WAITS, mount_options, mounts_at, over_both, serve,
    session_options,
};

over_both!(
    files_are_made_read_and_listed,
    unmounting_may_come_before_serving,
    clients_are_served_in_parallel,
    a_request_that_waits_keeps_no_other_waiting,
    it_ends_when_others_unmount,
    it_ends_and_nothing_stays_when_others_use_force,
    what_is_used_goes_when_it_is_not_used_any_more,
    a_handler_that_panics_fails_one_request,
    what_is_mounted_over_it_stays,
    the_mount_is_as_asked_for,
);

fn files_are_made_read_and_listed(over: Transport) {
    testkit::require!(Root, Fuse);
    let memory = Memory::new(0);
    serve(&memory, over, 2, |place, unmounter| {
        let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
        fs::write(place.join("large"), &large).unwrap();
        assert!(memory.contents("large").unwrap() == large);
        assert_eq!(memory.bytes_read(), 0);
        forget_contents(&place.join("large"));
        assert!(fs::read(place.join("large")).unwrap() == large);
        assert_eq!(memory.bytes_read(), large.len());
        fs::create_dir(place.join("directory")).unwrap();
        for n in 0..1000 {
            fs::write(place.join(format!("directory/file {n}")), n.to_string()).unwrap();
        }
        assert_eq!(fs::read_dir(place.join("directory")).unwrap().count(), 1000);
        assert_eq!(fs::read_to_string(place.join("directory/file 17")).unwrap(), "17");
        fs::remove_file(place.join("directory/file 17")).unwrap();
        let error = fs::read(place.join("directory/file 17")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        unmounter.unmount().unwrap();
    });
}

/// Drops the kernel's cached contents of a file, so that it reads them again.
fn forget_contents(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn the_mount_is_as_asked_for(over: Transport) {
    testkit::require!(Root, Fuse);
    serve(&Memory::new(0), over, 1, |place, unmounter| {
        let mounts = mounts_at(place);
        assert_eq!(mounts.len(), 1);
        let fields: Vec<_> = mounts[0].split(' ').collect();
        assert_eq!((fields[0], fields[2]), ("a,\\040b", "fuse.memory"));
        for option in ["rw", "nosuid", "nodev", "noatime", "user_id=0", "default_permissions"] {
            assert!(fields[3].split(',').any(|found| found == option), "{option} in {}", fields[3]);
        }
        unmounter.unmount().unwrap();
    });
}

/// Returns the options that `/proc/mounts` shows for an unserved mount with these options.
fn shown(options: MountOptions) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let session = Session::mount(place.path(), &options).unwrap();
    let mounts = mounts_at(place.path());
    drop(session);
    mounts[0].split(' ').nth(3).unwrap().split(',').map(str::to_owned).collect()
}

#[test]
fn requested_mount_options_are_in_effect() {
    testkit::require!(Root, Fuse);
    let none = shown(MountOptions::default());
    let all = shown(MountOptions {
        read_only: true,
        allow_other: true,
        suid: true,
        dev: true,
        noexec: true,
        sync: true,
        dirsync: true,
        ..MountOptions::default()
    });
    let has = |list: &[String], word: &str| list.iter().any(|found| found == word);
    for word in ["ro", "allow_other", "noexec", "sync", "dirsync"] {
        assert!(has(&all, word) && !has(&none, word), "{word}: {all:?}, {none:?}");
    }
    for word in ["rw", "nosuid", "nodev"] {
        assert!(!has(&all, word) && has(&none, word), "{word}: {all:?}, {none:?}");
    }
    assert!(has(&all, "default_permissions") && has(&none, "default_permissions"));
}

fn unmounting_may_come_before_serving(over: Transport) {
    testkit::require!(Root, Fuse);
    let place = tempfile::tempdir().unwrap();
    let session = Session::mount(place.path(), &mount_options()).unwrap();
    session.unmounter().unmount().unwrap();
    let options = session_options(over, 1);
    session.serve(&Memory::new(0), &options, || panic!("it is not ready")).unwrap();
}

fn clients_are_served_in_parallel(over: Transport) {
    testkit::require!(Root, Fuse);
    serve(&Memory::new(0), over, 4, |place, unmounter| {
        thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    for n in 0..200 {
                        let path = place.join(format!("{client}-{n}"));
                        let contents = format!("{client}, {n}").repeat(500);
                        fs::write(&path, &contents).unwrap();
                        assert_eq!(fs::read_to_string(&path).unwrap(), contents);
                        if n % 2 == 0 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(place).unwrap().count(), 800);
        unmounter.unmount().unwrap();
    });
}

fn a_request_that_waits_keeps_no_other_waiting(over: Transport) {
    testkit::require!(Root, Fuse);
    // Over io_uring, requests of one processor are served by the same threads.
    let on_one_processor = || {
        let mut first = CpuSet::new();
        first.set(0);
        // If this is not permitted, the test is easier to pass.
        let _ = sched_setaffinity(None, &first);
    };
    let memory = Memory::new(0);
    serve(&memory, over, 2, |place, unmounter| {
        // Use a separate directory: the kernel creates one file per directory at a time.
        fs::create_dir(place.join("directory")).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                on_one_processor();
                fs::write(place.join("directory").join(WAITS), "").unwrap();
            });
            scope.spawn(|| {
                on_one_processor();
                wait_until("the other to have begun", || memory.is_waiting());
                fs::write(place.join(IS_WAITED_FOR), "").unwrap();
            });
        });
        unmounter.unmount().unwrap();
    });
}

fn it_ends_when_others_unmount(over: Transport) {
    testkit::require!(Root, Fuse, Tool("umount"));
    serve(&Memory::new(0), over, 2, |place, _| {
        fs::write(place.join("file"), "contents").unwrap();
        testkit::umount_when_free(place);
    });
}

fn it_ends_and_nothing_stays_when_others_use_force(over: Transport) {
    testkit::require!(Root, Fuse, Tool("umount"));
    serve(&Memory::new(0), over, 2, |place, _| {
        let file = File::create(place.join("file")).unwrap();
        // The mount is in use, so it stays, but its connection is aborted.
        let forced = testkit::command("umount").arg("-f").arg(place).stderr(Stdio::null()).status();
        assert!(!forced.unwrap().success());
        drop(file);
    });
}

fn what_is_used_goes_when_it_is_not_used_any_more(over: Transport) {
    testkit::require!(Root, Fuse);
    let memory = Memory::new(0);
    serve(&memory, over, 2, |place, unmounter| {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(place.join("file"))
            .unwrap();
        file.write_all(b"before").unwrap();
        assert_eq!(memory.contents("file").unwrap(), b"", "the kernel caches what is written");
        unmounter.unmount().unwrap();
        assert_eq!(mounts_at(place), [""; 0]);
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
        file.write_all(b" and after").unwrap();
        file.sync_all().unwrap();
        assert_eq!(memory.contents("file").unwrap(), b"before and after");
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 11).unwrap();
        assert_eq!(&read, b"after");
        file.write_all_at(b"B", 0).unwrap();
    });
    assert_eq!(memory.contents("file").unwrap(), b"Before and after");
}

fn a_handler_that_panics_fails_one_request(over: Transport) {
    testkit::require!(Root, Fuse);
    serve(&Memory::new(0), over, 1, |place, unmounter| {
        for _ in 0..3 {
            let error = fs::write(place.join(PANICS), "").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(5), "EIO");
            fs::write(place.join("file"), "well").unwrap();
        }
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "well");
        unmounter.unmount().unwrap();
    });
}

fn mount_other(place: &Path) {
    let mut command = testkit::command("mount");
    command.args(["-t", "tmpfs", "other"]).arg(place);
    assert!(command.status().unwrap().success());
}

fn unmount_other(place: &Path) {
    testkit::umount_when_free(place);
}

fn what_is_mounted_over_it_stays(over: Transport) {
    testkit::require!(Root, Fuse, Tool("mount"));
    serve(&Memory::new(0), over, 1, |place, unmounter| {
        mount_other(place);
        let error = unmounter.unmount().unwrap_err().to_string();
        assert!(error.contains("another file system is mounted over it"), "{error}");
        assert_eq!(mounts_at(place).len(), 2);
        unmount_other(place);
        fs::write(place.join("file"), "still served").unwrap();
        unmounter.unmount().unwrap();
    });
}

#[test]
fn later_mounts_at_the_same_directory_stay_mounted() {
    testkit::require!(Root, Fuse, Tool("mount"));
    let place = tempfile::tempdir().unwrap();
    let session = Session::mount(place.path(), &mount_options()).unwrap();
    let unmounter = session.unmounter();
    unmounter.unmount().unwrap();
    mount_other(place.path());
    unmounter.unmount().unwrap();
    drop(session);
    assert_eq!(mounts_at(place.path()).len(), 1);
    unmount_other(place.path());
    // A new mount may reuse the numbers of a removed one.
    let next = Session::mount(place.path(), &mount_options()).unwrap();
    unmounter.unmount().unwrap();
    assert_eq!(mounts_at(place.path()).len(), 1);
    drop(next);
    assert_eq!(mounts_at(place.path()), [""; 0]);
}

#[test]
fn a_session_that_is_never_served_is_unmounted() {
    testkit::require!(Root, Fuse);
    let place = tempfile::tempdir().unwrap();
    let session = Session::mount(place.path(), &mount_options()).unwrap();
    assert_eq!(mounts_at(place.path()).len(), 1);
    drop(session);
    assert_eq!(mounts_at(place.path()), [""; 0]);
    fs::write(place.path().join("file"), "").unwrap();
}

#[test]
fn mount_points_that_are_not_directories_are_refused() {
    testkit::require!(Root, Fuse);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = |path: &Path| Session::mount(path, &mount_options()).unwrap_err();
    let error = refused(&file);
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    let expected = format!("cannot mount on {}: it is not a directory", file.display());
    assert_eq!(error.to_string(), expected);
    let error = refused(&place.path().join("absent"));
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().ends_with("absent: no such directory; create it first"), "{error}");
}
