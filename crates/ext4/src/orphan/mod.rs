//! Orphans: inodes that must not be lost though no name leads to them, and those whose blocks are
//! being freed in several operations.
//!
//! An orphan is recorded in a slot of the orphan file or, where that is full or absent, on the list
//! that starts in the superblock. A record is made and removed in the transaction of the operation
//! that makes the inode an orphan or ends it, so that a crash leaves exactly the records of what is
//! unfinished, and whoever opens the file system next ends it.
//!
//! Invariants:
//! - An inode is recorded at most once, and [`OpenInodes`] says where. Only who has the inode's lock
//!   exclusively changes that.
//! - A slot's bit in [`slots`] is set from before the record is written until after the operation
//!   that removed it has committed; so two operations never write the same slot at a time.
//! - The list in memory is what is on disk after all operations that held its lock.

mod cleanup;
mod inactivate;
mod names;
mod pending;
mod record;
mod slots;

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use operation::chain::Chain;
use operation::opens::OpenInodes;
use transaction::locks::Mutex;
use vfs::Ino;

pub use cleanup::OrphanReport;
pub(crate) use operation::orphans::Inactivation;
pub(crate) use pending::Pending;

use slots::{Slot, Slots};

/// When operations record orphans. For benchmarks only: the default is the fastest that is safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// Where an operation does not fit one transaction or the inode is open.
    #[default]
    WhenNeeded,
    /// At every truncation, and when the last name of an inode with blocks goes, as kernels do.
    Always,
    /// As `Always`, but on the list even if there is an orphan file.
    ListOnly,
    /// Never. A crash then loses the space of unlinked files: for comparison only.
    Off,
}

/// Where an orphan is recorded. No other crate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the orphan file.
    File(Slot),
    /// On the list.
    List,
    /// Nowhere: the policy is `Off`, or nobody relies on the image yet.
    Memory,
}

/// The orphans and open inodes of a file system.
pub(crate) struct Orphans {
    policy: OrphanPolicy,
    /// Whether orphans are recorded on disk at all.
    records: bool,
    table: OpenInodes<Place>,
    /// The orphan file, once it was read.
    slots: OnceLock<Slots>,
    list: Mutex<Chain>,
    /// Whether a truncation has failed half way since the file system was opened.
    interrupted: AtomicBool,
    /// What was done about the orphans that were found.
    cleaned: OnceLock<OrphanReport>,
}

impl Orphans {
    /// Without `records`, orphans are known in memory only.
    pub(crate) fn new(policy: OrphanPolicy, records: bool) -> Self {
        Self {
            policy,
            records: records && policy != OrphanPolicy::Off,
            table: OpenInodes::new(),
            slots: OnceLock::new(),
            list: Mutex::default(),
            interrupted: AtomicBool::new(false),
            cleaned: OnceLock::new(),
        }
    }

    /// Whether somebody has an inode open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.table.is_open(ino)
    }

    /// Whether an inode is recorded as an orphan.
    pub(crate) fn is_recorded(&self, ino: Ino) -> bool {
        self.table.place(ino).is_some()
    }

    /// Whether each truncation and removal is recorded, be it needed or not.
    pub(crate) fn records_all(&self) -> bool {
        matches!(self.policy, OrphanPolicy::Always | OrphanPolicy::ListOnly)
    }

    /// A place for a new orphan. A slot is claimed by this.
    fn claim(&self) -> Place {
        if !self.records {
            return Place::Memory;
        }
        let slots = self.slots.get().filter(|_| self.policy != OrphanPolicy::ListOnly);
        slots.and_then(Slots::claim).map_or(Place::List, Place::File)
    }
}
