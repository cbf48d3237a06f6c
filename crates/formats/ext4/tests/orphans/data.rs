//! Files with contents: their blocks are freed with them, at once or in steps, and a failed step loses nothing.

use std::sync::Arc;

use disk::{Access, BlockDevice, Fault, FaultyDevice, MemoryDevice};
use ext4::{Ext4, OpenOptions, OrphanPolicy, OrphanReport};
use testkit::{KernelMount, MountOptions, require};
use vfs::{Error, FileSystem, Ino, RenameMode};

use super::{KINDS, OrphanImage, assert_sound, close, new_file, orphan, preen};

const POLICIES: [OrphanPolicy; 4] =
    [OrphanPolicy::WhenNeeded, OrphanPolicy::Always, OrphanPolicy::ListOnly, OrphanPolicy::Off];

/// More runs than one operation frees.
const MANY_RUNS: u64 = 1500;

/// Writes every second block of a file.
fn write_runs(fs: &Ext4, ino: Ino, runs: u64) {
    let block = vec![0xab; fs.superblock().block_size() as usize];
    for run in 0..runs {
        fs.write(ino, run * 2 * block.len() as u64, &block, None).unwrap();
    }
}

#[test]
fn removing_the_last_name_frees_all_blocks_of_an_inode() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (kind, arguments) in KINDS {
        for policy in POLICIES {
            let image = OrphanImage::new(arguments);
            let free = (image.free_blocks(), image.free_inodes());
            let fs = image.try_open(policy).unwrap();
            let root = fs.root();
            for name in [b"small", b"large", b"other", b"taken"] {
                let ino = fs.create(root, name, &new_file()).unwrap();
                fs.set_xattr(ino, b"user.large", &[7; 900]).unwrap();
                write_runs(&fs, ino, if name == b"large" { MANY_RUNS } else { 3 });
            }
            let target = vec![b't'; 200];
            fs.symlink(root, b"symlink", &target, &new_file()).unwrap();
            fs.mkdir(root, b"directory", &new_file()).unwrap();
            fs.rename((root, b"other"), (root, b"taken"), RenameMode::Replace, None).unwrap();
            for name in [&b"small"[..], b"large", b"taken", b"symlink"] {
                fs.unlink(root, name, None).unwrap();
            }
            fs.rmdir(root, b"directory", None).unwrap();
            fs.sync().unwrap();
            let copy = image.copy();
            copy.replay();
            assert!(!testkit::debugfs(&copy.path, "stats").contains("First orphan inode"));
            fs.close().unwrap();
            testkit::e2fsck(&image.path);
            assert_eq!((image.free_blocks(), image.free_inodes()), free, "{kind}, {policy:?}");
        }
    }
}

#[test]
fn open_files_keep_their_contents() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (_, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let free = image.free_blocks();
        let fs = image.open();
        let root = fs.root();
        let ino = fs.create(root, b"file", &new_file()).unwrap();
        let over = fs.create(root, b"over", &new_file()).unwrap();
        let dir = fs.mkdir(root, b"dir", &new_file()).unwrap();
        fs.open(dir).unwrap();
        fs.open(over).unwrap();
        fs.open(ino).unwrap();
        fs.open(ino).unwrap();
        fs.write(ino, 10, b"contents", None).unwrap();
        fs.rename((root, b"over"), (root, b"file"), RenameMode::Replace, None).unwrap();
        fs.unlink(root, b"file", None).unwrap();
        fs.rmdir(root, b"dir", None).unwrap();
        assert!(matches!(fs.lookup(root, b"file"), Err(Error::NotFound)));
        assert!(matches!(fs.create(dir, b"in", &new_file()), Err(Error::NotFound)));
        close(&fs, ino).unwrap();
        fs.write(ino, 18, b" and more", None).unwrap();
        let mut bytes = [0; 17];
        assert_eq!(fs.read(ino, 10, &mut bytes).unwrap(), 17);
        assert_eq!(&bytes, b"contents and more");
        for left in [ino, over, dir] {
            close(&fs, left).unwrap();
            assert!(matches!(fs.attributes(left), Err(Error::NotFound)));
        }
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        assert_eq!(image.free_blocks(), free);
    }
}

#[test]
fn values_in_inodes_of_their_own_go_too() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = OrphanImage::new(&["-O", "ea_inode,orphan_file"]);
    let free = (image.free_blocks(), image.free_inodes());
    let fs = image.open();
    let ino = fs.create(fs.root(), b"file", &new_file()).unwrap();
    fs.set_xattr(ino, b"user.huge", &[9; 30_000]).unwrap();
    let open = orphan(&fs);
    fs.set_xattr(open, b"user.huge", &[8; 30_000]).unwrap();
    fs.unlink(fs.root(), b"file", None).unwrap();
    close(&fs, open).unwrap();
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
    assert_eq!((image.free_blocks(), image.free_inodes()), free);
}

/// Result of a change on a failing device.
struct Interrupted {
    image: OrphanImage,
    ino: Ino,
    outcome: Result<(), Error>,
    /// Number of device reads during the change.
    reads: u64,
}

/// Creates an image with a file of many runs, on a device that fails from read `fault` of `change` on and recovers
/// before `healed`. Stores the state as after a machine crash.
fn interrupted(
    arguments: &[&str],
    fault: u64,
    change: impl FnOnce(&Ext4, Ino) -> Result<(), Error>,
    healed: impl FnOnce(&Ext4, Ino),
) -> Interrupted {
    let image = OrphanImage::new(arguments);
    let fs = image.open();
    let ino = fs.create(fs.root(), b"file", &new_file()).unwrap();
    write_runs(&fs, ino, MANY_RUNS);
    fs.close().unwrap();
    let mut bytes = std::fs::read(&image.path).unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let device = Arc::new(FaultyDevice::new(memory.clone()));
    let options = OpenOptions { cache_bytes: 1 << 16, ..OpenOptions::default() };
    let fs = Ext4::open_writable(device.clone(), &options).unwrap();
    device.set(Access::Read, Fault::From(fault));
    let outcome = change(&fs, ino);
    let reads = device.count(Access::Read);
    device.set(Access::Read, Fault::Never);
    healed(&fs, ino);
    fs.sync().unwrap();
    drop(fs);
    memory.read_at(0, &mut bytes).unwrap();
    std::fs::write(&image.path, bytes).unwrap();
    Interrupted { image, ino, outcome, reads }
}

/// Returns the reads of `change` at which the device is to start failing, spread over the whole change.
fn faults(
    arguments: &[&str],
    change: impl FnOnce(&Ext4, Ino) -> Result<(), Error>,
) -> impl Iterator<Item = u64> {
    let whole = interrupted(arguments, u64::MAX, change, |_, _| ());
    whole.outcome.unwrap();
    (1..=6).map(move |part| whole.reads * part / 6)
}

#[test]
fn an_unlink_that_stops_half_way_is_ended_later() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let mut halves = 0;
    for (_, arguments) in KINDS {
        let unlink = |fs: &Ext4, _| fs.unlink(fs.root(), b"file", None);
        for fault in faults(arguments, unlink) {
            let Interrupted { image, outcome, .. } =
                interrupted(arguments, fault, unlink, |_, _| ());
            let copies = [image.copy(), image.copy()];
            let fs = image.open();
            assert_eq!(fs.lookup(fs.root(), b"file").is_ok(), outcome.is_err());
            let freed = fs.cleaned_orphans().freed;
            assert!(freed == 0 || outcome.is_ok());
            fs.close().unwrap();
            testkit::e2fsck(&image.path);
            if freed == 1 {
                halves += 1;
                let said = preen(&copies[0].path);
                assert!(said.contains("Clearing orphaned inode"), "{said}");
                KernelMount::new(&copies[1].path, &MountOptions::read_write("ext4")).unmount();
                assert_sound(&copies[1].path);
                // The extent trees may be larger than necessary.
                let more = image.free_blocks() - copies[1].free_blocks();
                assert!(more < 4, "{more}");
            }
        }
    }
    assert!(halves > 0, "no unlink was caught half way");
}

#[test]
fn a_truncation_that_stops_half_way_is_ended_later() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let mut halves = 0;
    for (_, arguments) in KINDS {
        let cut = |fs: &Ext4, ino| fs.truncate(ino, 5000, None);
        for fault in faults(arguments, cut) {
            let Interrupted { image, ino, outcome, .. } =
                interrupted(arguments, fault, cut, |_, _| ());
            let copies = [image.copy(), image.copy()];
            let fs = image.open();
            let truncated = fs.cleaned_orphans().truncated;
            assert_eq!(fs.attributes(ino).unwrap().size == 5000, outcome.is_ok());
            assert!(truncated == 0 || outcome.is_ok());
            fs.close().unwrap();
            testkit::e2fsck(&image.path);
            if truncated == 1 {
                halves += 1;
                let said = preen(&copies[0].path);
                assert!(said.contains("Truncating orphaned inode"), "{said}");
                KernelMount::new(&copies[1].path, &MountOptions::read_write("ext4")).unmount();
                assert_sound(&copies[1].path);
                // The extent trees may be larger than necessary.
                let more = image.free_blocks() - copies[1].free_blocks();
                assert!(more < 4, "{more}");
            }
        }
    }
    assert!(halves > 0, "no truncation was caught half way");
}

#[test]
fn truncated_data_does_not_reappear() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let old_past = |fs: &Ext4, ino| {
        let mut bytes = vec![1; 100_000];
        let len = fs.read(ino, 0, &mut bytes).unwrap();
        assert_eq!(len, 100_000);
        bytes[5000..99_999].iter().filter(|&&byte| byte != 0).count()
    };
    let mut resumed = 0;
    let cut = |fs: &Ext4, ino| fs.truncate(ino, 5000, None);
    let grow = |fs: &Ext4, ino| fs.write(ino, 99_999, b"x", None).unwrap();
    for fault in faults(KINDS[0].1, cut) {
        // The file grows in the next session, or in the one in which the device failed.
        let Interrupted { image, ino, outcome, .. } =
            interrupted(KINDS[0].1, fault, cut, |_, _| ());
        let Interrupted { image: same, .. } = interrupted(KINDS[0].1, fault, cut, |fs, ino| {
            if fs.attributes(ino).unwrap().size == 5000 {
                grow(fs, ino);
            }
        });
        if outcome.is_err() {
            continue;
        }
        let fs = image.open();
        resumed += fs.cleaned_orphans().truncated;
        grow(&fs, ino);
        assert_eq!(old_past(&fs, ino), 0);
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        let fs = same.open();
        assert_eq!(fs.cleaned_orphans(), OrphanReport::default());
        assert_eq!(old_past(&fs, ino), 0);
        fs.close().unwrap();
        testkit::e2fsck(&same.path);
    }
    assert!(resumed > 0);
}
