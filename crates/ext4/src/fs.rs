//! An open file system.

use std::sync::Arc;

use blockdev::BlockDevice;
use operation::Mode;
use operation::profile::ListingProfile;
use operation::waiting::{Waiting, WaitingPolicy};
use transaction::locks::Mutex;
use transaction::{BufferRef, Engine, Tag};
use vfs::{Ino, Result, Timestamp};

use crate::alloc::spread::Spread;
use crate::format::address::Block;
use crate::format::features::Incompat;
use crate::format::hash::NameHasher;
use crate::format::inode::ROOT_INO;
use crate::format::superblock::Superblock;
use crate::orphan::{OrphanPolicy, Orphans};
use crate::params::clock::Clock;
use crate::volume::Volume;
use operation::locks::InodeLocks;

/// Memory for cached metadata unless told otherwise, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 256 << 20;

/// How to open a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Memory for cached metadata, in bytes.
    pub cache_bytes: usize,
    /// Read an image whose journal was not replayed as it lies: what the journal holds is missing.
    pub norecovery: bool,
    /// When operations record orphans.
    pub orphans: OrphanPolicy,
    /// When files that are made wait in memory, to be entered into their directory many together: in large
    /// directories, unless told otherwise. `None`: never. None wait in an image without a journal.
    ///
    /// After a crash, files that waited may be missing in any order, each wholly; `fsync` of any file or directory,
    /// `sync` and closing bring all of them to the device.
    pub waiting: Option<WaitingPolicy>,
    /// The time that the file system writes by itself (of deletions, of commits, of its closing), and
    /// that the generations of new inodes follow from, instead of the machine's: the same operations
    /// then give the same bytes. For tests and measurements only.
    pub time: Option<Timestamp>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let orphans = OrphanPolicy::default();
        Self {
            cache_bytes: CACHE_BYTES_DEFAULT,
            norecovery: false,
            orphans,
            waiting: Some(WaitingPolicy::LARGE_IN_PARTS),
            time: None,
        }
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
    /// What the generations of new inodes begin at.
    pub(crate) generations: u32,
    /// What the replay of the journal did.
    pub(crate) recovered: crate::log::Report,
    pub(crate) mode: Mode,
    pub(crate) found: Found,
    pub(crate) clock: Clock,
    pub(crate) orphans: Orphans,
    pub(crate) listings: ListingProfile,
    pub(crate) waiting: Waiting<NameHasher>,
}

/// What an image was like before anything was done to it.
pub(crate) struct Found {
    /// Its superblock.
    pub(crate) superblock: Superblock,
    /// Damage that does not keep the image from being read.
    pub(crate) remarks: Vec<String>,
}

impl Ext4 {
    pub(crate) fn root_ino(&self) -> Ino {
        ROOT_INO
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.mode.check_writable()
    }

    /// The device that file contents lie on.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.engine.device()
    }

    /// Whether the journal held changes that were not in their places when the image was opened.
    pub fn needs_recovery(&self) -> bool {
        self.found.superblock.features.incompat(Incompat::RECOVER)
    }

    /// The superblock as it lay in the image when that was opened: [`Self::superblock`] may have
    /// changed since, because replaying a journal changes it.
    pub fn superblock_found(&self) -> &Superblock {
        &self.found.superblock
    }

    /// Damage that does not keep the image from being read.
    pub fn remarks(&self) -> &[String] {
        &self.found.remarks
    }

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.sb
    }

    /// A verified metadata block.
    pub(crate) fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }

    /// Whether checksums depend on the uuid, so that it cannot change.
    pub fn uuid_is_fixed(&self) -> bool {
        self.volume.uuid_is_seed()
    }
}
