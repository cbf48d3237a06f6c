//! Inodes in use that have no name: their lists are made anew where they are damaged.

use std::sync::Arc;

use blockdev::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, NewInode};
use xfs::format::checksum;
use xfs::{OpenOptions, Xfs};

use super::subject::repaired;
use crate::checking::findings;
use crate::common::image::{device, golden};

/// First byte of the heads of the lists in an AGI, and of its checksum.
const BUCKETS: u64 = 2 * 512 + 40;
const AGI_CRC: usize = 312;

/// An image that a crash left with inodes that are open and have no name, its log replayed.
fn crashed() -> MemoryDevice {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    for nth in 0..100 {
        let name = format!("new {nth}");
        let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
        fs.open(ino).unwrap();
        fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
    }
    fs.sync().unwrap();
    let crashed = device.fork();
    drop(fs);
    repaired(crashed).unwrap().device
}

/// How many inodes are freed when an image is opened to write.
fn freed(device: &MemoryDevice) -> u64 {
    let fs = Xfs::open_writable(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    let freed = fs.freed_at_open();
    fs.close().unwrap();
    freed
}

#[test]
fn lists_are_made_anew() {
    let base = crashed();
    assert!(findings(Arc::new(base.fork())).unwrap().is_empty());
    assert_eq!(freed(&base), 100);
    for bucket in [0, 17, 40] {
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
            assert!(!outcome.is_repaired_again);
            assert_eq!(freed(&outcome.device), 100, "bucket {bucket}, head {head}");
        }
    }
}
