//! Opening and closing: what an image must be to be opened, and what is written then.

use std::sync::Arc;

use blockdev::BlockDevice;
use transaction::Engine;
use vfs::locks::InodeLocks;
use vfs::{Error, ListingProfile, Result};

use crate::Xfs;
use crate::dir::States;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::format::address::AgNumber;
use crate::fs::{Mode, OpenOptions};
use crate::inode::GoneChunks;
use crate::log::log_is_clean;
use crate::superblocks;
use crate::unlinked::Unlinked;
use crate::volume::{Backing, Volume, read_superblock};

impl Xfs {
    /// Opens an image to read it.
    ///
    /// # Errors
    /// `Unsupported` for features this build cannot read, and for a log that has something to replay
    /// or is on another device, unless the options say to read the image as it lies; `Corrupt` for a
    /// superblock or group headers that cannot be right.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        if !options.stale && !log_is_clean(&*device, &read_superblock(&*device)?)? {
            return Err(Error::unsupported(
                "an image whose log was not replayed",
                "mount and unmount it once, or read it without what its log holds: --stale",
            ));
        }
        Self::with_device(device, options.cache_bytes, Mode::ReadOnly)
    }

    /// Opens an image that mkfs has just made, to fill it. Until [`Xfs::finish`], its superblock says
    /// that it is being made, so that nobody takes it for sound.
    ///
    /// # Errors
    /// As [`Xfs::open`], and `Unsupported` for features this build cannot write.
    pub fn open_fresh(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        if let Some(reason) = sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave those features out"));
        }
        let fs = Self::with_device(device, cache_bytes, Mode::Fresh)?;
        fs.edit_superblock(AgNumber(0), |raw| raw.inprogress = 1)?;
        fs.engine.checkpoint()?;
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
        let dirs = Arc::new(States::new(cache_bytes));
        let backing = Backing { volume: volume.clone(), dirs: dirs.clone() };
        let engine = Engine::new(device, Arc::new(backing), None, options);
        let unlinked = Unlinked::new(volume.geometry.ag_count);
        let hints = Hints::new(&volume.geometry);
        let (locks, gone) = (InodeLocks::new(), GoneChunks::default());
        let free_index = FreeIndexStrategy::default();
        let listings = ListingProfile::default();
        Self { engine, volume, locks, unlinked, gone, dirs, free_index, mode, hints, listings }
    }

    /// Ends the filling of a fresh image: frees what has no name, open or not, and writes all metadata,
    /// then the superblock, with a new uuid if one is given.
    ///
    /// # Errors
    /// If the device fails. The image is then not sound.
    pub fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.check_writable()?;
        self.reap_all()?;
        if let Some(uuid) = uuid {
            self.change_uuid_of_copies(uuid)?;
        }
        self.engine.checkpoint()?;
        self.edit_superblock(AgNumber(0), |raw| {
            raw.inprogress = 0;
            uuid.into_iter().for_each(|uuid| superblocks::set_uuid(raw, uuid));
        })?;
        Ok(self.engine.checkpoint()?)
    }
}
