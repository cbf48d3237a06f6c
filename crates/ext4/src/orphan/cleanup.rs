//! Ending what a crash left unfinished.

/// What [`crate::Ext4`] did about orphans when it opened the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// Inodes whose blocks past the size were freed.
    pub truncated: u32,
    /// Inodes without names that were freed.
    pub freed: u32,
}
