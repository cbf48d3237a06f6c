//! Properties of an image.

use crate::Format;

/// Properties of an image. They are read as stored, without the changes in its journal or log. The free counts are the
/// exception: they are those after recovery, because the stored ones may be outdated. With
/// [`ImageOptions::norecovery`](crate::ImageOptions::norecovery) the free counts are also read as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Label, without padding.
    pub label: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Block size in bytes.
    pub block_size: u32,
    /// Total number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Total number of inodes (XFS: allocated inodes).
    pub inodes: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// State in which the image was left, as recorded in it.
    pub state: ImageState,
    /// True if the journal or log needs recovery. An unreadable log counts as one that does.
    pub needs_recovery: bool,
    /// Properties specific to the format.
    pub details: Details,
}

/// State of an image at the end of its last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageState {
    /// Cleanly closed.
    Clean,
    /// The kernel or a check found errors (ext4).
    HasErrors,
    /// Not unmounted, without a journal to replay (ext4).
    NotUnmounted,
    /// The log contains changes (XFS).
    LogDirty,
    /// The end of the log cannot be determined (XFS).
    LogUnreadable,
    /// The log or journal is on another device and is not examined.
    LogExternal,
}

/// Properties specific to a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Details {
    /// ext2, ext3 and ext4.
    Ext(ExtDetails),
    /// XFS.
    Xfs(XfsDetails),
}

/// Oldest version of the ext family that has all features of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExtVersion {
    /// No journal and no feature of ext4.
    Ext2,
    /// A journal and no feature of ext4.
    Ext3,
    /// A feature that ext3 does not have.
    Ext4,
}

/// Properties of an ext2, ext3 or ext4 image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtDetails {
    /// Version according to the features.
    pub version: ExtVersion,
    /// Features of the superblock.
    pub features: ::ext4::format::features::Features,
    /// Number of block groups.
    pub groups: u32,
    /// Number of blocks in a group.
    pub blocks_per_group: u32,
    /// Number of inodes in a group.
    pub inodes_per_group: u32,
    /// Size of a group descriptor in bytes.
    pub descriptor_size: u32,
    /// Number of blocks reserved for root.
    pub reserved_blocks: u64,
    /// Inode of the journal, or 0.
    pub journal_inode: u32,
    /// UUID of the journal, if it is on another device.
    pub journal_uuid: Option<[u8; 16]>,
    /// Inode of the orphan file, or 0.
    pub orphan_file_inode: u32,
    /// Number of errors that kernels recorded.
    pub errors: u32,
}

/// Properties of an XFS image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XfsDetails {
    /// Version, and features of the superblock.
    pub features: ::xfs::format::features::Features,
    /// Number of allocation groups.
    pub groups: u32,
    /// Number of blocks in a group.
    pub blocks_per_group: u32,
    /// Sector size in bytes.
    pub sector_size: u32,
    /// Directory block size in bytes.
    pub directory_block_size: u64,
    /// Alignment of inode chunks in blocks.
    pub inode_alignment: u32,
    /// Maximum share of the blocks that inodes may use, in percent; 0 for no limit.
    pub inodes_percent: u8,
    /// Stripe unit in blocks, or 0.
    pub stripe_unit: u32,
    /// Stripe width in blocks, or 0.
    pub stripe_width: u32,
    /// UUID in metadata blocks, if it differs from that of the image.
    pub metadata_uuid: Option<[u8; 16]>,
    /// Log.
    pub log: XfsLog,
    /// Realtime section, if there is one.
    pub realtime: Option<XfsRealtime>,
}

/// Properties of an XFS log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsLog {
    /// True if the log is on another device.
    pub is_external: bool,
    /// Size in blocks.
    pub blocks: u32,
    /// Stripe unit in bytes, or 0.
    pub stripe_unit: u32,
}

/// Properties of the realtime section of an XFS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsRealtime {
    /// Size in blocks.
    pub blocks: u64,
    /// Number of free blocks. In a zoned section, it includes blocks of deleted files that kernels have to collect.
    pub blocks_free: u64,
    /// Extent size in blocks.
    pub blocks_per_extent: u32,
}

impl ImageInfo {
    /// Returns the format.
    pub const fn format(&self) -> Format {
        match self.details {
            Details::Ext(_) => Format::Ext4,
            Details::Xfs(_) => Format::Xfs,
        }
    }

    /// Returns whether the image was cleanly closed. Valid only if it was opened with
    /// [`ImageOptions::norecovery`](crate::ImageOptions::norecovery).
    #[cfg(all(feature = "mount", unix))]
    pub(crate) fn is_clean(&self) -> bool {
        !self.needs_recovery && self.state == ImageState::Clean
    }

    /// Returns the name of the format and version: `ext2`, `ext3`, `ext4` or `xfs`.
    pub const fn format_name(&self) -> &'static str {
        match &self.details {
            Details::Ext(details) => details.version.name(),
            Details::Xfs(_) => Format::Xfs.name(),
        }
    }
}

impl ExtVersion {
    /// Returns the name: `ext2`, `ext3` or `ext4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => Format::Ext4.name(),
        }
    }
}
