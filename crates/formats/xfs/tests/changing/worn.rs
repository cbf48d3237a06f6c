//! Images whose logs were written almost to their ends, so that they wrap around in a short run.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, NewInode};
use xfs::format::superblock::Superblock;
use xfs::{OpenOptions, Xfs, log_end};

use super::SMALL_CACHE_BYTES;

/// Distances of the log's head from the end, in blocks of 512 bytes.
const DISTANCES: [u32; 4] = [1_500, 500, 200, 90];
/// Number of changes between two reads of the log's head.
const CHANGES: u64 = 4;
/// More rounds than any log needs.
const ROUNDS_MAX: u64 = 100_000;

/// Returns the image itself, and copies at each distance.
pub fn images(made: &MemoryDevice) -> Vec<MemoryDevice> {
    let mut images = vec![made.fork()];
    let device = Arc::new(made.fork());
    for distance in DISTANCES {
        wear(&device, distance);
        images.push(device.fork());
    }
    images
}

/// Changes an image until at most `distance` blocks are left before its log wraps around.
fn wear(device: &Arc<MemoryDevice>, distance: u32) {
    let options = OpenOptions { cache_bytes: SMALL_CACHE_BYTES, ..OpenOptions::default() };
    let fs = Xfs::open_writable(device.clone(), &options).unwrap();
    for _ in 0..ROUNDS_MAX {
        if blocks_left(device) <= distance {
            break;
        }
        for number in 0..CHANGES {
            let name = format!("worn {number}");
            fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
            fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
            fs.sync().unwrap();
        }
    }
    assert!(blocks_left(device) <= distance, "the log is not written to");
    Xfs::close(fs).unwrap();
}

fn blocks_left(device: &MemoryDevice) -> u32 {
    let mut sector = vec![0; 4096];
    device.read_at(0, &mut sector).unwrap();
    let superblock = Superblock::parse(&sector, device.len()).unwrap();
    let blocks = superblock.raw.logblocks.get() << (superblock.raw.blocklog - 9);
    let end = log_end(device, &superblock).unwrap().expect("a log that can be made out");
    blocks - end.head
}
