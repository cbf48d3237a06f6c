//! XFS as a target of trials and of the crash explorer.

use std::num::NonZeroUsize;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::{CarelessDevice, CrashTarget, OpenFileSystem};
use testkit::trial::{Alike, Trial};
use vfs::FileSystem;
use xfs::{DeferPolicy, OpenOptions, Xfs};

use super::{SMALL_CACHE_BYTES, TargetLayout, assert_clean, worn};

/// How an image is opened for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As an image just made by mkfs, without a log.
    Unlogged,
    /// In place, with its log.
    InPlace,
}

/// XFS images of one kind.
pub struct XfsTarget {
    pub layout: TargetLayout,
    way: Way,
    /// File systems made in advance: each run starts with a copy of one of them.
    made: Vec<MemoryDevice>,
    /// Size of the cache, in bytes.
    pub cache_bytes: usize,
    /// True to suppress flushes to the device, as a deliberate bug.
    pub swallows_flushes: bool,
    /// When new files wait, for images changed in place.
    defer_creates: Option<DeferPolicy>,
    /// Number of threads of checkpoints of images changed in place.
    checkpoint_threads: Option<NonZeroUsize>,
}

impl XfsTarget {
    /// New images, to be filled without a log.
    pub fn unlogged(layout: TargetLayout) -> Self {
        Self::with_images(layout, Way::Unlogged, vec![layout.make()])
    }

    /// New images, to be changed in place.
    pub fn in_place(layout: TargetLayout) -> Self {
        Self::with_images(layout, Way::InPlace, vec![layout.make()])
    }

    /// New images, and some whose logs will soon wrap around.
    pub fn worn(layout: TargetLayout) -> Self {
        Self::with_images(layout, Way::InPlace, worn::images(&layout.make()))
    }

    /// New images with so much memory that blocks are written back only when the log is full.
    pub fn unhurried(layout: TargetLayout) -> Self {
        Self { cache_bytes: 64 << 20, ..Self::in_place(layout) }
    }

    /// The same images, with deferred files.
    pub fn deferring(self, policy: DeferPolicy) -> Self {
        Self { defer_creates: Some(policy), ..self }
    }

    /// The same images, with a number of threads for each checkpoint. A seed may then repeat a run with another order of
    /// writes.
    pub fn by_threads(self, checkpoint_threads: Option<NonZeroUsize>) -> Self {
        Self { checkpoint_threads, ..self }
    }

    /// Given images of a layout.
    pub fn with_images(layout: TargetLayout, way: Way, made: Vec<MemoryDevice>) -> Self {
        Self {
            layout,
            way,
            made,
            cache_bytes: SMALL_CACHE_BYTES,
            swallows_flushes: false,
            defer_creates: None,
            checkpoint_threads: None,
        }
    }

    /// Returns the parameters for trials.
    pub fn trial(&self) -> Trial<'_> {
        let block_bytes = self.layout.block_size.into();
        let name = format!("{:?}, {:?}", self.way, self.layout);
        // Due to small logs.
        let parts_long_requests = self.way == Way::InPlace;
        Trial {
            target: self,
            block_bytes,
            parts_long_requests,
            name,
            check: &|device| assert_clean(device),
            alike: Alike::one_in(testkit::effort(7, 5, 1)),
        }
    }

    fn open_xfs(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Xfs> {
        match self.way {
            Way::Unlogged => self.layout.open(device, self.cache_bytes),
            Way::InPlace => {
                let options = OpenOptions {
                    cache_bytes: self.cache_bytes,
                    defer_creates: self.defer_creates,
                    checkpoint_threads: self.checkpoint_threads,
                    ..OpenOptions::default()
                };
                self.layout.open_in_place(device, &options)
            }
        }
    }
}

/// An open file system, and how it was opened.
pub struct Open(pub Xfs, pub Way);

impl CrashTarget for XfsTarget {
    fn make(&self, seed: u64) -> Result<MemoryDevice, String> {
        Ok(self.made[seed as usize % self.made.len()].fork())
    }

    fn files_may_wait(&self) -> bool {
        self.defer_creates.is_some()
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let device: Arc<dyn BlockDevice> =
            if self.swallows_flushes { Arc::new(CarelessDevice(device)) } else { device };
        Ok(Box::new(Open(self.open_xfs(device)?, self.way)))
    }
}

impl OpenFileSystem for Open {
    fn file_system(&self) -> &dyn FileSystem {
        &self.0
    }

    fn close(self: Box<Self>) -> vfs::Result<()> {
        match self.1 {
            Way::Unlogged => self.0.finish(None),
            Way::InPlace => Xfs::close(self.0),
        }
    }
}
