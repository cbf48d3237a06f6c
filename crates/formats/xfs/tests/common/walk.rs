//! Reads everything in an image, which may be damaged, within fixed limits.

use std::sync::Arc;

use disk::BlockDevice;
use testkit::walk::{Counted, inode, paths};
use vfs::{FileSystem, Ino};
use xfs::{OpenOptions, Xfs};

pub use testkit::walk::WalkResult;

/// Options for opening an image: with a cache smaller than the images.
pub const OPTIONS: OpenOptions = OpenOptions {
    cache_bytes: 256 << 10,
    norecovery: true,
    defer_creates: None,
    checkpoint_threads: None,
};

/// Maximum number of inodes read individually.
const INODES_MAX: usize = 200;

/// Opens an image and reads everything: from the root down and inode by inode.
pub fn everything(device: Arc<dyn BlockDevice>, inodes: &[Ino]) -> WalkResult {
    let mut outcome = WalkResult::default();
    let device = Counted::new(device);
    if let Some(fs) = outcome.keep(Xfs::open(device.clone(), &OPTIONS)) {
        outcome.keep(fs.statfs());
        paths(&fs, &mut outcome);
        for &ino in inodes.iter().step_by(1 + inodes.len() / INODES_MAX) {
            inode(&fs, ino, &mut outcome);
        }
        for strange in [Ino(0), Ino(1), Ino(u64::from(u32::MAX)), Ino(u64::MAX)] {
            // None of these is an inode, which is not damage.
            inode(&fs, strange, &mut WalkResult::default());
        }
    }
    outcome.reads = device.reads();
    outcome
}
