//! An open file system.

use std::sync::Arc;

use blockdev::BlockDevice;
use operation::Mode;
use operation::locks::InodeLocks;
use operation::profile::ListingProfile;
use operation::waiting::{Waiting, WaitingPolicy};
use transaction::{BufferRef, Engine, Tag};
use vfs::{Ino, Result};

use crate::dir::DirStates;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::format::address::Block;
use crate::format::superblock::Superblock;
use crate::inode::{self, GoneChunks, Handle};
use crate::log;
use crate::orphan::Unlinked;
use crate::volume::Volume;
use crate::waiting::NameKeys;

/// Memory for cached metadata unless told otherwise, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// How to open a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Memory for cached metadata, in bytes.
    pub cache_bytes: usize,
    /// Read an image whose log was not replayed as it lies: what the log holds is missing.
    pub norecovery: bool,
    /// When files that are made wait in memory, to be entered into their directory many together: in very large
    /// directories, unless told otherwise. `None`: never.
    ///
    /// After a crash, files that waited may be missing in any order, each wholly; `fsync` of any file or directory,
    /// `sync` and closing bring all of them to the device.
    pub waiting: Option<WaitingPolicy>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            cache_bytes: CACHE_BYTES_DEFAULT,
            norecovery: false,
            waiting: Some(WaitingPolicy::LARGE),
        }
    }
}

/// An open XFS file system.
pub struct Xfs {
    pub(crate) engine: Engine,
    pub(crate) volume: Arc<Volume>,
    pub(crate) locks: InodeLocks,
    /// What is kept of large directories, which the engine knows too.
    pub(crate) dirs: Arc<DirStates>,
    /// How room for new entries is found in them.
    pub(crate) free_index: FreeIndexStrategy,
    pub(crate) unlinked: Unlinked,
    pub(crate) gone: GoneChunks,
    pub(crate) waiting: Waiting<NameKeys>,
    pub(crate) mode: Mode,
    /// Where data of new files goes.
    pub(crate) hints: Hints,
    pub(crate) listings: ListingProfile,
    /// Its superblock when it was opened, before recovery.
    pub(crate) found: Superblock,
    /// Damage that does not keep the image from being read.
    pub(crate) remarks: Vec<String>,
    /// What recovery did when it was opened.
    pub(crate) recovered: log::Report,
    /// How many inodes without names were freed then.
    pub(crate) freed_at_open: u64,
    /// The log, where changes go through it; the engine has it, too.
    pub(crate) log: Option<log::XfsLog>,
}

impl Xfs {
    pub(crate) fn root_ino(&self) -> Ino {
        Ino(self.volume.sb.raw.rootino.get())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.mode.check_writable()
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

    /// A verified metadata block. Not to be asked for a block that an operation of this thread
    /// holds.
    pub(crate) fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }
}
