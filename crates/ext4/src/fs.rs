//! An open file system.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use blockdev::BlockDevice;
use parking_lot::Mutex;
use transaction::{BufferRef, Engine, Tag};
use vfs::{Error, Ino, Result};

use crate::alloc::spread::Spread;
use crate::format::address::Block;
use crate::format::superblock::Superblock;
use crate::inode::locks::InodeLocks;
use crate::op::Handle;
use crate::read;
use crate::volume::Volume;

/// The root directory.
const ROOT_INO: Ino = Ino(2);

/// Memory for cached metadata unless told otherwise, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// How to open a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Memory for cached metadata, in bytes.
    pub cache_bytes: usize,
    /// Read an image whose journal was not replayed as it lies: what the journal holds is missing.
    pub stale: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { cache_bytes: CACHE_BYTES_DEFAULT, stale: false }
    }
}

/// An open ext2, ext3 or ext4 file system.
pub struct Ext4 {
    pub(crate) engine: Engine,
    pub(crate) volume: Arc<Volume>,
    pub(crate) locks: InodeLocks,
    pub(crate) spread: Spread,
    /// Guards the reference counts of the inodes that hold values of attributes.
    pub(crate) value_inodes: Mutex<()>,
    /// Inodes taken so far, for their generations.
    pub(crate) generations: AtomicU32,
    pub(crate) mode: Mode,
}

/// What may be done to an open file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing may be changed.
    ReadOnly,
    /// Just made by mkfs, and nobody relies on it yet: it may be written, without a journal.
    Fresh,
    /// Everything may be changed.
    Writable,
}

impl Ext4 {
    /// Opens an image read-only.
    ///
    /// # Errors
    /// `Unsupported` for features this build cannot read, and for an image whose journal must be
    /// replayed, unless `stale`; `Corrupt` for a superblock or descriptors that cannot be right.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let fs = Self::with_device(device, options.cache_bytes, Mode::ReadOnly)?;
        if fs.volume.needs_recovery() && !options.stale {
            return Err(Error::unsupported(
                "a journal with changes that are not in their places yet",
                "mount the image once or run e2fsck to replay it, or ask for the stale state",
            ));
        }
        Ok(fs)
    }

    /// Opens an image that mkfs has just made, to fill it. Without a journal, it is sound only
    /// after [`Ext4::finish`].
    ///
    /// # Errors
    /// As [`Ext4::open`], and `Unsupported` for features this build cannot write.
    pub fn open_fresh(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        let fs = Self::with_device(device, cache_bytes, Mode::Fresh)?;
        if let Some(reason) = fs.volume.sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave those features out"));
        }
        Ok(fs)
    }

    /// Opens an image to change it in place. [`Ext4::close`] must follow, or the image is left as
    /// after a crash.
    ///
    /// # Errors
    /// As [`Ext4::open`], and `ReadOnly` or `Unsupported` for features this build cannot write.
    pub fn open_writable(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let fs = Self::with_device(device, options.cache_bytes, Mode::Writable)?;
        if let Some(reason) = fs.volume.sb.read_only_because() {
            return Err(Error::unsupported(reason, "open it for reading"));
        }
        Ok(fs)
    }

    /// Writes everything and leaves the image clean.
    ///
    /// # Errors
    /// If the device fails. The image is then as after a crash.
    pub fn close(self) -> Result<()> {
        self.finish(None)
    }

    fn with_device(device: Arc<dyn BlockDevice>, cache_bytes: usize, mode: Mode) -> Result<Self> {
        let volume = Arc::new(Volume::read(&*device)?);
        let options = transaction::Options { block_size: volume.block_size(), cache_bytes };
        let engine = Engine::new(device, volume.clone(), None, options);
        Ok(Self {
            engine,
            volume,
            locks: InodeLocks::new(),
            spread: Spread::default(),
            value_inodes: Mutex::default(),
            generations: AtomicU32::new(0),
            mode,
        })
    }

    pub(crate) fn root_ino(&self) -> Ino {
        ROOT_INO
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.mode != Mode::ReadOnly {
            return Ok(());
        }
        Err(Error::ReadOnly("it was opened for reading"))
    }

    /// The device that file contents lie on.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.engine.device()
    }

    /// An inode in use. `NotFound` if it is not.
    pub(crate) fn load(&self, ino: Ino) -> Result<Handle> {
        read::inode::load(self, ino)
    }

    /// A directory in use.
    pub(crate) fn load_dir(&self, ino: Ino) -> Result<Handle> {
        let handle = self.load(ino)?;
        handle.require_directory()?;
        Ok(handle)
    }

    /// Whether the journal holds changes that are not in their places yet.
    pub fn needs_recovery(&self) -> bool {
        self.volume.needs_recovery()
    }

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.sb
    }

    /// Ends the filling of a fresh image: writes all metadata, then the superblock, with a new
    /// uuid if one is given.
    ///
    /// # Errors
    /// If the device fails. The image is then not sound. `Invalid` if the uuid cannot change
    /// because checksums depend on it.
    pub fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.check_writable()?;
        self.engine.checkpoint()?;
        let mut raw = self.volume.sb.raw.clone();
        let (clusters, inodes) = self.volume.groups.totals();
        raw.set_free_blocks(clusters << self.volume.sb.cluster_blocks_log);
        raw.free_inodes_count = (inodes as u32).into();
        if let Some(uuid) = uuid {
            if self.volume.uuid_is_seed() {
                return Err(Error::Invalid("checksums depend on the uuid"));
            }
            self.volume.write_uuid(uuid, &mut raw, &**self.engine.device())?;
        }
        self.volume.write_superblock(&raw, &**self.engine.device())
    }

    /// A verified metadata block.
    pub(crate) fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }

    /// Reads file data from byte `offset` of the device.
    pub(crate) fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.engine.device().read_at(offset, buf).map_err(Error::Device)
    }

    /// Whether checksums depend on the uuid, so that it cannot change.
    pub fn uuid_is_fixed(&self) -> bool {
        self.volume.uuid_is_seed()
    }
}
