//! Reads everything in an image, however damaged, within fixed limits.

use std::sync::Arc;

use disk::BlockDevice;
use ext4::{Ext4, OpenOptions};
use testkit::walk::{Counted, inode, paths};
use vfs::{FileSystem, Ino};

pub use testkit::walk::WalkResult;

/// Maximum number of inodes to try.
const INODES_MAX: u64 = 200;

/// Options for opening images, with a cache smaller than some of the images.
pub const OPTIONS: OpenOptions = OpenOptions {
    cache_bytes: 256 << 10,
    norecovery: true,
    orphans: ext4::OrphanPolicy::WhenNeeded,
    time: None,
    defer_creates: None,
    checkpoint_threads: None,
    keys: ext4::fscrypt::EncryptionKeys::new(),
    mmp: ext4::mmp::MmpOptions::DEFAULT,
};

/// Opens an image and reads everything: from the root down, and inode by inode.
pub fn everything(device: Arc<dyn BlockDevice>) -> WalkResult {
    let mut outcome = WalkResult::default();
    let device = Counted::new(device);
    if let Some(fs) = outcome.keep(Ext4::open(device.clone(), &OPTIONS)) {
        paths(&fs, &mut outcome);
        if let Some(totals) = outcome.keep(fs.statfs()) {
            for number in 0..=totals.inodes.saturating_add(1).min(INODES_MAX) {
                inode(&fs, Ino(number), &mut outcome);
            }
        }
    }
    outcome.reads = device.reads();
    outcome
}
