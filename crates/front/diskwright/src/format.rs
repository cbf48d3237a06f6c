//! Format of an image.

/// Format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "build", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Format {
    /// ext2, ext3 or ext4, depending on the features.
    Ext4,
    /// XFS.
    Xfs,
}

impl Format {
    /// Returns the name: `ext4` or `xfs`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}
