//! An open file system.

use std::num::NonZeroUsize;
use std::sync::Arc;

use disk::BlockDevice;
use engine::locks::Mutex;
use engine::{BufferRef, Engine, Tag};
use operations::Mode;
use operations::deferred_create::{DeferPolicy, DeferredCreates};
use operations::profile::ListingProfile;
use vfs::{Ino, Result, Timestamp};

use crate::alloc::spread::Spread;
use crate::format::address::Block;
use crate::format::features::Incompat;
use crate::format::hash::NameHasher;
use crate::format::inode::ROOT_INO;
use crate::format::superblock::Superblock;
use crate::mmp::{MmpDevice, MmpOptions};
use crate::orphan::{OrphanPolicy, Orphans};
use crate::params::clock::Clock;
use crate::volume::Volume;
use operations::locks::InodeLocks;

/// Default size of the metadata cache, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// Options for opening a file system.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Size of the metadata cache, in bytes.
    pub cache_bytes: usize,
    /// Read an image that needs recovery without replaying its journal. Changes that only the journal contains are
    /// missing.
    pub norecovery: bool,
    /// When operations record orphans.
    pub orphans: OrphanPolicy,
    /// Policy for deferred creates ([`operations::deferred_create`]), or `None` (the default) to enter each file into
    /// its directory at once.
    ///
    /// The order of changes is weaker with a policy: after a crash, any of the files created since the last sync in a
    /// large directory may be missing, each as a whole. All other changes are those up to some moment. `fsync` of any
    /// file or directory, `sync` and closing make all files durable. Images without a journal never defer.
    pub defer_creates: Option<DeferPolicy>,
    /// Number of threads for each step of a checkpoint, even of a small one. By default, large checkpoints use one
    /// thread for each processor, at most eight.
    pub checkpoint_threads: Option<NonZeroUsize>,
    /// Fixed time for the timestamps that the file system sets itself (deletion, commit, closing) and for inode
    /// generations, instead of the clock. The same operations then produce the same bytes. For tests and measurements
    /// only.
    pub time: Option<Timestamp>,
    /// Keys of encrypted files and directories.
    #[cfg(feature = "fscrypt")]
    pub keys: crate::fscrypt::EncryptionKeys,
    /// How the image is claimed if it has multiple mount protection.
    pub mmp: MmpOptions,
}

impl OpenOptions {
    /// Policy for deferred creates in large directories, for [`Self::defer_creates`].
    pub const DEFER_LARGE: DeferPolicy = DeferPolicy::LARGE_IN_PARTS;
}

impl Default for OpenOptions {
    fn default() -> Self {
        let orphans = OrphanPolicy::default();
        Self {
            cache_bytes: CACHE_BYTES_DEFAULT,
            norecovery: false,
            orphans,
            defer_creates: None,
            checkpoint_threads: None,
            time: None,
            #[cfg(feature = "fscrypt")]
            keys: crate::fscrypt::EncryptionKeys::new(),
            mmp: MmpOptions::default(),
        }
    }
}

/// An open ext2, ext3 or ext4 file system below the layer of deferred creates (see [`crate::Ext4`]).
pub struct Ext4Core {
    pub(crate) engine: Engine,
    pub(crate) volume: Arc<Volume>,
    pub(crate) locks: InodeLocks,
    pub(crate) spread: Spread,
    /// Protects the reference counts of the inodes that store attribute values.
    pub(crate) value_inodes: Mutex<()>,
    /// Start value of the generations of new inodes.
    pub(crate) generations: u32,
    /// Result of the journal replay.
    pub(crate) recovered: crate::log::RecoveryReport,
    pub(crate) mode: Mode,
    pub(crate) found: StateBefore,
    pub(crate) clock: Clock,
    pub(crate) orphans: Orphans,
    pub(crate) listings: ListingProfile,
    pub(crate) deferred: DeferredCreates<NameHasher>,
    /// Keys of encrypted files and directories.
    pub(crate) key_cache: crate::fscrypt::KeyCache,
    /// Claim of the image, with multiple mount protection.
    pub(crate) claim: Option<Arc<MmpDevice>>,
}

/// State of an image before opening changed anything.
pub(crate) struct StateBefore {
    /// Its superblock.
    pub(crate) superblock: Superblock,
    /// Damage that does not prevent reading the image.
    pub(crate) remarks: Vec<String>,
}

impl Ext4Core {
    pub(crate) fn root_ino(&self) -> Ino {
        ROOT_INO
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.mode.check_writable()
    }

    /// Returns the device that stores the file contents.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.engine.device()
    }

    /// Returns whether the journal contained changes to replay when the image was opened.
    pub fn needs_recovery(&self) -> bool {
        self.found.superblock.features.incompat(Incompat::RECOVER)
    }

    /// Returns the superblock as it was when the image was opened. [`Self::superblock`] may differ, because the journal
    /// replay can change it.
    pub fn superblock_found(&self) -> &Superblock {
        &self.found.superblock
    }

    /// Returns damage that does not prevent reading the image.
    pub fn remarks(&self) -> &[String] {
        &self.found.remarks
    }

    /// Returns the superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.sb
    }

    /// Reads a metadata block and verifies it.
    pub(crate) fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }

    /// Returns whether checksums depend on the uuid, so that the uuid cannot change.
    pub fn uuid_is_fixed(&self) -> bool {
        self.volume.uuid_is_seed()
    }
}
