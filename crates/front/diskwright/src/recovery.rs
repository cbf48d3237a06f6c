//! Results of recovery.

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
