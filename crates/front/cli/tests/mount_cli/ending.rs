//! Ends of mounts, and the state afterwards.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::Signal;
use testkit::{judge, require, scratch, umount_when_free};

use crate::mount::{Mounted, Mounting, Point, is_mounted, wait_until};
use crate::mount_cli::common::{cat, ext4, fails, ok, on_each_format};

#[test]
fn signals_end_it_with_everything_written() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|_, image| {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let mounted = Mounted::new(image);
            for n in 0..100 {
                fs::write(mounted.join(format!("file {n}")), vec![n; 10_000]).unwrap();
            }
            let point = mounted.path().to_owned();
            mounted.signal(signal);
            let (status, said) = mounted.wait();
            assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{signal:?}");
            assert!(!is_mounted(&point));
            judge(image);
            assert_eq!(cat(image, "/file 99").as_bytes(), vec![99; 10_000]);
        }
    });
}

#[test]
fn unmounted_by_others_it_ends_with_everything_written() {
    require!(Fuse, Root, Tool("e2fsck"), Tool("xfs_repair"), Tool("umount"));
    on_each_format(|_, image| {
        let mounted = Mounted::new(image);
        fs::write(mounted.join("file"), vec![7; 3 << 20]).unwrap();
        umount_when_free(mounted.path());
        let (status, said) = mounted.wait();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""));
        judge(image);
        assert_eq!(cat(image, "/file").as_bytes(), vec![7; 3 << 20]);
    });
}

#[test]
fn a_busy_mount_ends_after_its_last_use() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|_, image| {
        let mounted = Mounted::new(image);
        let mut used = File::create(mounted.join("used")).unwrap();
        let point = mounted.path().to_owned();
        mounted.signal(Signal::TERM);
        wait_until("the mount to go", || !is_mounted(&point));
        used.write_all(b"written after").unwrap();
        drop(used);
        let (status, said) = mounted.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        judge(image);
        assert_eq!(cat(image, "/used"), "written after");
    });
}

#[test]
fn a_second_signal_ends_it_at_once_and_says_so() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let mounted = Mounted::new(image);
        let used = File::create(mounted.join("used")).unwrap();
        used.sync_all().unwrap();
        let point = mounted.path().to_owned();
        mounted.signal(Signal::TERM);
        wait_until("the mount to go", || !is_mounted(&point));
        mounted.signal(Signal::INT);
        let (status, said) = mounted.wait();
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(said.contains("ended before all changes were written"), "{said}");
        drop(used);
        let point = Point::new();
        ok(dir, &point, "recover a.img");
        judge(image);
        assert_eq!(cat(image, "/used"), "");
    });
}

#[test]
fn the_next_mount_recovers_after_a_kill() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|_, image| {
        let mounted = Mounting::new(image).options("commit=0").start();
        fs::create_dir(mounted.join("dir")).unwrap();
        let synced = mounted.join("dir/synced");
        fs::write(&synced, "durable").unwrap();
        File::open(&synced).unwrap().sync_all().unwrap();
        fs::write(mounted.join("dir/lost"), "perhaps").unwrap();
        let unlinked = File::create(mounted.join("unlinked")).unwrap();
        fs::remove_file(mounted.join("unlinked")).unwrap();
        File::open(mounted.path()).unwrap().sync_all().unwrap();
        mounted.kill();
        drop(unlinked);
        // Read-only mounts replay the journal in memory, and do not change the image.
        let crashed = fs::read(image).unwrap();
        let mounted = Mounting::new(image).options("ro").start();
        assert_eq!(fs::read_to_string(mounted.join("dir/synced")).unwrap(), "durable");
        mounted.unmount();
        assert!(fs::read(image).unwrap() == crashed, "a read-only mount has changed the image");
        let mounted = Mounted::new(image);
        assert_eq!(fs::read_to_string(mounted.join("dir/synced")).unwrap(), "durable");
        assert!(!mounted.join("unlinked").exists());
        mounted.unmount();
        judge(image);
    });
}

#[test]
fn changes_become_durable_by_themselves() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let mounted = Mounting::new(image).options("commit=1").start();
        fs::create_dir(mounted.join("dir")).unwrap();
        let point = Point::new();
        // The state that a crash would leave.
        wait_until("a sync", || {
            testkit::copy_image(image, &dir.join("copy.img"));
            crate::mount_cli::common::run(dir, &point, "ls copy.img /dir").status.success()
        });
        mounted.kill();
        ok(dir, &point, "recover a.img");
        judge(image);
    });
}

#[test]
fn dirsync_and_sync_wait_until_changes_are_durable() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    for options in ["dirsync,commit=0", "sync,commit=0"] {
        on_each_format(|_, image| {
            let mounted = Mounting::new(image).options(options).start();
            fs::create_dir(mounted.join("dir")).unwrap();
            fs::remove_file(mounted.join("motd")).unwrap();
            fs::rename(mounted.join("etc/hostname"), mounted.join("dir/name")).unwrap();
            mounted.kill();
            let found = crate::program::diskwright().arg("find").arg(image).output().unwrap();
            let found = String::from_utf8(found.stdout).unwrap();
            let found: Vec<_> = found.lines().filter(|path| *path != "/lost+found").collect();
            assert_eq!(found, ["/", "/dir", "/dir/name", "/etc", "/etc/link"], "{options}");
            let mounted = Mounting::new(image).options(options).start();
            fs::write(mounted.join("file"), "contents").unwrap();
            fs::set_permissions(mounted.join("dir"), Permissions::from_mode(0o700)).unwrap();
            mounted.kill();
            let mounted = Mounted::new(image);
            let is_changed = fs::metadata(mounted.join("dir")).unwrap().mode() & 0o777 == 0o700;
            assert!(is_changed || !options.starts_with("sync"), "{options}");
            if options.starts_with("sync") {
                assert_eq!(fs::read_to_string(mounted.join("file")).unwrap(), "contents");
            }
            mounted.unmount();
            judge(image);
        });
    }
}

/// Creates a mount whose server was killed.
fn dead_mount(dir: &Path) -> Point {
    let point = Point::new();
    let mut server = crate::program::diskwright();
    server.current_dir(dir).args(["mount", "--foreground", "a.img"]).arg(point.path());
    let mut server = server.spawn().unwrap();
    wait_until("the mount to answer", || {
        assert_eq!(server.try_wait().unwrap(), None, "the server has ended");
        is_mounted(point.path()) && point.path().join("motd").metadata().is_ok()
    });
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(is_mounted(point.path()));
    point
}

#[test]
fn a_dead_mount_can_be_removed_and_its_image_is_named() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        let point = dead_mount(dir);
        let said = fails(dir, &point, "unmount POINT", 4);
        assert!(said.contains("a.img needs recovery"), "{said}");
        assert!(!is_mounted(point.path()));
        ok(dir, &point, "mount a.img POINT");
        ok(dir, &point, "unmount POINT");
        judge(image);
    });
}

#[test]
fn mounting_on_a_dead_mount_reports_it() {
    require!(Fuse);
    let dir = scratch();
    ext4(dir.path());
    let point = dead_mount(dir.path());
    let said = fails(dir.path(), &point, "mount a.img POINT", 4);
    assert!(said.contains("whose server has ended"), "{said}");
}
