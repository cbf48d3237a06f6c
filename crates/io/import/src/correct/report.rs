//! Report of corrections.

use serde::Serialize;

/// Effects of the corrections in the last complete pass over a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CorrectionReport {
    /// Number of excluded files, including those in excluded directories.
    pub excluded: u64,
    /// Number of files that device tables created.
    pub made: u64,
    /// Number of files whose owner or group changed.
    pub owners: u64,
    /// Number of files whose permissions changed.
    pub permissions: u64,
    /// Number of files changed by manifests.
    pub listed: u64,
    /// Number of extended attributes set by name, including capabilities.
    pub xattrs: u64,
    /// Number of files that got an SELinux label.
    pub labels: u64,
    /// Number of files without a label in the file contexts.
    pub unlabelled: u64,
    /// Possible mistakes, such as patterns that match nothing.
    pub warnings: Vec<String>,
}
