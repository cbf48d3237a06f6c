//! For tests: a log in memory, and images as a crash leaves them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use blockdev::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;
use transaction::{Checkpoint, Log};

use crate::Xfs;
use crate::fs::Mode;
use crate::mkfs::{self, Contents, Options};

const CACHE_BYTES: usize = 16 << 20;

/// What is durable in a log, block by block.
#[derive(Clone)]
struct Durable {
    blocks_max: usize,
    images: Arc<Mutex<BTreeMap<u64, Box<[u8]>>>>,
    checkpoints: Arc<AtomicUsize>,
    /// Images as a crash leaves them, while they are wanted.
    crashes: Arc<Mutex<Option<Crashes>>>,
    device: Arc<MemoryDevice>,
}

/// Most images of crashes that are kept.
const CRASHES_MAX: usize = 16;

/// Images as crashes leave them behind each of so many checkpoints.
struct Crashes {
    stride: usize,
    seen: usize,
    images: Vec<MemoryDevice>,
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

    fn write(&self, checkpoint: &Checkpoint<'_>) -> transaction::Result<()> {
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
        if let Some(crashes) = &mut *self.crashes.lock() {
            crashes.seen += 1;
            if crashes.seen.is_multiple_of(crashes.stride) {
                crashes.images.push(self.crash());
            }
            if crashes.images.len() == CRASHES_MAX {
                crashes.stride *= 2;
                let mut at = 0;
                crashes.images.retain(|_| {
                    at += 1;
                    at % 2 == 0
                });
            }
        }
        Ok(())
    }

    fn is_short(&self, _blocks: usize) -> bool {
        false
    }

    fn retire(&self, _sequence: u64) -> transaction::Result<()> {
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
    /// A new one.
    pub(crate) fn new(options: &Options, blocks_max: usize) -> Self {
        let layout = mkfs::plan(options).unwrap();
        let device = MemoryDevice::new(options.size_bytes);
        mkfs::format(&device, &layout, Contents::Zeros).unwrap();
        Self::open(device, blocks_max)
    }

    /// One of an image in a file.
    pub(crate) fn of_file(path: &Path, blocks_max: usize) -> Self {
        let file = File::open(path).unwrap();
        let device = MemoryDevice::new(file.metadata().unwrap().len());
        let mut bytes = vec![0; 1 << 20];
        for at in (0..device.len()).step_by(bytes.len()) {
            let len = bytes.len().min((device.len() - at) as usize);
            file.read_exact_at(&mut bytes[..len], at).unwrap();
            if bytes[..len].iter().any(|byte| *byte != 0) {
                device.write_at(at, &bytes[..len]).unwrap();
            }
        }
        Self::open(device, blocks_max)
    }

    fn open(device: MemoryDevice, blocks_max: usize) -> Self {
        let device = Arc::new(device);
        let log = Durable {
            blocks_max,
            images: Arc::default(),
            checkpoints: Arc::default(),
            crashes: Arc::default(),
            device: device.clone(),
        };
        let hook: Box<dyn Log> = Box::new(log.clone());
        let shared: Arc<dyn BlockDevice> = device.clone();
        let fs = Xfs::with_device(shared, Some(hook), CACHE_BYTES, Mode::Writable).unwrap();
        fs.load_unlinked_lists().unwrap();
        Self { fs, device, log }
    }

    /// The image as a crash at this moment leaves it: all data that was written, and metadata as of the
    /// last checkpoint. What is unlinked is on its lists.
    pub(crate) fn crash(&self) -> Self {
        Self::open(self.log.crash(), self.log.blocks_max)
    }

    /// What crashes leave behind checkpoints that are written all the time during `change`, between any two
    /// operations: some of them.
    pub(crate) fn crashes_of(&self, change: impl FnOnce(&Xfs)) -> Vec<Self> {
        *self.log.crashes.lock() = Some(Crashes { stride: 1, seen: 0, images: Vec::new() });
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    self.fs.engine.checkpoint().unwrap();
                }
            });
            change(&self.fs);
            is_done.store(true, Ordering::Relaxed);
        });
        let crashes = self.log.crashes.lock().take().map(|crashes| crashes.images);
        let open = |device| Self::open(device, self.log.blocks_max);
        crashes.unwrap_or_default().into_iter().map(open).collect()
    }

    /// Checkpoints that were written.
    pub(crate) fn checkpoints(&self) -> usize {
        self.log.checkpoints.load(Ordering::Relaxed)
    }

    /// Brings everything home and has it judged.
    pub(crate) fn judge(&self) {
        self.fs.engine.checkpoint().unwrap();
        self.fs.settle_superblock().unwrap();
        self.fs.engine.empty_log().unwrap();
        self.write_to_file(|path| oracle::xfs_repair(path));
    }

    /// Hands the image as it lies on the device over as a file.
    pub(crate) fn write_to_file(&self, judge: impl FnOnce(&Path)) {
        let folder = oracle::scratch();
        let path = folder.path().join("image");
        let file = File::create(&path).unwrap();
        file.set_len(self.device.len()).unwrap();
        self.device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
        drop(file);
        judge(&path);
    }
}
