//! What a build needs of a format: making an empty file system, filling it and ending that.

mod ext4;
mod xfs;

use std::sync::Arc;

use blockdev::BlockDevice;
use vfs::{FileSystem, Ino};

use super::dedupe::ShareBlocks;
use super::estimate::Estimate;
use super::{BuildError, BuildOptions, Format};

/// A format with the options of a build.
pub(super) trait Maker {
    /// Decides where everything of an image of `size` bytes goes. The errors `NoSpace` and `Invalid`
    /// say that there is no file system of this size.
    fn plan(&self, size: u64, inodes: Inodes) -> Result<Box<dyn Plan>, BuildError>;

    /// The smallest image that is made, in bytes.
    fn size_min(&self) -> u64;

    /// How many inodes there are to be, if that has to be decided before there are any.
    fn inodes(&self) -> InodeRule;

    /// The options, as on the command line, that make one reading of the source enough.
    fn single_pass_options(&self) -> &'static str {
        match self.inodes() {
            InodeRule::OnDemand => "--size",
            InodeRule::Chosen(_) | InodeRule::Fitted(_) => "--size and --inodes",
        }
    }
}

/// Who decides how many inodes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InodeRule {
    /// The options.
    Chosen(Inodes),
    /// The source; so many unless it calls for more.
    Fitted(Inodes),
    /// Nobody: they are made when they are needed. What space they may take has a usual limit, which is
    /// raised for a source that calls for more.
    OnDemand,
}

/// A number of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inodes {
    /// One for this many bytes of the image.
    PerBytes(u64),
    /// At least this many.
    Count(u32),
}

impl InodeRule {
    /// The number to start from.
    pub(super) fn first(self) -> Inodes {
        match self {
            Self::Chosen(inodes) | Self::Fitted(inodes) => inodes,
            // The usual limit will do.
            Self::OnDemand => Inodes::PerBytes(u64::MAX),
        }
    }
}

/// A file system that can be made.
pub(super) trait Plan {
    /// Block size in bytes.
    fn block_size(&self) -> u64;

    /// Blocks that are free when it is made.
    fn free_blocks(&self) -> u64;

    /// Most inodes that there can be, as far as a limit is set to them.
    fn inodes_max(&self) -> u64;

    /// Free blocks that ordinary users may not take.
    fn unavailable(&self) -> u64;

    /// Begins to reckon what a source takes. `None` if that cannot be told from its entries.
    fn estimate(&self) -> Option<Box<dyn Estimate>>;

    /// Makes it on a device of zeros and opens it to be filled.
    fn make(&self, device: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>>;
}

/// A file system that is being filled.
pub(super) trait Fresh {
    /// Its operations.
    fn file_system(&self) -> &dyn FileSystem;

    /// Whether its UUID must stay what it is, because checksums depend on it.
    fn uuid_is_fixed(&self) -> bool;

    /// Protects a file by fs-verity; its digest. A trial only takes the space for it.
    fn protect(&self, ino: Ino, is_trial: bool, threads: usize) -> vfs::Result<Option<[u8; 32]>>;

    /// How its files share blocks, if they can.
    fn sharing(&self) -> Option<&dyn ShareBlocks> {
        None
    }

    /// Writes all metadata, and another UUID if one is given.
    fn finish(&self, uuid: Option<[u8; 16]>) -> vfs::Result<()>;
}

/// The format that the options ask for. Options that only another one has are refused.
pub(super) fn maker(options: &BuildOptions) -> Result<Box<dyn Maker + '_>, BuildError> {
    refuse_foreign(options)?;
    Ok(match options.format {
        Format::Ext4 => Box::new(ext4::Ext4Maker::new(options)?),
        Format::Xfs => Box::new(xfs::XfsMaker::new(options)?),
    })
}

/// Refuses the first option that the format does not have.
fn refuse_foreign(options: &BuildOptions) -> Result<(), BuildError> {
    let only_ext4 = [
        ("--inodes", options.inodes.is_some(), "XFS makes inodes when they are needed"),
        (
            "--bytes-per-inode",
            options.bytes_per_inode.is_some(),
            "XFS makes inodes when they are needed",
        ),
        ("--hash-seed", options.hash_seed.is_some(), "XFS hashes names without a seed"),
        ("--no-journal", options.no_journal, "XFS always has a log"),
        ("--fs-verity", !options.output.fs_verity.is_empty(), "XFS has no files of that kind"),
        ("tuning", options.tuning != super::Tuning::default(), "they shape ext4 images only"),
    ];
    let layout = "it shapes XFS images only";
    let only_xfs = [
        (
            "--dir-block-size",
            options.dir_block_size.is_some(),
            "ext4 directories have the block size",
        ),
        ("--ag-count", options.ag_count.is_some(), layout),
        ("--ag-size", options.ag_bytes.is_some(), layout),
        ("--log-size", options.log_bytes.is_some(), layout),
        ("--small", options.small, "ext4 images may have any size"),
        ("--dedupe", options.dedupe.is_some(), "files of ext4 cannot share blocks: give --fs xfs"),
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

/// The features of a build, as the list that a format parses.
fn feature_list(options: &BuildOptions) -> String {
    options.features.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
