//! An open file system and its options.

use std::num::NonZeroUsize;
use std::sync::Arc;

use disk::BlockDevice;
use engine::{BufferRef, Engine, Tag};
use operations::Mode;
use operations::deferred_create::{DeferPolicy, DeferredCreates};
use operations::locks::InodeLocks;
use operations::profile::ListingProfile;
use vfs::{Error, Ino, Result};

use crate::deferred_create::NameKeys;
use crate::dir::DirStates;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::format::address::Block;
use crate::format::superblock::Superblock;
use crate::inode::{self, GoneChunks, Handle};
use crate::log;
use crate::orphan::Unlinked;
use crate::volume::Volume;

/// Default size of the metadata cache, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// Options for opening a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Size of the metadata cache, in bytes.
    pub cache_bytes: usize,
    /// Open an image with a dirty log read-only, without replaying the log. Changes that are only in the log are not
    /// visible.
    pub norecovery: bool,
    /// Policy for deferred creates ([`operations::deferred_create`]), or `None` (the default) to enter each file into
    /// its directory at once.
    ///
    /// The order of changes is weaker with a policy: after a crash, any of the files created since the last sync in a
    /// large directory may be missing, each as a whole. All other changes are those up to some moment. `fsync` of any
    /// file or directory, `sync` and closing make all files durable.
    pub defer_creates: Option<DeferPolicy>,
    /// Number of threads for each step of a checkpoint, even of a small one. By default, large checkpoints use one
    /// thread for each processor, at most eight.
    pub checkpoint_threads: Option<NonZeroUsize>,
}

impl OpenOptions {
    /// Policy for deferred creates in large directories, for [`Self::defer_creates`].
    pub const DEFER_LARGE: DeferPolicy = DeferPolicy::LARGE;
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            cache_bytes: CACHE_BYTES_DEFAULT,
            norecovery: false,
            defer_creates: None,
            checkpoint_threads: None,
        }
    }
}

/// An open XFS file system below the layer of deferred creates (see [`crate::Xfs`]).
pub struct XfsCore {
    pub(crate) engine: Engine,
    pub(crate) volume: Arc<Volume>,
    pub(crate) locks: InodeLocks,
    /// In-memory states of large directories, shared with the engine's `Backing`.
    pub(crate) dirs: Arc<DirStates>,
    /// Strategy for finding room for new entries in large directories.
    pub(crate) free_index: FreeIndexStrategy,
    pub(crate) unlinked: Unlinked,
    pub(crate) gone: GoneChunks,
    pub(crate) deferred: DeferredCreates<NameKeys>,
    pub(crate) mode: Mode,
    /// Allocation hints for the data of new files.
    pub(crate) hints: Hints,
    pub(crate) listings: ListingProfile,
    /// The superblock as found when the file system was opened, before recovery.
    pub(crate) found: Superblock,
    /// Damage that does not prevent reading the image.
    pub(crate) remarks: Vec<String>,
    /// Report of the recovery done at open.
    pub(crate) recovered: log::Report,
    /// Number of unlinked inodes freed at open.
    pub(crate) freed_at_open: u64,
    /// The log, if changes are logged; shared with the engine.
    pub(crate) log: Option<log::XfsLog>,
}

impl XfsCore {
    pub(crate) fn root_ino(&self) -> Ino {
        Ino(self.volume.sb.raw.rootino.get())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.mode.check_writable()
    }

    /// Returns the device that file contents are read from and written to.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.engine.device()
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.sb
    }

    /// Returns an inode in use, or `NotFound`. It may belong to the metadata directory tree.
    pub(crate) fn load(&self, ino: Ino) -> Result<Handle> {
        inode::load(self, ino)
    }

    /// Returns an inode in use, or `NotFound`, also for one of the metadata directory tree.
    pub(crate) fn load_ordinary(&self, ino: Ino) -> Result<Handle> {
        let handle = self.load(ino)?;
        if handle.inode.is_metadata() { Err(Error::NotFound) } else { Ok(handle) }
    }

    /// Reads a metadata block and verifies it. Must not be called for a block that an operation of this thread holds.
    pub(crate) fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }
}
