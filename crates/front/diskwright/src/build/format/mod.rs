//! Interface between a build and the formats: creating, filling and finishing an empty file system.

mod ext4;
mod xfs;

use std::sync::Arc;
use vfs::hint::{Advice, Hint, Setting};

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
    fn single_pass_options(&self) -> String {
        match self.inodes() {
            InodeRule::OnDemand => Setting::SIZE.to_string(),
            InodeRule::Chosen(_) | InodeRule::Fitted(_) => {
                format!("{} and {}", Setting::SIZE, Setting::INODES)
            }
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
    let option = |name| Advice::hint(Hint::Use(Setting::new(name)));
    let only_ext4 = [
        (
            option("inodes"),
            options.inodes.is_some(),
            Advice::text("XFS allocates inodes on demand"),
        ),
        (
            option("bytes-per-inode"),
            options.bytes_per_inode.is_some(),
            Advice::text("XFS allocates inodes on demand"),
        ),
        (option("hash-seed"), options.hash_seed.is_some(), Advice::text("XFS has no hash seed")),
        (option("no-journal"), options.no_journal, Advice::text("XFS always has a log")),
        (
            option("fs-verity"),
            !options.output.fs_verity.is_empty(),
            Advice::text("XFS does not support such files"),
        ),
        (
            Advice::text("tuning"),
            options.tuning != super::Tuning::default(),
            Advice::text("they are for ext4 images only"),
        ),
    ];
    let layout = Advice::text("it is for XFS images only");
    let only_xfs = [
        (
            option("dir-block-size"),
            options.dir_block_size.is_some(),
            Advice::text("the directory block size of ext4 is the block size"),
        ),
        (option("ag-count"), options.ag_count.is_some(), layout),
        (option("ag-size"), options.ag_bytes.is_some(), layout),
        (option("log-size"), options.log_bytes.is_some(), layout),
        (Advice::text("-l agnum"), options.log_group.is_some(), layout),
        (Advice::text("a realtime device"), options.realtime_device.is_some(), layout),
        (option("small"), options.small, Advice::text("ext4 has no minimum size")),
        (
            option("dedupe"),
            options.dedupe.is_some(),
            Advice::before("ext4 files cannot share blocks; use ", Hint::Use(Setting::FORMAT)),
        ),
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
