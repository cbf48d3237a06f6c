//! Repair of an image. Everything is tried in a staging first. [`operations::repair::make_plan`] alternates between the
//! check and the fixes here, lowest level first, until the check finds nothing.

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

use disk::BlockDevice;
use operations::repair::{Fix, Repairer, Staging, repair_lowest};
use vfs::Result;
use vfs::check::{Finding, Observer, Options, Summary};

use crate::check::codes::IO;
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};

pub use log_writer::open_log;
pub(crate) use log_writer::{LogWriter, open_writer};
pub use superblock::take_superblock;

/// Inode of the root directory.
const ROOT: u32 = 2;

/// Repairs an ext2, ext3 or ext4 image.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    /// Options of the checks.
    pub options: Options,
}

/// Context of one round of repair.
pub(crate) struct RepairJob {
    /// Staging that receives the changes.
    pub(crate) staging: Arc<Staging>,
    /// Options for further checks of parts of the image.
    pub(crate) options: Options,
    /// True if the device read everything that the check needs. Otherwise it is unknown which space is free.
    pub(crate) is_all_known: bool,
}

/// All fixes by level, the lowest level first.
const LEVELS: &[&[Fix<RepairJob>]] = &[
    volume::PLACES,
    files::INODES,
    files::SHARING,
    files::DIRECTORIES,
    volume::SPACE,
    files::NAMES,
    files::LINKS,
    volume::COUNTS,
];

/// Fixes that may run if the device fails to read part of the metadata: only those that conclude nothing from missing
/// structures. For example, an entry may lead to an inode that cannot be read and whose blocks look free.
const LEVELS_OF_A_PART: &[&[Fix<RepairJob>]] = &[volume::BY_THEMSELVES, files::BY_THEMSELVES];

impl Repairer for Repair {
    fn begin(&self, staging: &Arc<Staging>, is_sound: bool) -> Result<()> {
        volume::begin(staging, is_sound)
    }

    fn check(&self, staging: &Arc<Staging>, observer: &dyn Observer) -> Result<Summary> {
        crate::check::check(Arc::clone(staging) as _, &self.options, observer)
    }

    fn repair(&self, staging: &Arc<Staging>, findings: &[Finding]) -> Result<bool> {
        let is_all_known = !findings.iter().any(|finding| finding.code == IO);
        let job = RepairJob { staging: Arc::clone(staging), options: self.options, is_all_known };
        let levels = if is_all_known { LEVELS } else { LEVELS_OF_A_PART };
        repair_lowest(staging, &job, levels, findings)
    }

    fn finish(&self, staging: &Arc<Staging>) -> Result<()> {
        volume::finish(staging)
    }

    /// Returns the range of the superblock, which contains the time of the last change.
    fn witnesses(&self, _device: &dyn BlockDevice) -> Vec<Range<u64>> {
        let range = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64;
        Vec::from([range])
    }
}
