//! Test support: a log in memory, and images as left by a crash.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk::{BlockDevice, MemoryDevice};
use engine::{Checkpoint, Fit, Log, Size};
use parking_lot::Mutex;

use crate::mkfs::{self, Options, PreviousContents};
use crate::{Xfs, XfsCore};
use operations::Mode;

const CACHE_BYTES: usize = 16 << 20;

/// The durable contents of a log, block by block.
#[derive(Clone)]
struct Durable {
    blocks_max: usize,
    images: Arc<Mutex<BTreeMap<u64, Box<[u8]>>>>,
    checkpoints: Arc<AtomicUsize>,
    device: Arc<MemoryDevice>,
}

impl Durable {
    fn crash(&self) -> MemoryDevice {
        let device = self.device.fork();
        for (block, image) in &*self.images.lock() {
            device.write_at(block * image.len() as u64, image).unwrap();
        }
        device
    }
}

impl Log for Durable {
    fn blocks_max(&self) -> usize {
        self.blocks_max
    }

    fn write(&self, checkpoint: &Checkpoint<'_>) -> engine::Result<()> {
        let mut images = self.images.lock();
        let mut count = checkpoint.freed().len();
        checkpoint.for_each(|image| {
            images.insert(image.block, image.data.into());
            count += 1;
            Ok(())
        })?;
        checkpoint.freed().iter().for_each(|block| drop(images.remove(block)));
        drop(images);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        assert!(count <= self.blocks_max, "a checkpoint of {count} blocks");
        Ok(())
    }

    fn fit(&self, _: Size) -> Fit {
        Fit::WithAnother
    }

    fn advance_tail(&self, _sequence: u64) -> engine::Result<()> {
        Ok(())
    }
}

/// A file system whose log is in memory.
pub(crate) struct Logged {
    pub(crate) fs: Xfs,
    device: Arc<MemoryDevice>,
    log: Durable,
}

impl Logged {
    /// Makes a new file system.
    pub(crate) fn new(options: &Options, blocks_max: usize) -> Self {
        Self::open(make(options), blocks_max)
    }

    /// Opens an image in a file.
    pub(crate) fn of_file(path: &Path, blocks_max: usize) -> Self {
        Self::open(testkit::crash::read_image(path).unwrap(), blocks_max)
    }

    fn open(device: MemoryDevice, blocks_max: usize) -> Self {
        let device = Arc::new(device);
        let log = Durable {
            blocks_max,
            images: Arc::default(),
            checkpoints: Arc::default(),
            device: device.clone(),
        };
        let hook: Box<dyn Log> = Box::new(log.clone());
        let shared: Arc<dyn BlockDevice> = device.clone();
        let core = XfsCore::with_device(shared, Some(hook), CACHE_BYTES, Mode::Writable);
        let fs = Xfs::new(core.unwrap());
        fs.load_unlinked_lists().unwrap();
        Self { fs, device, log }
    }

    /// Returns the image as a crash at this moment leaves it: all data that was written, and metadata as of the last
    /// checkpoint. Unlinked inodes are on their lists.
    pub(crate) fn crash(&self) -> Self {
        Self::open(self.log.crash(), self.log.blocks_max)
    }

    /// Returns the number of checkpoints written.
    pub(crate) fn checkpoints(&self) -> usize {
        self.log.checkpoints.load(Ordering::Relaxed)
    }

    /// Writes everything back and checks the image.
    pub(crate) fn judge(&self) {
        self.fs.engine.checkpoint().unwrap();
        self.fs.flush_superblock().unwrap();
        self.fs.engine.empty_log().unwrap();
        testkit::show_image(&self.device, |path| testkit::xfs_repair(path));
    }

    /// Calls `judge` with the image on the device, written to a file.
    pub(crate) fn write_to_file(&self, judge: impl FnOnce(&Path)) {
        write_to_file(&self.device, judge);
    }
}

/// Calls `judge` with an image written to a file.
pub(crate) fn write_to_file(device: &MemoryDevice, judge: impl FnOnce(&Path)) {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    testkit::crash::write_image(device, &path).unwrap();
    judge(&path);
}

/// Returns a device with a new file system.
pub(crate) fn make(options: &Options) -> MemoryDevice {
    let layout = mkfs::plan(options).unwrap();
    let device = MemoryDevice::new(options.size_bytes);
    mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
    device
}
