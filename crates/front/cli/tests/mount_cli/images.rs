//! Mountable images: read-only ones, partitions of a disk, XFS, and the effects of options.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use testkit::{
    Ignore, LoopDevice, Mke2fs, MkfsXfs, Tree, assert_same, e2fsck, require, scratch, xfs_repair,
};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::disk::{self, START};
use crate::mount::{Mounting, Point};
use crate::mount_cli::common::{cat, ext4, ok, on_each_format, own_mounts, source};

#[test]
fn read_only_means_that_nothing_is_written() {
    require!(Fuse);
    let dir = scratch();
    let image = ext4(dir.path());
    let before = fs::read(&image).unwrap();
    let mounted = Mounting::new(&image).options("ro").start();
    assert_eq!(fs::read_to_string(mounted.join("motd")).unwrap(), "Welcome.\n");
    for error in [
        fs::write(mounted.join("new"), "").unwrap_err(),
        fs::remove_file(mounted.join("motd")).unwrap_err(),
        fs::create_dir(mounted.join("dir")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(mounted.unmount(), "");
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
}

#[test]
fn a_partition_is_mounted_and_nothing_around_it_changes() {
    require!(Fuse, Tool("e2fsck"), Tool("mke2fs"));
    let dir = scratch();
    // The user of this test may write to it.
    Mke2fs::new("ext4").extended("root_owner").create(&dir.path().join("part"), 16 << 20);
    let part = fs::read(dir.path().join("part")).unwrap();
    let path = dir.path().join("disk");
    let (disk, mbr) = disk::with_partition(&path, &part);
    let mounted = Mounting::new(&path).arguments(["--partition", "1"]).start();
    fs::write(mounted.join("file"), "in a partition").unwrap();
    mounted.unmount();
    let mounted = Mounting::new(&path).options("ro").arguments(["--offset", "1M"]).start();
    assert_eq!(fs::read_to_string(mounted.join("file")).unwrap(), "in a partition");
    mounted.unmount();
    let mut after = vec![0; part.len()];
    disk.read_exact_at(&mut after, START).unwrap();
    fs::write(dir.path().join("part"), after).unwrap();
    e2fsck(dir.path().join("part"));
    let mut start = [0; 512];
    disk.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(start, mbr);
}

#[test]
fn images_of_mkfs_xfs_are_mounted_to_be_changed() {
    require!(Fuse, Tool("mkfs.xfs"), Tool("xfs_repair"));
    let dir = scratch();
    let image = dir.path().join("a.img");
    MkfsXfs::default().create(&image, 320 << 20);
    let source = source(dir.path());
    let mounted = Mounting::new(&image).start();
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    let mut cp = std::process::Command::new("cp");
    assert!(cp.arg("-a").arg(&source).arg(mounted.path()).status().unwrap().success());
    assert_eq!(mounted.unmount(), "");
    xfs_repair(&image);
    let mounted = Mounting::new(&image).options("ro").start();
    let found = mounted.join("source");
    assert_same(&Tree::of(&source), &Tree::of(&found), &Ignore::default());
    let mut value = [0; 1000];
    let len = rustix::fs::getxattr(
        found.join("etc/hostname"),
        "system.diskwright.parents",
        &mut value[..],
    );
    assert!(value[..len.unwrap()].ends_with(b"/hostname\0"));
    let refused = fs::write(mounted.join("new"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(mounted.unmount(), "");
}

#[test]
fn images_with_unmaintained_features_are_mounted_read_only() {
    require!(Fuse, Tool("xfsprogs-6.1/bin/mkfs.xfs"));
    let dir = scratch();
    let image = dir.path().join("a.img");
    MkfsXfs::of("xfsprogs-6.1/bin/mkfs.xfs").options("-m crc=0").create(&image, 320 << 20);
    let before = fs::read(&image).unwrap();
    let mut mounted = Mounting::new(&image).start();
    let said = mounted.said();
    assert_eq!(said, "diskwright: mounted read-only: version 4, without checksums\n");
    let refused = fs::write(mounted.join("new"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    mounted.unmount();
    // An explicit option needs no warning.
    assert_eq!(Mounting::new(&image).options("ro").start().unmount(), "");
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
}

#[test]
fn write_protected_images_are_mounted_read_only() {
    require!(Fuse, Root, Loop);
    on_each_format(|_, image| {
        let before = fs::read(image).unwrap();
        let device = LoopDevice::with_options(image, &["--read-only"]);
        let mut mounted = Mounting::new(device.path()).start();
        let said = mounted.said();
        assert_eq!(said, "diskwright: mounted read-only: the device is write-protected\n");
        assert_eq!(fs::read_to_string(mounted.join("motd")).unwrap(), "Welcome.\n");
        let refused = fs::write(mounted.join("new"), "").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
        mounted.unmount();
        let silent = Mounting::new(device.path()).options("silent").start();
        assert_eq!(silent.unmount(), "");
        drop(device);
        assert!(fs::read(image).unwrap() == before, "the image has changed");
        // A writable device is mounted read-write.
        let device = LoopDevice::new(image);
        let mounted = Mounting::new(device.path()).start();
        fs::write(mounted.join("new"), "").unwrap();
        assert_eq!(mounted.unmount(), "");
    });
}

#[test]
fn an_image_on_a_file_system_for_reading_is_mounted_for_reading() {
    require!(Fuse, Root);
    let dir = scratch();
    let image = ext4(dir.path());
    let _mounts = own_mounts();
    mount_bind(dir.path(), dir.path()).unwrap();
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    mount_remount(dir.path(), flags, "").unwrap();
    let mut mounted = Mounting::new(&image).start();
    let said = mounted.said();
    assert_eq!(said, "diskwright: mounted read-only: the file is write-protected\n");
    assert_eq!(fs::read_to_string(mounted.join("motd")).unwrap(), "Welcome.\n");
    mounted.unmount();
    unmount(dir.path(), UnmountFlags::DETACH).unwrap();
}

#[test]
fn directories_keep_their_access_times_and_links_are_not_followed_as_asked_for() {
    require!(Fuse, Root);
    let dir = scratch();
    let image = ext4(dir.path());
    let accessed = |options: &str| {
        let mounted = Mounting::new(&image).options(options).start();
        let before = fs::metadata(mounted.join("etc")).unwrap();
        assert_eq!(fs::read_dir(mounted.join("etc")).unwrap().count(), 2);
        let after = fs::metadata(mounted.join("etc")).unwrap();
        mounted.unmount();
        (before.atime(), before.atime_nsec()) != (after.atime(), after.atime_nsec())
    };
    assert!(!accessed("strictatime,nodiratime"));
    assert!(accessed("nodiratime,strictatime,diratime"));
    let mounted = Mounting::new(&image).options("nosymfollow").start();
    assert_eq!(fs::read_link(mounted.join("etc/link")).unwrap(), Path::new("hostname"));
    let refused = fs::read(mounted.join("etc/link")).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::LOOP));
    mounted.unmount();
}

#[test]
fn owners_are_shown_and_stored_as_asked_for() {
    require!(Fuse, Root, Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    let mounted = Mounting::new(&image).options("owner=7:8").start();
    fs::write(mounted.join("new"), "").unwrap();
    let metadata = fs::metadata(mounted.join("new")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
    mounted.unmount();
    let mounted = Mounting::new(&image).options("uid=1,gid=2").options("ro").start();
    let metadata = fs::metadata(mounted.join("new")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1, 2));
    mounted.unmount();
    let mounted = Mounting::new(&image).options("ro").start();
    let metadata = fs::metadata(mounted.join("new")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
    mounted.unmount();
    e2fsck(&image);
}

#[test]
fn the_kernel_receives_the_options() {
    require!(Fuse, Root);
    let dir = scratch();
    let image = ext4(dir.path());
    for (options, wanted, unwanted) in [
        ("rw", "rw,nosuid,nodev", "noexec"),
        ("suid,dev,noexec,sync,dirsync", "rw,sync,dirsync,noexec", "nosuid"),
        ("ro,allow_other", "allow_other", "rw"),
    ] {
        let mounted = Mounting::new(&image).options(options).start();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let start = format!("{} {} fuse.diskwright ", image.display(), mounted.path().display());
        // Without the paths, which are random and may contain an option's name.
        let Some(told) = mounts.lines().find_map(|line| line.strip_prefix(&start)) else {
            panic!("{options}: nothing of {start}in\n{mounts}");
        };
        assert!(told.contains(wanted) && !told.contains(unwanted), "{options}: {told}");
        assert!(told.contains("default_permissions"), "{told}");
        mounted.unmount();
    }
}

#[test]
fn stale_images_are_read_without_recovery() {
    require!(Fuse);
    let dir = scratch();
    let image = ext4(dir.path());
    let mounted = Mounting::new(&image).start();
    let point = Point::new();
    ok(dir.path(), &point, "mount --stale a.img POINT");
    assert_eq!(fs::read_to_string(point.path().join("motd")).unwrap(), "Welcome.\n");
    assert!(fs::write(point.path().join("new"), "").is_err());
    ok(dir.path(), &point, "unmount POINT");
    mounted.unmount();
    assert_eq!(cat(&image, "/motd"), "Welcome.\n");
}
