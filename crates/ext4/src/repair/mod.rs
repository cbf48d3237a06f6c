//! Repairing an image. Everything is tried out in a staging first; [`repair::make_plan`] goes round between the check and
//! what is here, lowest level first, until the check finds nothing.

pub(crate) mod changes;
mod fields;
mod files;
mod groups;
mod image;
mod journal;
mod log_writer;
mod orphans;
mod quota;
mod replay;
mod reserve;
mod resize;
mod space;
mod superblock;
mod system_files;
mod volume;

use std::ops::Range;
use std::sync::Arc;

use ::repair::{Fix, Repairer, Staging, mend_lowest};
use blockdev::BlockDevice;
use check::{Finding, Observer, Options, Summary};
use vfs::Result;

use crate::check::codes::IO;
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};

pub use log_writer::open_log;
pub(crate) use log_writer::{LogWriter, open_writer};
pub(crate) use superblock::mended as mended_superblock;
pub use superblock::take_superblock;

/// The inode of the root directory.
const ROOT: u32 = 2;

/// Repairs an ext2, ext3 or ext4 image.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    /// How it is checked.
    pub options: Options,
}

/// What one round of mending knows.
pub(crate) struct Job {
    /// What is changed.
    pub(crate) staging: Arc<Staging>,
    /// How the image is checked, if parts of that are needed again.
    pub(crate) options: Options,
    /// Whether the device read all that the check needs. If not, nobody knows what is free.
    pub(crate) is_all_known: bool,
}

/// Everything that is mended, the lowest level first.
const LEVELS: &[&[Fix<Job>]] = &[
    volume::PLACES,
    files::INODES,
    files::SHARING,
    files::DIRECTORIES,
    volume::SPACE,
    files::NAMES,
    files::LINKS,
    volume::COUNTS,
];

/// What is mended where the device fails to read a place that the check needs: only what concludes nothing from what was
/// not found. An entry may lead to an inode that cannot be read, and its blocks look free.
const LEVELS_OF_A_PART: &[&[Fix<Job>]] = &[volume::BY_THEMSELVES, files::BY_THEMSELVES];

impl Repairer for Repair {
    fn begin(&self, staging: &Arc<Staging>, is_sound: bool) -> Result<()> {
        volume::begin(staging, is_sound)
    }

    fn check(&self, staging: &Arc<Staging>, observer: &dyn Observer) -> Result<Summary> {
        crate::check::check(Arc::clone(staging) as _, &self.options, observer)
    }

    fn mend(&self, staging: &Arc<Staging>, findings: &[Finding]) -> Result<bool> {
        let is_all_known = !findings.iter().any(|finding| finding.code == IO);
        let job = Job { staging: Arc::clone(staging), options: self.options, is_all_known };
        let levels = if is_all_known { LEVELS } else { LEVELS_OF_A_PART };
        mend_lowest(staging, &job, levels, findings)
    }

    fn finish(&self, staging: &Arc<Staging>) -> Result<()> {
        volume::finish(staging)
    }

    /// The superblock, which has the time of the last change.
    fn witnesses(&self, _device: &dyn BlockDevice) -> Vec<Range<u64>> {
        let range = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64;
        Vec::from([range])
    }
}
