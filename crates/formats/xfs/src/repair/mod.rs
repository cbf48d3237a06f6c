//! Repairs an image. All changes are made in a staging first. [`operations::repair::make_plan`] alternates between the check and
//! the fixes here, lowest level first, until the check finds nothing.

mod attributes;
mod begin;
mod bulk;
mod chunks;
mod counts;
mod damaged_log;
mod derived;
mod directory;
mod disputed;
mod engine;
mod fields;
mod files;
mod forms;
mod group;
mod inode;
mod inode_trees;
mod links;
mod log_place;
mod lsn;
mod map;
mod metadir;
mod named;
mod new_log;
mod old;
mod quota;
mod realtime;
mod realtime_files;
mod realtime_trees;
mod restart;
mod rights;
mod sealed;
mod shared;
mod space;
mod superblock;
mod symlinks;
mod unlinked;
mod volume;
mod writer;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use operations::repair::{Fix, Repairer, Staging, repair_lowest};
use vfs::Result;
use vfs::check::{Finding, Observer, Options, Summary};

pub use writer::{keep_log, open_log};

use crate::check::survey::Survey;
use crate::check::view::View;
use crate::format::geometry::Geometry;
use crate::log;
use crate::volume::read_superblock;
use links::Names;

/// Repairs an XFS image.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    /// Options for the checks.
    pub options: Options,
}

/// State of one round of fixes.
pub(crate) struct RepairJob {
    /// The image with all changes.
    pub(crate) staging: Arc<Staging>,
    /// Options for the checks, if parts of them are run again.
    pub(crate) options: Options,
    /// Inodes with findings about names.
    concerned: HashSet<u64>,
    /// Their names. A round ends with the first level that changes anything, so they stay valid.
    names: OnceCell<Names>,
    /// Inodes that directory entries name, if chunks of version 4 are searched for.
    named_inodes: OnceCell<named::NamedInodes>,
}

impl RepairJob {
    fn new(staging: &Arc<Staging>, options: Options, findings: &[Finding]) -> Self {
        let of_names = [files::METADIR, files::NAMES, files::PARENTS];
        let is_of_name = |finding: &&Finding| {
            of_names.iter().copied().flatten().any(|fix| fix.codes.contains(&finding.code))
        };
        let concerned = findings.iter().filter(is_of_name);
        let concerned = concerned.filter_map(|finding| finding.place.inode).collect();
        let (names, named_inodes) = (OnceCell::new(), OnceCell::new());
        Self { staging: Arc::clone(staging), options, concerned, names, named_inodes }
    }

    /// Returns the names of all inodes with findings about names.
    fn names(&self, view: &View<'_>) -> &Names {
        self.names.get_or_init(|| links::gather(view, &self.concerned))
    }

    /// Returns a survey of the current image.
    fn survey(&self) -> Result<Survey> {
        Survey::new(Arc::clone(&self.staging) as _, self.options.threads)
    }
}

/// Returns the group of a finding.
fn group_of(geometry: &Geometry, finding: &Finding) -> Option<u32> {
    let place = &finding.place;
    let by_block = || Some(place.block? / u64::from(geometry.ag_blocks));
    let by_inode = || Some(u64::from(geometry.split_ino(vfs::Ino(place.inode?))?.0.0));
    let group = place.group.or_else(by_block).or_else(by_inode)?;
    u32::try_from(group).ok().filter(|ag| *ag < geometry.ag_count)
}

/// Fixes applied first, the lowest level first; the others depend on them.
const BELOW: &[&[Fix<RepairJob>]] = &[volume::PLACES, files::INODES, volume::SPACE];
/// Fixes applied afterwards, which allocate blocks and inodes.
const ABOVE: &[&[Fix<RepairJob>]] = &[
    files::DIRECTORIES,
    files::METADIR,
    files::NAMES,
    files::PARENTS,
    files::LINKS,
    volume::REALTIME_FILES,
    volume::REALTIME,
    volume::REALTIME_SPACE,
    volume::NAMELESS,
    volume::COUNTS,
];
/// Fixes applied while nothing may be allocated.
const COUNTS: &[&[Fix<RepairJob>]] = &[volume::REALTIME_SPACE, volume::COUNTS];

impl Repairer for Repair {
    fn begin(&self, staging: &Arc<Staging>, is_sound: bool) -> Result<()> {
        begin::require_device(staging)?;
        volume::begin(staging, is_sound)
    }

    fn check(&self, staging: &Arc<Staging>, observer: &dyn Observer) -> Result<Summary> {
        crate::check::check(Arc::clone(staging) as _, &self.options, observer)
    }

    fn repair(&self, staging: &Arc<Staging>, findings: &[Finding]) -> Result<bool> {
        let job = RepairJob::new(staging, self.options, findings);
        let mut is_changed = repair_lowest(staging, &job, BELOW, findings)?;
        if !is_changed {
            // Blocks or inodes in use may be marked free there.
            let is_unsafe = findings.iter().any(volume::forbids_allocation);
            let levels = if is_unsafe { COUNTS } else { ABOVE };
            is_changed = repair_lowest(staging, &job, levels, findings)?;
        }
        if !is_changed {
            superblock::mark_again(staging)?;
        }
        Ok(is_changed)
    }

    fn finish(&self, staging: &Arc<Staging>) -> Result<()> {
        volume::finish(staging)
    }

    /// Returns the superblock and the head of the log: every change starts there.
    fn witnesses(&self, device: &dyn BlockDevice) -> Vec<Range<u64>> {
        let Ok(sb) = read_superblock(device) else { return Vec::new() };
        let head = log::head_byte(device, &sb);
        head.map_or_else(Vec::new, |head| vec![0..512, head..head + 1])
    }
}
