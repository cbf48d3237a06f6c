//! Interface between a build and the formats: creating, filling and finishing an empty file system.

mod ext4;
mod xfs;

use std::sync::Arc;

use disk::BlockDevice;
use vfs::{FileSystem, Ino};

use super::dedupe::ShareBlocks;
use super::estimate::Estimate;
use super::{BuildError, BuildOptions, Format};

/// Format with the options of a build.
pub(super) trait Maker {
    /// Plans the layout of an image of `size` bytes. `NoSpace` and `Invalid` mean that no file system of this size is
    /// possible.
    fn plan(&self, size: u64, inodes: Inodes) -> Result<Box<dyn Plan>, BuildError>;

    /// Returns the minimum image size in bytes.
    fn size_min(&self) -> u64;

    /// Returns the rule for the number of inodes.
    fn inodes(&self) -> InodeRule;

    /// Returns the options, as on the command line, that avoid a second reading of the source.
    fn single_pass_options(&self) -> &'static str {
        match self.inodes() {
            InodeRule::OnDemand => "--size",
            InodeRule::Chosen(_) | InodeRule::Fitted(_) => "--size and --inodes",
        }
    }
}

/// Rule for the number of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InodeRule {
    /// Set by the options.
    Chosen(Inodes),
    /// Determined by the source; this is the default and minimum.
    Fitted(Inodes),
    /// Allocated on demand. Their space has a default limit, which is raised if the source requires it.
    OnDemand,
}

/// Number of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inodes {
    /// One per this many bytes of the image.
    PerBytes(u64),
    /// At least this many.
    Count(u32),
}

impl InodeRule {
    /// Returns the number for the first attempt.
    pub(super) fn first(self) -> Inodes {
        match self {
            Self::Chosen(inodes) | Self::Fitted(inodes) => inodes,
            // This selects the default limit.
            Self::OnDemand => Inodes::PerBytes(u64::MAX),
        }
    }
}

/// Planned file system.
pub(super) trait Plan {
    /// Returns the block size in bytes.
    fn block_size(&self) -> u64;

    /// Returns the number of free blocks after creation.
    fn free_blocks(&self) -> u64;

    /// Returns the maximum number of inodes, if it is limited.
    fn inodes_max(&self) -> u64;

    /// Returns the number of free blocks that ordinary users cannot allocate.
    fn unavailable(&self) -> u64;

    /// Creates an empty estimate, or `None` if the layout cannot be estimated from entries.
    fn estimate(&self) -> Option<Box<dyn Estimate>>;

    /// Creates the file system on a zeroed device and opens it for filling.
    fn make(&self, device: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>>;
}

/// File system that is being filled.
pub(super) trait Fresh {
    /// Returns its operations.
    fn file_system(&self) -> &dyn FileSystem;

    /// Returns whether the UUID must not change because checksums depend on it.
    fn uuid_is_fixed(&self) -> bool;

    /// Protects a file with fs-verity and returns its digest. A trial only allocates the space.
    fn protect(&self, ino: Ino, is_trial: bool, threads: usize) -> vfs::Result<Option<[u8; 32]>>;

    /// Returns the interface for block sharing, if supported.
    fn sharing(&self) -> Option<&dyn ShareBlocks> {
        None
    }

    /// Writes all metadata, with another UUID if one is given.
    fn finish(&self, uuid: Option<[u8; 16]>) -> vfs::Result<()>;
}

/// Returns the maker for the selected format. Rejects options of the other format.
pub(super) fn maker(options: &BuildOptions) -> Result<Box<dyn Maker + '_>, BuildError> {
    refuse_foreign(options)?;
    Ok(match options.format {
        Format::Ext4 => Box::new(ext4::Ext4Maker::new(options)?),
        Format::Xfs => Box::new(xfs::XfsMaker::new(options)?),
    })
}

/// Rejects the first option that the format does not have.
fn refuse_foreign(options: &BuildOptions) -> Result<(), BuildError> {
    let only_ext4 = [
        ("--inodes", options.inodes.is_some(), "XFS allocates inodes on demand"),
        ("--bytes-per-inode", options.bytes_per_inode.is_some(), "XFS allocates inodes on demand"),
        ("--hash-seed", options.hash_seed.is_some(), "XFS has no hash seed"),
        ("--no-journal", options.no_journal, "XFS always has a log"),
        ("--fs-verity", !options.output.fs_verity.is_empty(), "XFS does not support such files"),
        ("tuning", options.tuning != super::Tuning::default(), "they are for ext4 images only"),
    ];
    let layout = "it is for XFS images only";
    let only_xfs = [
        (
            "--dir-block-size",
            options.dir_block_size.is_some(),
            "the directory block size of ext4 is the block size",
        ),
        ("--ag-count", options.ag_count.is_some(), layout),
        ("--ag-size", options.ag_bytes.is_some(), layout),
        ("--log-size", options.log_bytes.is_some(), layout),
        ("-l agnum", options.log_group.is_some(), layout),
        ("a realtime device", options.realtime_device.is_some(), layout),
        ("--small", options.small, "ext4 has no minimum size"),
        ("--dedupe", options.dedupe.is_some(), "ext4 files cannot share blocks; use --fs xfs"),
    ];
    let foreign = match options.format {
        Format::Ext4 => &only_xfs[..],
        Format::Xfs => &only_ext4[..],
    };
    match foreign.iter().find(|(_, given, _)| *given) {
        Some(&(option, _, why)) => Err(BuildError::ForeignOption { option, why }),
        None => Ok(()),
    }
}

/// Returns the feature list in the syntax of the format's parser.
fn feature_list(options: &BuildOptions) -> String {
    options.features.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
