//! Orphans: inodes that are kept although they have no name, and inodes whose blocks are freed in several operations.
//!
//! An orphan is recorded in a slot of the orphan file or, if that is full or missing, in the list that starts in the
//! superblock. The transaction of the operation that creates or ends an orphan also adds or removes its record. After a
//! crash, the records are therefore exactly those of unfinished work, which the next opening completes.
//!
//! Invariants:
//! - An inode is recorded at most once, and [`OpenInodes`] contains the position. Changing it requires the inode's
//!   exclusive lock.
//! - A slot's bit in [`slots`] is set before the record is written and cleared after the operation that removed the
//!   record has committed. So two operations never write the same slot at a time.
//! - The list in memory equals the list on disk after all operations that held its lock.

mod cleanup;
mod inactivate;
mod names;
mod pending;
mod record;
mod slots;

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use engine::locks::Mutex;
use operations::chain::Chain;
use operations::opens::OpenInodes;
use vfs::Ino;

pub use cleanup::OrphanReport;
pub(crate) use operations::orphans::Inactivation;
pub(crate) use pending::Pending;

use slots::{Slot, Slots};

/// Condition under which operations record orphans. Only benchmarks change it; the default is the fastest safe
/// choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// If an operation does not fit into one transaction, or if the inode is open.
    #[default]
    WhenNeeded,
    /// At every truncation, and when an inode with blocks loses its last name, as kernels do.
    Always,
    /// Like `Always`, but in the list even if there is an orphan file.
    ListOnly,
    /// Never. A crash then leaks the space of unlinked files. For comparisons only.
    Off,
}

/// Position of an orphan's record. Not visible to other crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanLocation {
    /// A slot of the orphan file.
    File(Slot),
    /// The list.
    List,
    /// No record: the policy is `Off`, or the image is still being built.
    Memory,
}

/// The orphans and open inodes of a file system.
pub(crate) struct Orphans {
    policy: OrphanPolicy,
    /// True if orphans are recorded on disk.
    records: bool,
    table: OpenInodes<OrphanLocation>,
    /// The orphan file, set once it was read.
    slots: OnceLock<Slots>,
    list: Mutex<Chain>,
    /// True if a truncation has failed half way since the file system was opened.
    interrupted: AtomicBool,
    /// Result of the cleanup of the orphans that were found.
    cleaned: OnceLock<OrphanReport>,
}

impl Orphans {
    /// Without `records`, orphans are kept in memory only.
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

    /// Returns whether an inode is open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.table.is_open(ino)
    }

    /// Returns whether an inode is recorded as an orphan.
    pub(crate) fn is_recorded(&self, ino: Ino) -> bool {
        self.table.place(ino).is_some()
    }

    /// Returns whether every truncation and removal is recorded, even if not necessary.
    pub(crate) fn records_all(&self) -> bool {
        matches!(self.policy, OrphanPolicy::Always | OrphanPolicy::ListOnly)
    }

    /// Returns the position for a new record. Claims the slot if it is one.
    fn claim(&self) -> OrphanLocation {
        if !self.records {
            return OrphanLocation::Memory;
        }
        let slots = self.slots.get().filter(|_| self.policy != OrphanPolicy::ListOnly);
        slots.and_then(Slots::claim).map_or(OrphanLocation::List, OrphanLocation::File)
    }
}
