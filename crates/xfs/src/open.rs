//! Opening and closing: what an image must be to be opened, and what is written then.

use std::sync::Arc;

use blockdev::BlockDevice;
use transaction::Engine;
use vfs::locks::InodeLocks;
use vfs::{Error, Result};

use crate::Xfs;
use crate::dir::States;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::fs::{Mode, OpenOptions};
use crate::inode::GoneChunks;
use crate::unlinked::Unlinked;
use crate::volume::Volume;

impl Xfs {
    /// Opens an image to read it.
    ///
    /// # Errors
    /// `Unsupported` for features this build cannot read; `Corrupt` for a superblock or group headers
    /// that cannot be right.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        Self::with_device(device, options.cache_bytes, Mode::ReadOnly)
    }

    /// Opens an image that mkfs has just made, to fill it. It is sound only after [`Xfs::finish`].
    ///
    /// # Errors
    /// As [`Xfs::open`], and `Unsupported` for features this build cannot write.
    pub fn open_fresh(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        let fs = Self::with_device(device, cache_bytes, Mode::Fresh)?;
        if let Some(reason) = fs.volume.sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave those features out"));
        }
        fs.load_unlinked_lists()?;
        Ok(fs)
    }

    fn with_device(device: Arc<dyn BlockDevice>, cache_bytes: usize, mode: Mode) -> Result<Self> {
        let volume = Arc::new(Volume::read(&*device)?);
        Ok(Self::of_volume(device, volume, cache_bytes, mode))
    }

    /// A file system whose superblock and groups are known.
    pub(crate) fn of_volume(
        device: Arc<dyn BlockDevice>,
        volume: Arc<Volume>,
        cache_bytes: usize,
        mode: Mode,
    ) -> Self {
        let options = transaction::Options { block_size: volume.block_size(), cache_bytes };
        let engine = Engine::new(device, volume.clone(), None, options);
        let unlinked = Unlinked::new(volume.geometry.ag_count);
        let hints = Hints::new(&volume.geometry);
        let dirs = States::new(FreeIndexStrategy::default());
        let (locks, gone) = (InodeLocks::new(), GoneChunks::default());
        Self { engine, volume, locks, unlinked, gone, dirs, mode, hints }
    }

    /// Ends the filling of a fresh image: frees what has no name, open or not, and writes all metadata,
    /// then the superblock.
    ///
    /// # Errors
    /// If the device fails. The image is then not sound.
    pub fn finish(&self) -> Result<()> {
        self.check_writable()?;
        self.reap_all()?;
        self.engine.checkpoint()?;
        Ok(())
    }
}
