//! ext4 as a target of the crash explorer.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::{DeferPolicy, Ext4, OpenOptions};
use testkit::crash::{CarelessDevice, CrashTarget, OpenFileSystem};
use testkit::operation::Mix;
use testkit::trial::{Alike, Trial};
use vfs::FileSystem;

use super::{ImageParameters, SMALL_CACHE_BYTES, assert_clean};

/// ext4 images of one kind.
pub struct Ext4Target {
    pub layout: ImageParameters,
    /// The created file system. Each run starts with a copy.
    made: MemoryDevice,
    /// True to drop all flushes, as a deliberate fault.
    pub swallows_flushes: bool,
    /// Policy for deferred files.
    pub defer_creates: Option<DeferPolicy>,
    /// Number of threads of each checkpoint.
    checkpoint_threads: Option<NonZeroUsize>,
}

impl Ext4Target {
    pub fn new(layout: ImageParameters) -> Self {
        Self::with_image(layout, layout.make())
    }

    /// Returns a target for an image created by another program with this layout.
    pub fn with_image(layout: ImageParameters, made: MemoryDevice) -> Self {
        let (swallows_flushes, defer_creates, checkpoint_threads) = (false, None, None);
        Self { layout, made, swallows_flushes, defer_creates, checkpoint_threads }
    }

    /// The same images, with a number of threads for each checkpoint. A seed may then repeat a run with another order of
    /// writes.
    pub fn by_threads(self, checkpoint_threads: Option<NonZeroUsize>) -> Self {
        Self { checkpoint_threads, ..self }
    }

    /// Returns the parameters of trials.
    pub fn trial(&self) -> Trial<'_> {
        let (block_bytes, name) = (self.layout.block_size.into(), format!("{:?}", self.layout));
        let parts_long_requests = false;
        Trial {
            target: self,
            block_bytes,
            parts_long_requests,
            name,
            check: &|device| assert_clean(device),
            alike: Alike::one_in(testkit::effort(7, 3, 1)),
        }
    }
}

pub struct OpenExt4(pub Ext4);

impl CrashTarget for Ext4Target {
    fn make(&self, _seed: u64) -> Result<MemoryDevice, String> {
        Ok(self.made.fork())
    }

    /// The superblock must be written atomically. Its checksum is in its second sector, and it must be written before
    /// the journal is valid, so no implementation survives a torn write of it. The kernel does not either.
    fn indivisible(&self) -> Vec<Range<u64>> {
        std::iter::once(1024..2048).collect()
    }

    /// All attributes of a file must fit into a block, and block maps have no preallocated space.
    fn adjusted(&self, mix: Mix) -> Mix {
        let xattr_len_max = match self.layout.block_size {
            ..2048 => mix.xattr_len_max.min(170),
            _ => mix.xattr_len_max,
        };
        let preallocates = mix.preallocates && !self.layout.features.contains("^extents");
        Mix { xattr_len_max, preallocates, ..mix }
    }

    fn files_may_wait(&self) -> bool {
        self.defer_creates.is_some()
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let device: Arc<dyn BlockDevice> =
            if self.swallows_flushes { Arc::new(CarelessDevice(device)) } else { device };
        let options = OpenOptions {
            cache_bytes: SMALL_CACHE_BYTES,
            defer_creates: self.defer_creates,
            checkpoint_threads: self.checkpoint_threads,
            ..OpenOptions::default()
        };
        Ok(Box::new(OpenExt4(Ext4::open_writable(device, &options)?)))
    }
}

impl OpenFileSystem for OpenExt4 {
    fn file_system(&self) -> &dyn FileSystem {
        &self.0
    }

    fn close(self: Box<Self>) -> vfs::Result<()> {
        self.0.close()
    }
}
