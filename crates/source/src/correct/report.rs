//! What was corrected.

use serde::Serialize;

/// What the corrections of a source did, in its last reading to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CorrectionReport {
    /// Files that were left out, those in directories that were left out among them.
    pub excluded: u64,
    /// Files that a device table made.
    pub made: u64,
    /// Files with another owner or group.
    pub owners: u64,
    /// Files with other permissions.
    pub permissions: u64,
    /// Files that a manifest changed.
    pub listed: u64,
    /// Extended attributes that were set by name, capabilities among them.
    pub xattrs: u64,
    /// Files that got a label of SELinux.
    pub labels: u64,
    /// Files that the file contexts give no label.
    pub unlabelled: u64,
    /// What may not be as it was meant: patterns that stand for nothing, and the like.
    pub warnings: Vec<String>,
}
