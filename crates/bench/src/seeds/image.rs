//! File systems to measure in: ours in memory, the kernel's on a loop device.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use blockdev::MemoryDevice;
use vfs::{NewInode, Timestamp};
use xfs::mkfs::{Contents, FeatureChange};
use xfs::{FreeIndexStrategy, Xfs};

use super::text;

/// The time of everything that is made.
pub(super) const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };
/// A new file or directory, whose directory gets the time too.
pub(super) const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 0, gid: 0, time: TIME, parent_time: Some(TIME) };

/// What a file system of ours is like.
pub(super) struct Ours {
    pub(super) bytes: u64,
    pub(super) parent: bool,
    pub(super) strategy: FreeIndexStrategy,
}

impl Ours {
    /// Makes it, in memory.
    pub(super) fn make(&self) -> Result<(Xfs, Arc<MemoryDevice>), String> {
        let device = Arc::new(MemoryDevice::new(self.bytes));
        let mut options = xfs::mkfs::Options::new(self.bytes);
        let parent = if self.parent { "parent" } else { "-parent" };
        options.features = FeatureChange::parse_list(parent).map_err(text)?;
        let layout = xfs::mkfs::plan(&options).map_err(text)?;
        xfs::mkfs::format(&*device, &layout, Contents::Zeros).map_err(text)?;
        // All of a large directory stays in memory, as it does in the kernel.
        let mut fs = Xfs::open_fresh(device.clone(), 2 << 30).map_err(text)?;
        fs.set_free_index(self.strategy);
        Ok((fs, device))
    }
}

/// Ends the work on an image and has xfs_repair judge it.
pub(super) fn judge(fs: Xfs, device: &MemoryDevice, path: &Path) -> Result<(), String> {
    fs.finish(None).map_err(text)?;
    drop(fs);
    let file = File::create(path).map_err(text)?;
    let outcome = device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset));
    outcome.and_then(|()| file.set_len(blockdev::BlockDevice::len(device))).map_err(text)?;
    oracle::xfs_repair(path);
    std::fs::remove_file(path).map_err(text)
}

/// Names as fs_mark makes them: 16 digits of time and 24 random letters, 40 bytes in all.
pub(super) struct Names {
    random: fastrand::Rng,
    clock: u64,
    batch: Vec<[u8; 40]>,
}

impl Names {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), clock: seed << 40, batch: Vec::new() }
    }

    /// The next `count` names.
    pub(super) fn batch(&mut self, count: usize) -> &[[u8; 40]] {
        self.batch.clear();
        for _ in 0..count {
            self.clock += 1;
            let mut name = [0; 40];
            for (at, digit) in name[..16].iter_mut().enumerate() {
                let nibble = (self.clock >> (60 - at * 4)) as usize & 15;
                *digit = b"0123456789ABCDEF"[nibble];
            }
            name[16..].fill_with(|| self.random.alphanumeric() as u8);
            self.batch.push(name);
        }
        &self.batch
    }
}
