//! Files that wait in memory before they are entered into their directory: everybody sees them as if they did not.

mod durable;
mod failing;
mod random;
mod threads;

use std::sync::Arc;

use blockdev::{Event, MemoryDevice, RecordingDevice};
use ext4::{Ext4, WaitingPolicy};
use oracle::require;
use vfs::{Attributes, Error, FileSystem, Ino, SetAttributes};

use crate::changing::{Layout, MIB, assert_clean, open_with};
use crate::names::common::{NEW, entries, later};

/// Files wait in each directory that has an index, and few at a time.
pub(crate) const SOON: WaitingPolicy =
    WaitingPolicy { blocks_min: 2, streak_per_block: 0, files_max: 60, parts: 4 };

/// As many wait as there are.
const ALL: WaitingPolicy = WaitingPolicy { files_max: usize::MAX, ..SOON };

const ROOMY: Layout = Layout { size: 64 * MIB, inodes: 4096, ..Layout::DEFAULT };

fn name(number: u32) -> Vec<u8> {
    format!("a file of some length, number {number}").into_bytes()
}

/// A file system, and a directory with an index in which 200 files do not wait and 100 do.
fn filled(policy: WaitingPolicy) -> (Arc<MemoryDevice>, Ext4, Ino) {
    let device = Arc::new(ROOMY.make());
    let fs = open_with(device.clone(), 8 << 20, Some(policy)).unwrap();
    let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
    for number in 0..200 {
        fs.create(dir, &name(number), &NEW).unwrap();
    }
    fs.sync().unwrap();
    assert_eq!(fs.files_waiting(), 0);
    for number in 200..300 {
        fs.create(dir, &name(number), &NEW).unwrap();
    }
    (device, fs, dir)
}

fn close(device: &MemoryDevice, fs: Ext4) {
    fs.close().unwrap();
    assert_clean(device);
}

/// What somebody sees who opens the image as it would be after a crash.
fn after_crash(device: &MemoryDevice) -> (Arc<MemoryDevice>, Ext4, Ino) {
    let device = Arc::new(device.fork());
    let fs = open_with(device.clone(), 8 << 20, None).unwrap();
    let dir = fs.lookup(fs.root(), b"d").unwrap();
    (device, fs, dir)
}

#[test]
fn files_that_wait_are_seen() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    assert_eq!(fs.files_waiting(), 100);
    let ino = fs.lookup(dir, &name(250)).unwrap();
    let Attributes { permissions, links, size, uid, mtime, .. } = fs.attributes(ino).unwrap();
    assert_eq!((permissions, links, size, uid, mtime), (0o755, 1, 0, 1, NEW.time));
    assert!(matches!(fs.create(dir, &name(250), &NEW), Err(Error::Exists)));
    assert!(matches!(fs.create(dir, &name(50), &NEW), Err(Error::Exists)));
    assert!(matches!(fs.lookup(dir, b"another"), Err(Error::NotFound)));
    fs.open(ino).unwrap();
    FileSystem::close(&fs, ino).unwrap();
    assert_eq!(fs.files_waiting(), 100);
    let all = entries(&fs, dir);
    assert_eq!((all.len(), fs.files_waiting()), (300, 0));
    assert!(all.iter().any(|(found, of)| *found == name(250) && *of == ino));
    close(&device, fs);
}

#[test]
fn counts_and_times_are_those_with_files_that_wait() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    let before = fs.statfs().unwrap().inodes_free;
    let new = vfs::NewInode { parent_time: later(9), ..NEW };
    fs.create(dir, b"one more", &new).unwrap();
    assert_eq!(fs.files_waiting(), 101);
    assert_eq!(fs.statfs().unwrap().inodes_free, before - 1);
    assert_eq!(Some(fs.attributes(dir).unwrap().mtime), later(9));
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().inodes_free, before - 1);
    assert_eq!(Some(fs.attributes(dir).unwrap().mtime), later(9));
    close(&device, fs);
}

#[test]
fn what_is_done_to_one_file_applies_that_one() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    let ino = |number| fs.lookup(dir, &name(number)).unwrap();
    fs.write(ino(210), 0, b"contents", None).unwrap();
    assert_eq!(fs.files_waiting(), 99);
    fs.set_attributes(ino(211), &SetAttributes { permissions: Some(0o600), ..Default::default() })
        .unwrap();
    assert_eq!(fs.files_waiting(), 98);
    fs.set_xattr(ino(212), b"user.a", b"b").unwrap();
    assert_eq!(fs.files_waiting(), 97);
    let root = fs.root();
    fs.link(ino(213), root, b"linked", None).unwrap();
    assert_eq!(fs.files_waiting(), 96);
    assert_eq!(fs.read(ino(215), 0, &mut [0; 10]).unwrap(), 0);
    assert!(!fs.read_in_place(ino(216), 0, 10, &mut |_| ()).unwrap());
    assert_eq!(fs.files_waiting(), 94);
    fs.unlink(dir, &name(214), None).unwrap();
    assert_eq!(fs.files_waiting(), 0);
    assert!(matches!(fs.lookup(dir, &name(214)), Err(Error::NotFound)));
    assert_eq!(entries(&fs, dir).len(), 299);
    close(&device, fs);
}

#[test]
fn what_was_made_durable_is_there_after_a_crash_and_each_other_file_wholly_or_not() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    let ino = fs.lookup(dir, &name(222)).unwrap();
    fs.write(ino, 0, b"x", None).unwrap();
    let (crashed, recovered, found) = after_crash(&device);
    assert_eq!(entries(&recovered, found).len(), 200);
    close(&crashed, recovered);
    fs.fsync(ino).unwrap();
    let (crashed, recovered, found) = after_crash(&device);
    assert_eq!(entries(&recovered, found).len(), 300);
    close(&crashed, recovered);
    close(&device, fs);
}

#[test]
fn few_wait_at_a_time() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(SOON);
    for number in 300..1500 {
        fs.create(dir, &name(number), &NEW).unwrap();
        assert!(fs.files_waiting() <= SOON.files_max);
    }
    assert!(fs.files_waiting() > 0);
    for number in 0..1500 {
        fs.lookup(dir, &name(number)).unwrap();
    }
    assert_eq!(entries(&fs, dir).len(), 1500);
    close(&device, fs);
}

/// The time of a file that waited is not that of one which leaves its directory's times alone.
#[test]
fn times_of_a_directory_are_those_of_what_was_done_last() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    let times = |fs: &Ext4| fs.attributes(dir).map(|a| (Some(a.mtime), Some(a.ctime))).unwrap();
    let create = |name: &[u8], parent_time| {
        let before = fs.files_waiting();
        fs.create(dir, name, &vfs::NewInode { parent_time, ..NEW }).unwrap();
        assert_eq!(fs.files_waiting(), before + 1);
    };
    create(b"first", later(9));
    create(b"second", None);
    assert_eq!(times(&fs), (later(9), later(9)));
    fs.unlink(dir, b"first", later(10)).unwrap();
    create(b"third", None);
    assert_eq!(times(&fs), (later(10), later(10)));
    fs.sync().unwrap();
    assert_eq!(times(&fs), (later(10), later(10)));
    // One is applied before those that were made earlier.
    create(b"fourth", later(11));
    create(b"fifth", later(12));
    create(b"sixth", None);
    fs.write(fs.lookup(dir, b"sixth").unwrap(), 0, b"x", later(20)).unwrap();
    assert_eq!(times(&fs), (later(12), later(12)));
    fs.set_attributes(dir, &SetAttributes { mtime: later(2), ..Default::default() }).unwrap();
    create(b"seventh", None);
    assert_eq!(times(&fs).0, later(2));
    fs.sync().unwrap();
    assert_eq!(times(&fs).0, later(2));
    close(&device, fs);
}

/// Its entries went, but not its blocks.
#[test]
fn a_directory_with_files_that_wait_is_not_empty() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    for number in 0..300 {
        fs.unlink(dir, &name(number), None).unwrap();
    }
    fs.create(dir, b"waits", &NEW).unwrap();
    assert_eq!(fs.files_waiting(), 1);
    assert!(matches!(fs.rmdir(fs.root(), b"d", None), Err(Error::NotEmpty)));
    fs.mkdir(fs.root(), b"e", &NEW).unwrap();
    let over = fs.rename((fs.root(), b"e"), (fs.root(), b"d"), vfs::RenameMode::Replace, None);
    assert!(matches!(over, Err(Error::NotEmpty)));
    fs.unlink(dir, b"waits", None).unwrap();
    fs.rmdir(fs.root(), b"d", None).unwrap();
    close(&device, fs);
}

/// Nobody else gets an inode that is kept, and all can be used.
#[test]
fn every_inode_can_be_had_once() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    let mut inodes = std::collections::BTreeSet::new();
    for number in 300.. {
        let made = match number % 3 {
            0 => fs.symlink(fs.root(), &name(number), b"x", &NEW),
            _ => fs.create(dir, &name(number), &NEW),
        };
        match made {
            Ok(ino) => assert!(inodes.insert(ino), "{ino} twice"),
            Err(Error::NoInodes) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(fs.statfs().unwrap().inodes_free, 0);
    close(&device, fs);
}

/// The time of its move is not overtaken by those of files that waited.
#[test]
fn a_directory_in_which_files_wait_can_be_moved() {
    require!(Tool("e2fsck"));
    let (device, fs, dir) = filled(ALL);
    let root = fs.root();
    fs.rename((root, b"d"), (root, b"e"), vfs::RenameMode::NoReplace, later(9)).unwrap();
    let times = |fs: &Ext4| fs.attributes(dir).map(|a| (a.mtime, Some(a.ctime))).unwrap();
    assert_eq!(times(&fs), (NEW.time, later(9)));
    fs.create(dir, &name(300), &NEW).unwrap();
    fs.mkdir(root, b"d", &NEW).unwrap();
    fs.rename((root, b"d"), (root, b"e"), vfs::RenameMode::Exchange, later(10)).unwrap();
    assert_eq!(times(&fs), (NEW.time, later(10)));
    fs.sync().unwrap();
    assert_eq!(times(&fs), (NEW.time, later(10)));
    close(&device, fs);
}

/// Others leave the inode table as the device was, and mark how far it is in use.
#[test]
fn nothing_waits_where_the_inode_table_is_not_zero() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let folder = oracle::scratch();
    let path = folder.path().join("image");
    let lazy = ["-E", "lazy_itable_init=1,nodiscard", "-N", "4096"];
    oracle::Mke2fs::new("ext4").block_size(1024).arguments(lazy).create(&path, 64 * MIB);
    let device = Arc::new(oracle::crash::read_image(&path).unwrap());
    let fs = open_with(device.clone(), 8 << 20, Some(ALL)).unwrap();
    let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
    for number in 0..300 {
        fs.create(dir, &name(number), &NEW).unwrap();
        assert_eq!(fs.files_waiting(), 0);
    }
    assert_eq!(entries(&fs, dir).len(), 300);
    close(&device, fs);
}

/// What is found after a crash: all files made before the last sync, and of the others any, each as it was made.
#[test]
fn files_come_in_any_order_after_a_crash_and_each_wholly() {
    require!(Tool("e2fsck"));
    let policy = WaitingPolicy { files_max: 400, parts: 8, ..SOON };
    let layout = Layout { block_size: 1024, journal_bytes: Some(MIB), ..ROOMY };
    let base = layout.make();
    let recording = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let fs = open_with(recording.clone(), 256 << 10, Some(policy)).unwrap();
    let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
    let create = |number| assert!(fs.create(dir, &name(number), &NEW).is_ok());
    (0..300).for_each(create);
    fs.sync().unwrap();
    let synced = recording.event_count();
    (300..3_300).for_each(create);
    let events = recording.take();
    let flushes = (synced..events.len()).filter(|&at| events[at] == Event::Flush);
    let ends: Vec<usize> = flushes.chain([events.len()]).collect();
    assert!(ends.len() > 4, "{} flushes", ends.len());
    let mut is_out_of_order = false;
    for &end in ends.iter().step_by(ends.len().div_ceil(8)) {
        let image = base.fork();
        events[..end].iter().for_each(|event| event.replay(&image).unwrap());
        let (crashed, recovered, found) = after_crash(&image);
        let there: Vec<bool> =
            (0..3_300).map(|number| recovered.lookup(found, &name(number)).is_ok()).collect();
        assert!(there[..300].iter().all(|&is_there| is_there));
        assert_eq!(entries(&recovered, found).len(), there.iter().filter(|&&t| t).count());
        for number in (0..3_300).filter(|&number| there[number as usize]) {
            let ino = recovered.lookup(found, &name(number)).unwrap();
            let Attributes { permissions, links, size, mtime, .. } =
                recovered.attributes(ino).unwrap();
            assert_eq!((permissions, links, size, mtime), (0o755, 1, 0, NEW.time));
        }
        is_out_of_order |= there.windows(2).any(|two| two == [false, true]);
        close(&crashed, recovered);
    }
    assert!(is_out_of_order, "nothing waited");
}
