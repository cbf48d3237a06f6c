//! Requests about attributes, on both formats. `inheritance` compares with the kernel's own ext4.

use crate::common;

use common::{Caller, NewImage, S_IFREG, on_both};
use fuse::Options;
use linux::abi::{self, Attr, Kstatfs, ROOT_ID, SetattrIn, StatxIn, StatxOut};
use linux::{Errno, Operation};
use vfs::{FileSystem, Ino, SetAttributes, Timestamp};
use zerocopy::FromBytes;

const CAPABILITY: &[u8] = b"security.capability";
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

fn setattr(valid: u32) -> SetattrIn {
    SetattrIn { valid, ..SetattrIn::default() }
}

fn chmod(mode: u32) -> SetattrIn {
    SetattrIn { mode, ..setattr(abi::FATTR_MODE) }
}

fn truncate(size: u64, also: u32) -> SetattrIn {
    SetattrIn { size, ..setattr(abi::FATTR_SIZE | also) }
}

/// Times of an inode: access, modification and change.
fn times(attr: &Attr) -> [(i64, u32); 3] {
    [
        (attr.atime as i64, attr.atimensec),
        (attr.mtime as i64, attr.mtimensec),
        (attr.ctime as i64, attr.ctimensec),
    ]
}

/// Sets all times of an inode to these values, to detect which are updated later.
fn age(fs: &dyn FileSystem, node: u64) {
    let old = Some(Timestamp { sec: 1_000_000, nsec: 1 });
    let change = SetAttributes { atime: old, mtime: old, ctime: old, ..SetAttributes::default() };
    fs.set_attributes(Ino(node), &change).unwrap();
}

/// Returns the times of an inode that differ from those of [`age`].
fn renewed(attr: &Attr) -> [bool; 3] {
    times(attr).map(|(sec, _)| sec != 1_000_000)
}

#[test]
fn a_new_inode_is_its_callers_and_of_now() {
    on_both(|image| {
        let caller = Caller { uid: 1000, gid: 70_000, umask: 0o26, ..Caller::new(image) };
        age(image.fs(), image.fs().root().0);
        let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
        let before = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let made = [
            caller.mknod(ROOT_ID, "file", S_IFREG | 0o6777, 0).unwrap(),
            caller.mkdir(ROOT_ID, "dir", 0o1777).unwrap(),
            caller.mknod(ROOT_ID, "fifo", 0o010_666, 0).unwrap(),
            caller.symlink(ROOT_ID, "link", "x").unwrap(),
        ];
        let modes = made.map(|entry| entry.attr.mode);
        assert_eq!(modes, [0o106_751, 0o041_751, 0o010_640, 0o120_777]);
        for entry in made {
            let attr = entry.attr;
            assert_eq!((attr.uid, attr.gid, attr.blksize), (1000, 70_000, 4096));
            assert!(attr.atime >= before && times(&attr) == [times(&attr)[0]; 3]);
            assert_eq!(caller.attr(entry.nodeid), Ok(attr));
        }
        assert_eq!(renewed(&caller.attr(ROOT_ID).unwrap()), [false, true, true]);
    });
}

#[test]
fn a_set_group_id_directory_passes_its_group_on() {
    on_both(|image| {
        let caller = Caller { uid: 5, gid: 6, ..Caller::new(image) };
        let dir = caller.mkdir(ROOT_ID, "dir", 0o755).unwrap().nodeid;
        let owner = SetattrIn { gid: 77, ..setattr(abi::FATTR_GID) };
        caller.setattr(dir, owner).unwrap();
        assert_eq!(caller.setattr(dir, chmod(0o2755)).unwrap().mode, 0o042_755);
        let made = [
            caller.create(dir, "file"),
            caller.mkdir(dir, "below", 0o700).unwrap(),
            caller.symlink(dir, "link", "x").unwrap(),
            caller.tmpfile(dir, 0o600).unwrap(),
            caller.mknod(dir, "device", 0o060_600, 7).unwrap(),
        ];
        assert!(made.iter().all(|entry| (entry.attr.uid, entry.attr.gid) == (5, 77)));
        let modes = made.map(|entry| entry.attr.mode);
        assert_eq!(modes, [0o100_644, 0o042_700, 0o120_777, 0o100_600, 0o060_600]);
    });
}

#[test]
fn owners_may_be_stored_and_shown_otherwise() {
    on_both(|image| {
        let stored = Options { owner: Some((10, 20)), ..Options::default() };
        let caller = Caller { uid: 5, gid: 6, ..Caller::with(image, stored) };
        let file = caller.create(ROOT_ID, "file");
        assert_eq!((file.attr.uid, file.attr.gid), (10, 20));
        drop(caller);
        let shown = Options { uid: Some(1), gid: Some(2), ..Options::default() };
        let caller = Caller::with(image, shown);
        let file = caller.lookup(ROOT_ID, "file").unwrap();
        assert_eq!((file.attr.uid, file.attr.gid), (1, 2));
        let stat = statx(&caller, file.nodeid);
        assert_eq!((stat.uid, stat.gid), (1, 2));
        assert_eq!(image.fs().attributes(Ino(file.nodeid)).unwrap().uid, 10);
    });
}

fn statx(caller: &Caller<'_>, node: u64) -> abi::Statx {
    let answer = caller.ask(node, Operation::Statx(StatxIn::default())).unwrap();
    let answer = StatxOut::read_from_bytes(&answer).unwrap();
    let may_get_space = answer.stat.mode & 0o170_000 == S_IFREG as u16 && answer.stat.blocks == 0;
    assert_eq!(answer.attr_valid <= 1, may_get_space);
    answer.stat
}

#[test]
fn statx_returns_the_creation_time() {
    on_both(|image| {
        let caller = Caller { uid: 1, gid: 2, ..Caller::new(image) };
        let node = caller.mknod(ROOT_ID, "device", 0o020_604, 0x1_0307).unwrap().nodeid;
        let birth = image.fs().attributes(Ino(node)).unwrap().crtime.unwrap();
        let old = SetattrIn { mtime: -5_i64 as u64, mtimensec: 7, ..setattr(abi::FATTR_MTIME) };
        let attr = caller.setattr(node, old).unwrap();
        let stat = statx(&caller, node);
        assert_eq!(stat.mask, STATX_BASIC_STATS | STATX_BTIME);
        assert_eq!((stat.btime.tv_sec, stat.btime.tv_nsec), (birth.sec, birth.nsec));
        assert_eq!((stat.mtime.tv_sec, stat.mtime.tv_nsec), (-5, 7));
        assert_eq!((stat.atime.tv_sec, stat.atime.tv_nsec), times(&attr)[0]);
        assert_eq!((stat.ctime.tv_sec, stat.ctime.tv_nsec), times(&attr)[2]);
        assert_eq!((stat.rdev_major, stat.rdev_minor), (259, 7));
        assert_eq!((stat.mode, stat.nlink, stat.uid, stat.gid), (0o020_604, 1, 1, 2));
        assert_eq!((stat.ino, stat.size, stat.blocks), (node, 0, attr.blocks));
        let root = statx(&caller, ROOT_ID);
        assert_eq!((root.ino, root.blksize), (image.fs().root().0, 4096));
    });
}

#[test]
fn totals_are_the_file_systems() {
    on_both(|image| {
        let answer = Caller::new(image).ask(ROOT_ID, Operation::Statfs).unwrap();
        let totals = Kstatfs::read_from_bytes(&answer).unwrap();
        let expected = image.fs().statfs().unwrap();
        assert_eq!((totals.bsize, totals.frsize, totals.namelen), (4096, 4096, 255));
        assert_eq!((totals.blocks, totals.bfree), (expected.blocks, expected.blocks_free));
        assert_eq!((totals.files, totals.ffree), (expected.inodes, expected.inodes_free));
        assert_eq!(totals.bavail, expected.blocks_available);
    });
}

#[test]
fn times_keep_their_nanoseconds_before_1970_and_after_2038() {
    on_both(|image| {
        let caller = Caller::new(image);
        let node = caller.create(ROOT_ID, "file").nodeid;
        let explicit = abi::FATTR_ATIME | abi::FATTR_MTIME | abi::FATTR_CTIME;
        for (sec, nsec) in
            [(0, 0), (-1, 999_999_999), (-2_000_000_000, 1), (2_147_483_648, 123_456_789)]
        {
            for (sec, nsec) in [(sec, nsec), (sec + 8_000_000_000, nsec)] {
                let args = SetattrIn {
                    atime: sec as u64,
                    atimensec: nsec,
                    mtime: (sec + 1) as u64,
                    mtimensec: nsec,
                    ctime: (sec + 2) as u64,
                    ctimensec: nsec,
                    ..setattr(explicit)
                };
                let attr = caller.setattr(node, args).unwrap();
                assert_eq!(times(&attr), [(sec, nsec), (sec + 1, nsec), (sec + 2, nsec)]);
                assert_eq!(caller.attr(node), Ok(attr));
            }
        }
        let before = caller.attr(node).unwrap();
        for args in [
            SetattrIn { atimensec: 1_000_000_000, ..setattr(abi::FATTR_ATIME) },
            SetattrIn {
                mtimensec: u32::MAX,
                size: 9,
                ..setattr(abi::FATTR_MTIME | abi::FATTR_SIZE)
            },
        ] {
            assert_eq!(caller.setattr(node, args), Err(Errno::INVAL));
        }
        assert_eq!(caller.attr(node), Ok(before));
        // Later than the maximum of any format: the times are clamped.
        let late = SetattrIn { mtime: i64::MAX as u64, ..setattr(abi::FATTR_MTIME) };
        assert!(caller.setattr(node, late).unwrap().mtime > 1 << 33);
    });
}

#[test]
fn changes_set_the_times_that_go_with_them() {
    on_both(|image| {
        let caller = Caller::new(image);
        let node = caller.create(ROOT_ID, "file").nodeid;
        let now = abi::FATTR_ATIME | abi::FATTR_ATIME_NOW;
        let given = abi::FATTR_MTIME | abi::FATTR_CTIME;
        let [no, yes] = [false, true];
        for (args, expected) in [
            (chmod(0o600), [no, no, yes]),
            (SetattrIn { uid: 3, ..setattr(abi::FATTR_UID) }, [no, no, yes]),
            (truncate(100, 0), [no, yes, yes]),
            (truncate(100, 0), [no, yes, yes]),
            (setattr(now), [yes, no, yes]),
            (setattr(abi::FATTR_MTIME | abi::FATTR_MTIME_NOW), [no, yes, yes]),
            (setattr(given), [no, yes, yes]),
            (setattr(abi::FATTR_FH | abi::FATTR_LOCKOWNER), [no, no, no]),
        ] {
            age(image.fs(), node);
            let attr = caller.setattr(node, args).unwrap();
            assert_eq!(renewed(&attr), expected, "{args:?}");
            if args.valid == given {
                assert_eq!(times(&attr)[1..], [(0, 0); 2]);
            }
        }
        let attr = caller.attr(node).unwrap();
        assert_eq!((attr.mode, attr.uid, attr.size), (0o100_600, 3, 100));
    });
}

#[test]
fn a_size_that_cannot_be_changes_nothing_else() {
    on_both(|image| {
        let caller = Caller::new(image);
        let node = caller.create(ROOT_ID, "file").nodeid;
        let fifo = caller.mknod(ROOT_ID, "fifo", 0o010_644, 0).unwrap().nodeid;
        for (node, size) in [(node, u64::MAX), (node, 1 << 63), (fifo, 1), (ROOT_ID, 0)] {
            let before = caller.attr(node).unwrap();
            let args = SetattrIn {
                mode: 0o777,
                uid: 9,
                ..truncate(size, abi::FATTR_MODE | abi::FATTR_UID)
            };
            assert!(caller.setattr(node, args).is_err());
            assert_eq!(caller.attr(node), Ok(before));
        }
        assert!(caller.setattr(77_777, chmod(0)).is_err());
    });
}

#[test]
fn set_id_bits_and_capabilities_go_with_owner_and_contents() {
    on_both(|image| {
        let caller = Caller::new(image);
        let file = caller.create(ROOT_ID, "file").nodeid;
        let dir = caller.mkdir(ROOT_ID, "dir", 0o755).unwrap().nodeid;
        let [uid, gid] = [setattr(abi::FATTR_UID), setattr(abi::FATTR_GID)];
        let resize = truncate(5, 0);
        let resize_by_other = truncate(5, abi::FATTR_KILL_SUIDGID);
        for (mode, reduced) in [
            (0o6755, 0o755),
            (0o6745, 0o2745),
            (0o4000, 0),
            (0o2010, 0o010),
            (0o2707, 0o2707),
            (0o1777, 0o1777),
        ] {
            for (args, expected) in
                [(uid, reduced), (gid, reduced), (resize_by_other, reduced), (resize, mode)]
            {
                caller.setattr(file, chmod(mode)).unwrap();
                image.fs().set_xattr(Ino(file), CAPABILITY, &[1; 20]).unwrap();
                let attr = caller.setattr(file, args).unwrap();
                assert_eq!(attr.mode, S_IFREG | expected, "{args:?} of {mode:o}");
                assert!(image.fs().get_xattr(Ino(file), CAPABILITY).is_err());
            }
            // On a directory these bits have another meaning.
            caller.setattr(dir, chmod(mode)).unwrap();
            assert_eq!(caller.setattr(dir, uid).unwrap().mode, 0o040_000 | mode);
        }
        // A given mode is used unchanged, and neither it nor times remove capabilities.
        image.fs().set_xattr(Ino(file), CAPABILITY, &[1; 20]).unwrap();
        caller.setattr(file, chmod(0o4711)).unwrap();
        caller.setattr(file, setattr(abi::FATTR_MTIME_NOW)).unwrap();
        assert!(image.fs().get_xattr(Ino(file), CAPABILITY).is_ok());
        let both = SetattrIn { mode: 0o6711, ..setattr(abi::FATTR_MODE | abi::FATTR_GID) };
        assert_eq!(caller.setattr(file, both).unwrap().mode, 0o106_711);
    });
}

#[test]
fn a_damaged_list_causes_no_panic() {
    let image = NewImage::ext4();
    let caller = Caller::new(&image);
    let dir = caller.mkdir(ROOT_ID, "dir", 0o755).unwrap().nodeid;
    // Two owners and no others: an invalid list, which the format stores all the same.
    let entry = [1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff];
    let value = [&[2, 0, 0, 0][..], &entry, &entry].concat();
    for name in [&b"system.posix_acl_default"[..], b"system.posix_acl_access"] {
        image.fs().set_xattr(Ino(dir), name, &value).unwrap();
    }
    assert_eq!(caller.mknod(dir, "file", S_IFREG, 0), Err(Errno::INVAL));
    assert_eq!(caller.mkdir(dir, "file", 0), Err(Errno::INVAL));
    assert_eq!(caller.setattr(dir, chmod(0o700)), Err(Errno::INVAL));
    assert_eq!(caller.find(dir, "file"), None);
    assert!(caller.symlink(dir, "file", "x").is_ok());
}
