//! Common interface of writable file systems of both formats: opening, closing and recovery.

use std::sync::Arc;

use disk::BlockDevice;
use ext4::Ext4;
use operations::RunOperations;
use operations::profile::MeasuresListings;
use xfs::Xfs;

use crate::OpenImage;
use crate::image::Kind;

/// File system that is open for writing.
pub(crate) trait Writable: Send + Sync {
    fn file_system(&self) -> &dyn MeasuresListings;
    fn recovery(&self) -> RecoverReport;
    /// Returns the number of closed checkpoints, or `None` without a log.
    fn checkpoints_closed(&self) -> Option<u64>;
    fn close(self: Box<Self>) -> vfs::Result<()>;
}

/// Opens a file system of a known format. Its journal or log is replayed first.
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

/// Result of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct RecoverReport {
    /// Number of replayed transactions of the journal or log.
    pub transactions: u64,
    /// Number of unlinked files that were freed.
    pub orphans_freed: u64,
    /// Format-specific results.
    #[cfg_attr(feature = "build", serde(flatten))]
    pub details: RecoverDetails,
}

/// Format-specific results of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
#[cfg_attr(feature = "build", serde(untagged))]
#[non_exhaustive]
pub enum RecoverDetails {
    /// ext4, ext3 and ext2.
    Ext {
        /// Number of blocks written.
        blocks_replayed: u64,
        /// Number of journal blocks skipped because a later transaction had revoked them.
        blocks_revoked: u64,
        /// Number of files whose truncation was completed.
        orphans_truncated: u64,
        /// Error number that the kernel stored in the journal.
        journal_errno: Option<i32>,
    },
    /// XFS.
    Xfs {
        /// Number of log items replayed.
        items_replayed: u64,
        /// Number of log items skipped because their buffer was cancelled later or is newer.
        items_skipped: u64,
        /// Number of completed intents.
        intents: u64,
    },
}

impl RecoverReport {
    /// Returns whether there was nothing to recover.
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

    /// Returns the error number that a kernel stored in the journal after detecting damage.
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
