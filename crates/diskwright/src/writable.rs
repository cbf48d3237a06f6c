//! What is different about the formats when one is open for writing: opening, closing, and what recovery
//! had to do.

use std::sync::Arc;

use blockdev::BlockDevice;
use ext4::Ext4;
use operation::RunOperations;
use operation::profile::MeasuresListings;
use xfs::Xfs;

use crate::OpenImage;
use crate::image::Kind;

/// A file system of some format that is open for writing.
pub(crate) trait Writable: Send + Sync {
    fn file_system(&self) -> &dyn MeasuresListings;
    fn recovery(&self) -> RecoverReport;
    /// Checkpoints that were closed; `None` without a log.
    fn checkpoints_closed(&self) -> Option<u64>;
    fn close(self: Box<Self>) -> vfs::Result<()>;
}

/// Opens the file system of a known format. What its journal or log holds is replayed first.
pub(crate) fn open(
    kind: Kind,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> vfs::Result<Box<dyn Writable>> {
    Ok(match kind {
        Kind::Ext => Box::new(Ext4::open_writable(device, &options.ext4())?),
        Kind::Xfs => Box::new(Xfs::open_writable(device, &options.xfs())?),
    })
}

/// What was done to an image that a crash had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct RecoverReport {
    /// Transactions of the journal or log that were replayed.
    pub transactions: u64,
    /// Files without names that were removed.
    pub orphans_freed: u64,
    /// What there is in this format alone.
    #[cfg_attr(feature = "build", serde(flatten))]
    pub details: RecoverDetails,
}

/// What recovery does in one format alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
#[cfg_attr(feature = "build", serde(untagged))]
#[non_exhaustive]
pub enum RecoverDetails {
    /// For ext4, ext3 and ext2.
    Ext {
        /// Blocks written to their places.
        blocks_replayed: u64,
        /// Blocks in the journal that a later transaction had freed.
        blocks_revoked: u64,
        /// Files whose shrinking was finished.
        orphans_truncated: u64,
        /// The error number that the kernel had left in the journal.
        journal_errno: Option<i32>,
    },
    /// For XFS.
    Xfs {
        /// Items of the log that were brought to their places.
        items_replayed: u64,
        /// Items that were not: a later transaction had freed their buffer, or it was newer already.
        items_skipped: u64,
        /// Changes that the log announced, and that were not done yet: these were finished.
        intents: u64,
    },
}

impl RecoverReport {
    /// Whether there was nothing to do.
    pub fn is_nothing(&self) -> bool {
        let nothing = match self.details {
            RecoverDetails::Ext { .. } => RecoverDetails::Ext {
                blocks_replayed: 0,
                blocks_revoked: 0,
                orphans_truncated: 0,
                journal_errno: None,
            },
            RecoverDetails::Xfs { .. } => {
                RecoverDetails::Xfs { items_replayed: 0, items_skipped: 0, intents: 0 }
            }
        };
        *self == Self { transactions: 0, orphans_freed: 0, details: nothing }
    }

    /// The error number that a kernel left in the journal when it met damage.
    pub fn journal_errno(&self) -> Option<i32> {
        match self.details {
            RecoverDetails::Ext { journal_errno, .. } => journal_errno,
            RecoverDetails::Xfs { .. } => None,
        }
    }
}

impl Writable for Ext4 {
    fn file_system(&self) -> &dyn MeasuresListings {
        self
    }

    fn recovery(&self) -> RecoverReport {
        let (journal, orphans) = (self.recovered(), self.cleaned_orphans());
        RecoverReport {
            transactions: journal.transactions.into(),
            orphans_freed: orphans.freed.into(),
            details: RecoverDetails::Ext {
                blocks_replayed: journal.blocks_replayed,
                blocks_revoked: journal.blocks_revoked,
                orphans_truncated: orphans.truncated.into(),
                journal_errno: journal.errno,
            },
        }
    }

    fn checkpoints_closed(&self) -> Option<u64> {
        let engine = self.engine();
        engine.has_log().then(|| engine.checkpoints_closed())
    }

    fn close(self: Box<Self>) -> vfs::Result<()> {
        Ext4::close(*self)
    }
}

impl Writable for Xfs {
    fn file_system(&self) -> &dyn MeasuresListings {
        self
    }

    fn recovery(&self) -> RecoverReport {
        let log = self.recovered();
        RecoverReport {
            transactions: log.transactions,
            orphans_freed: self.freed_at_open(),
            details: RecoverDetails::Xfs {
                items_replayed: log.items_replayed,
                items_skipped: log.items_skipped,
                intents: log.intents,
            },
        }
    }

    fn checkpoints_closed(&self) -> Option<u64> {
        let engine = self.engine();
        engine.has_log().then(|| engine.checkpoints_closed())
    }

    fn close(self: Box<Self>) -> vfs::Result<()> {
        Xfs::close(*self)
    }
}
