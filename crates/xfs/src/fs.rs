//! An open file system.

use std::sync::Arc;

use blockdev::BlockDevice;
use transaction::{BufferRef, Engine, Tag};
use vfs::locks::InodeLocks;
use vfs::{Error, Ino, ListingProfile, Result};

use crate::dir::States;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::format::address::Block;
use crate::format::superblock::Superblock;
use crate::inode::{self, GoneChunks, Handle};
use crate::log;
use crate::unlinked::Unlinked;
use crate::volume::Volume;

/// Memory for cached metadata unless told otherwise, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// How to open a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Memory for cached metadata, in bytes.
    pub cache_bytes: usize,
    /// Read an image whose log was not replayed as it lies: what the log holds is missing.
    pub stale: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { cache_bytes: CACHE_BYTES_DEFAULT, stale: false }
    }
}

/// An open XFS file system.
pub struct Xfs {
    pub(crate) engine: Engine,
    pub(crate) volume: Arc<Volume>,
    pub(crate) locks: InodeLocks,
    /// What is kept of large directories, which the engine knows too.
    pub(crate) dirs: Arc<States>,
    /// How room for new entries is found in them.
    pub(crate) free_index: FreeIndexStrategy,
    pub(crate) unlinked: Unlinked,
    pub(crate) gone: GoneChunks,
    pub(crate) mode: Mode,
    /// Where data of new files goes.
    pub(crate) hints: Hints,
    pub(crate) listings: ListingProfile,
    /// Its superblock when it was opened, before recovery.
    pub(crate) found: Superblock,
    /// What whoever reads it should know.
    pub(crate) remarks: Vec<String>,
    /// What recovery did when it was opened.
    pub(crate) recovered: log::Report,
    /// How many inodes without names were freed then.
    pub(crate) freed_at_open: u64,
    /// The log, where changes go through it; the engine has it, too.
    pub(crate) log: Option<log::XfsLog>,
}

/// What may be done to an open file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing may be changed.
    ReadOnly,
    /// Just made by mkfs, and nobody relies on it yet: it may be written, without a log.
    Fresh,
    /// It may be changed; changes become durable in its log.
    Writable,
}

impl Xfs {
    pub(crate) fn root_ino(&self) -> Ino {
        Ino(self.volume.sb.raw.rootino.get())
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

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.sb
    }

    /// An inode in use. `NotFound` if it is not.
    pub(crate) fn load(&self, ino: Ino) -> Result<Handle> {
        inode::load(self, ino)
    }

    /// A directory in use. One that was removed has no names and gets none, be it open.
    pub(crate) fn load_dir(&self, ino: Ino) -> Result<Handle> {
        let handle = self.load(ino)?;
        handle.require_directory()?;
        if handle.inode.nlink() == 0 { Err(Error::NotFound) } else { Ok(handle) }
    }

    /// A verified metadata block. Not to be asked for a block that an operation of this thread
    /// holds.
    pub(crate) fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }

    /// Reads file data from byte `offset` of the device.
    pub(crate) fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.engine.device().read_at(offset, buf).map_err(Error::Device)
    }
}
