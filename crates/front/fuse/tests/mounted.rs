//! Names and attributes through mounts, as in programs.

use crate::common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use common::{NewImage, mounted};
use fuse::Options;
use linux::Errno;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, Timespec, Timestamps,
};
use testkit::require;

/// Runs a test on mounts of both formats, whose images must be sound afterwards.
fn on_mounts(test: impl Fn(&Path, &NewImage)) {
    for image in [NewImage::ext4(), NewImage::xfs()] {
        mounted(&image, Options::default(), |path| test(path, &image));
        image.judge();
    }
}

fn errno(error: std::io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[test]
fn an_open_file_outlives_its_names() {
    require!(Root, Fuse);
    on_mounts(|root, image| {
        let free = image.fs().statfs().unwrap().inodes_free;
        let path = root.join("file");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::hard_link(&path, root.join("second")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 2);
        for name in ["file", "second"] {
            fs::remove_file(root.join(name)).unwrap();
        }
        file.write_all(b"still here").unwrap();
        let number = file.metadata().unwrap().ino();
        for i in 0..50 {
            let other = File::create(root.join(format!("n{i}"))).unwrap();
            assert_ne!(other.metadata().unwrap().ino(), number);
        }
        let mut found = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut found).unwrap();
        assert_eq!((found.as_str(), file.metadata().unwrap().nlink()), ("still here", 0));
        drop(file);
        (0..50).for_each(|i| fs::remove_file(root.join(format!("n{i}"))).unwrap());
        assert_eq!(errno(fs::metadata(&path).unwrap_err()), Some(Errno::NOENT));
        // The kernel forgets asynchronously.
        let is_freed = || image.fs().statfs().unwrap().inodes_free == free;
        testkit::wait_until("the inode to be freed", is_freed);
    });
}

#[test]
fn a_file_without_a_name_gets_one() {
    require!(Root, Fuse);
    on_mounts(|root, _| {
        let nameless = || {
            let flags = OFlags::TMPFILE.bits() as i32;
            File::options().write(true).mode(0o640).custom_flags(flags).open(root).unwrap()
        };
        let mut file = nameless();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(b"contents").unwrap();
        let empty = "";
        rustix::fs::linkat(file.as_fd(), empty, CWD, root.join("named"), AtFlags::EMPTY_PATH)
            .unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        drop(file);
        assert_eq!(fs::read(root.join("named")).unwrap(), b"contents");
        drop(nameless());
    });
}

#[test]
fn names_move_and_change_places() {
    require!(Root, Fuse);
    on_mounts(|root, _| {
        let at = |name: &str| root.join(name);
        fs::write(at("a"), "a").unwrap();
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/b"), "b").unwrap();
        let rename = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)
        };
        assert_eq!(rename("a", "d/b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        assert_eq!(rename("a", "x", RenameFlags::EXCHANGE), Err(Errno::NOENT));
        let no_place = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
        assert_eq!(rename("a", "b", no_place), Err(Errno::INVAL));
        rename("a", "d", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(at("d")).unwrap(), b"a");
        assert_eq!(fs::read(at("a/b")).unwrap(), b"b");
        rename("d", "a/b", RenameFlags::empty()).unwrap();
        assert_eq!(fs::read(at("a/b")).unwrap(), b"a");
        assert!(!at("d").exists());
        assert_eq!(rename("a", "a/b", RenameFlags::empty()), Err(Errno::INVAL));
        assert_eq!(errno(fs::remove_dir(at("a")).unwrap_err()), Some(Errno::NOTEMPTY));
        // The working directory of a process is removed, and nothing can be created there any more.
        let dir = File::open(at("a")).unwrap();
        fs::remove_file(at("a/b")).unwrap();
        fs::remove_dir(at("a")).unwrap();
        let made = rustix::fs::mkdirat(&dir, "x", Mode::from_raw_mode(0o755));
        assert_eq!(made, Err(Errno::NOENT));
        assert_eq!(
            errno(fs::create_dir(at(&"n".repeat(256))).unwrap_err()),
            Some(Errno::NAMETOOLONG)
        );
    });
}

#[test]
fn kinds_and_attributes_survive_a_mount() {
    require!(Root, Fuse);
    for image in [NewImage::ext4(), NewImage::xfs()] {
        let times = [(-3, 5), (-2_000_000_000, 999_999_999), (5_000_000_000, 123_456_789)];
        mounted(&image, Options::default(), |root| {
            let at = |name: &str| root.join(name);
            let special = |name: &str, kind, device| {
                rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o600), device)
            };
            special("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)).unwrap();
            special("wide", FileType::BlockDevice, rustix::fs::makedev(259, 0x2_03c5)).unwrap();
            special("fifo", FileType::Fifo, 0).unwrap();
            symlink("to/nowhere", at("link")).unwrap();
            assert_eq!(fs::write(at("null"), "gone").unwrap(), ());
            for (i, (sec, nsec)) in times.into_iter().enumerate() {
                let path = at(&format!("t{i}"));
                fs::write(&path, "x").unwrap();
                let time = Timespec { tv_sec: sec, tv_nsec: nsec };
                let both = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
            }
        });
        mounted(&image, Options::default(), |root| {
            let at = |name: &str| root.join(name);
            let metadata = |name: &str| at(name).symlink_metadata().unwrap();
            assert_eq!(metadata("null").rdev(), rustix::fs::makedev(1, 3));
            assert_eq!(metadata("wide").rdev(), rustix::fs::makedev(259, 0x2_03c5));
            assert!(metadata("wide").file_type().is_block_device());
            assert!(metadata("fifo").file_type().is_fifo());
            assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("to/nowhere"));
            for (i, (sec, nsec)) in times.into_iter().enumerate() {
                let found = metadata(&format!("t{i}"));
                assert_eq!((found.mtime(), found.mtime_nsec()), (sec, nsec));
                assert_eq!((found.atime(), found.atime_nsec()), (sec, nsec));
                assert_eq!((found.mode(), found.blksize()), (0o104_751, 4096));
                let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
                let stat = rustix::fs::statx(CWD, at(&format!("t{i}")), AtFlags::empty(), flags);
                let stat = stat.unwrap();
                let age = found.ctime() - stat.stx_btime.tv_sec;
                assert!(stat.stx_mask & StatxFlags::BTIME.bits() != 0 && (0..60).contains(&age));
            }
        });
        image.judge();
    }
}
