//! Unlinked inodes: a repair frees them, and rebuilds damaged lists.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Ino, NewInode};
use xfs::format::ag::UNLINKED_BUCKETS;
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::{OpenOptions, Xfs};

use super::subject::repaired;
use crate::changing::{assert_clean, seem_finished};
use crate::checking::findings;
use crate::common::image::{device, golden};

/// Byte offset of the list heads in an AGI, and of its checksum.
const BUCKETS: u64 = 2 * 512 + 40;
const AGI_CRC: usize = 312;
const INODES: u64 = 100;
const CONTENTS: &[u8] = b"open when the machine stopped";

/// Makes open unlinked inodes.
fn make_nameless(fs: &Xfs) -> Vec<Ino> {
    let make = |nth: u64| {
        let name = format!("new {nth}");
        let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, 0, CONTENTS, None).unwrap();
        fs.open(ino).unwrap();
        fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
        ino
    };
    let made = (0..INODES).map(make).collect();
    fs.sync().unwrap();
    made
}

/// Returns an image left by a crash with such inodes, which are in its log.
fn crashed() -> MemoryDevice {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    make_nameless(&fs);
    device.fork()
}

/// Returns an image with such inodes and a clean log, with their numbers in the first group.
fn left() -> (MemoryDevice, Vec<u32>) {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_in_progress(device.clone(), 1 << 20).unwrap();
    let geometry = Geometry::new(fs.superblock());
    let in_first = |ino: &Ino| {
        let (ag, ag_ino) = geometry.split_ino(*ino).unwrap();
        (ag.0 == 0).then_some(ag_ino.0)
    };
    let numbers = make_nameless(&fs).iter().filter_map(in_first).collect();
    drop(fs);
    seem_finished(&device);
    (device.fork(), numbers)
}

/// Returns the number of inodes freed when an image is opened writable.
fn freed(device: &MemoryDevice) -> u64 {
    let fs = Xfs::open_writable(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    let freed = fs.freed_at_open();
    fs.close().unwrap();
    freed
}

/// Returns the contents of the files in `lost+found`.
fn found(device: &MemoryDevice) -> Vec<Vec<u8>> {
    let fs = Xfs::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    let Ok(lost) = fs.lookup(fs.root(), b"lost+found") else { return Vec::new() };
    let tree = testkit::fs_tree::FsTree::below(&fs, lost).unwrap();
    let read = |ino| {
        let mut bytes = vec![0; CONTENTS.len()];
        fs.read(ino, 0, &mut bytes).unwrap();
        bytes
    };
    let files =
        tree.inodes.iter().filter(|inode| inode.attributes.file_type != vfs::FileType::Directory);
    files.map(|inode| read(inode.attributes.ino)).collect()
}

#[test]
fn inodes_that_were_open_at_a_crash_are_freed() {
    testkit::require!(Tool("xfs_repair"));
    let image = crashed();
    assert!(findings(Arc::new(image.fork())).unwrap().is_empty(), "a mount frees them");
    assert_eq!(freed(&image), INODES);
    let outcome = repaired(image).unwrap();
    assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
    assert_eq!(freed(&outcome.device), 0);
    assert!(found(&outcome.device).is_empty());
    assert_clean(&outcome.device);
}

#[test]
fn inodes_without_names_beside_a_clean_log_are_freed() {
    testkit::require!(Tool("xfs_repair"));
    let (image, _) = left();
    testkit::show_image(&image, testkit::xfs_repair_alone).expect_err("xfs_repair tells of them");
    let outcome = repaired(image).unwrap();
    assert_eq!(outcome.codes, ["xfs-unlinked-left"]);
    assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
    assert_eq!(freed(&outcome.device), 0);
    assert_clean(&outcome.device);
}

/// Inodes that are not reachable from a list may be damaged ones, and keep their contents.
#[test]
fn lists_are_built_again_and_what_they_lost_is_kept() {
    testkit::require!(Tool("xfs_repair"));
    let (base, numbers) = left();
    for nth in [0, 40, 80] {
        let bucket = u64::from(numbers[nth] % UNLINKED_BUCKETS as u32);
        let of_bucket = |number: &&u32| u64::from(**number % UNLINKED_BUCKETS as u32) == bucket;
        let lost = numbers.iter().filter(of_bucket).count();
        for head in [7_u32, u32::MAX - 1, 128] {
            let damaged = base.fork();
            damaged.write_at(BUCKETS + 4 * bucket, &head.to_be_bytes()).unwrap();
            let mut agi = vec![0; 512];
            damaged.read_at(1024, &mut agi).unwrap();
            checksum::seal(&mut agi, AGI_CRC);
            damaged.write_at(1024, &agi).unwrap();
            let outcome = repaired(damaged).unwrap();
            assert!(outcome.codes.contains(&"xfs-unlinked"), "{:?}", outcome.codes);
            assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
            assert_eq!(freed(&outcome.device), 0);
            assert_eq!(
                found(&outcome.device),
                vec![CONTENTS; lost],
                "bucket {bucket}, head {head}"
            );
            assert_clean(&outcome.device);
        }
    }
}
