//! An open file system.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use blockdev::BlockDevice;
use transaction::{BufferRef, Engine};
use vfs::{Error, Ino, Result};

use crate::alloc::spread::Spread;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::inode::Owner;
use crate::format::superblock::Superblock;
use crate::inode::locks::InodeLocks;
use crate::op::Handle;
use crate::read::{self, Blocks, Kind};
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
    /// Inodes taken so far, for their generations.
    pub(crate) generations: AtomicU32,
    /// Just made by mkfs, and nobody relies on it yet: it may be written, without a journal.
    pub(crate) fresh: bool,
}

impl Ext4 {
    /// Opens an image read-only.
    ///
    /// # Errors
    /// `Unsupported` for features this build cannot read, and for an image whose journal must be
    /// replayed, unless `stale`; `Corrupt` for a superblock or descriptors that cannot be right.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let fs = Self::with_device(device, options.cache_bytes, false)?;
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
        let fs = Self::with_device(device, cache_bytes, true)?;
        if let Some(reason) = fs.volume.sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave those features out"));
        }
        Ok(fs)
    }

    fn with_device(device: Arc<dyn BlockDevice>, cache_bytes: usize, fresh: bool) -> Result<Self> {
        let volume = Arc::new(Volume::read(&*device)?);
        let options = transaction::Options { block_size: volume.block_size(), cache_bytes };
        let engine = Engine::new(device, volume.clone(), None, options);
        Ok(Self {
            engine,
            volume,
            locks: InodeLocks::new(),
            spread: Spread::default(),
            generations: AtomicU32::new(0),
            fresh,
        })
    }

    pub(crate) fn root_ino(&self) -> Ino {
        ROOT_INO
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.fresh {
            return Ok(());
        }
        Err(Error::ReadOnly("changing an image in place is not supported yet"))
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

    /// Whether checksums depend on the uuid, so that it cannot change.
    pub fn uuid_is_fixed(&self) -> bool {
        self.volume.uuid_is_seed()
    }
}

impl Blocks for Ext4 {
    type Ref<'a> = BufferRef;

    fn superblock(&self) -> &Superblock {
        &self.volume.sb
    }

    fn geometry(&self) -> &Geometry {
        &self.volume.geometry
    }

    fn inode_table(&self, group: Group) -> Result<Block> {
        Ok(self.volume.groups.inode_table(group))
    }

    fn block(&self, block: Block, kind: Kind, owner: Owner) -> Result<BufferRef> {
        let tag = match kind {
            Kind::InodeTable | Kind::Xattr => kind.plain(),
            _ => kind.of(owner),
        };
        Ok(self.engine.read(block.0, tag)?)
    }

    fn data(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.engine.device().read_at(offset, buf).map_err(Error::Device)
    }
}
