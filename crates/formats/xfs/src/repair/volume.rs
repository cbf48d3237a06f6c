//! Fixes for the file system as a whole.

use std::sync::Arc;

use operations::repair::{Fix, Staging};
use vfs::Result;
use vfs::check::{Code, Finding};

use super::{
    RepairJob, begin, counts, inode_trees, lsn, new_log, quota, realtime, realtime_files,
    realtime_trees, space, superblock, unlinked,
};
use crate::check::codes;

const INOBT: [&Code; 5] = codes::INOBT.all();
const FINOBT: [&Code; 5] = codes::FINOBT.all();
const BNOBT: [&Code; 5] = codes::BNOBT.all();
const CNTBT: [&Code; 5] = codes::CNTBT.all();
const RMAPBT: [&Code; 5] = codes::RMAPBT.all();
const REFCOUNTBT: [&Code; 5] = codes::REFCOUNTBT.all();

/// Findings about the contents of trees of realtime groups. Damaged trees are emptied with their inodes.
const REALTIME_TREES: &[&Code] =
    &[codes::REALTIME_RMAP, codes::REALTIME_REFERENCES, codes::REALTIME_TWICE];

/// Findings about AGI and inode trees.
const INODE_TREES: &[&Code] = &[
    codes::AGI,
    codes::AGI_COUNTS,
    codes::FINOBT_DIFFERS,
    INOBT[0],
    INOBT[1],
    INOBT[2],
    INOBT[3],
    INOBT[4],
    FINOBT[0],
    FINOBT[1],
    FINOBT[2],
    FINOBT[3],
    FINOBT[4],
];

/// Findings about AGF, AGFL and trees of space.
const SPACE_TREES: &[&Code] = &[
    codes::AGF,
    codes::AGFL,
    codes::AGF_COUNTS,
    codes::CNTBT_DIFFERS,
    codes::RMAP_MISSING,
    codes::RMAP_STALE,
    codes::REFERENCES,
    codes::SPACE_LOST,
    codes::SPACE_FREE_USED,
    codes::SPACE_TWICE,
    BNOBT[0],
    BNOBT[1],
    BNOBT[2],
    BNOBT[3],
    BNOBT[4],
    CNTBT[0],
    CNTBT[1],
    CNTBT[2],
    CNTBT[3],
    CNTBT[4],
    RMAPBT[0],
    RMAPBT[1],
    RMAPBT[2],
    RMAPBT[3],
    RMAPBT[4],
    REFCOUNTBT[0],
    REFCOUNTBT[1],
    REFCOUNTBT[2],
    REFCOUNTBT[3],
    REFCOUNTBT[4],
];

/// Locations of structures: superblocks, group headers, inodes.
pub(super) const PLACES: &[Fix<RepairJob>] = &[
    Fix {
        codes: &[codes::SUPERBLOCK_FIELD, codes::SUPERBLOCK_REST, codes::SUPERBLOCK_CHECKSUM],
        repair: superblock::fields,
    },
    Fix { codes: &[codes::REALTIME_SUPERBLOCK], repair: realtime_trees::superblock },
    Fix { codes: &[codes::AG_CHECKSUM], repair: inode_trees::checksums },
    Fix { codes: INODE_TREES, repair: inode_trees::rebuild },
    Fix { codes: &[codes::SPACE_TWICE, codes::SPACE_FREE_USED], repair: inode_trees::unsound },
    Fix {
        codes: &[codes::INODE, codes::INODE_CHECKSUM, codes::ROOT, codes::METADIR_ROOT],
        repair: inode_trees::moved,
    },
];
/// Free and used space.
pub(super) const SPACE: &[Fix<RepairJob>] = &[
    Fix { codes: &[codes::INODE_NOT_USED, codes::INODE_FREE], repair: inode_trees::rebuild },
    Fix { codes: &[codes::AG_CHECKSUM], repair: space::checksums },
    Fix { codes: SPACE_TREES, repair: space::rebuild },
    Fix { codes: &[codes::UNLINKED], repair: unlinked::rebuild },
];
/// Unlinked inodes, once everything else except counts is right.
pub(super) const NAMELESS: &[Fix<RepairJob>] =
    &[Fix { codes: &[codes::UNLINKED_LEFT], repair: unlinked::free }];
/// Files of the realtime section, and realtime extents of files.
pub(super) const REALTIME_FILES: &[Fix<RepairJob>] = &[
    Fix { codes: &[codes::REALTIME_FILE], repair: realtime_files::repair },
    Fix {
        codes: &[codes::REALTIME_TWICE, codes::REALTIME_ALIGNMENT],
        repair: realtime_files::settle,
    },
];
/// Trees of realtime groups, when files are right.
pub(super) const REALTIME: &[Fix<RepairJob>] =
    &[Fix { codes: REALTIME_TREES, repair: realtime_trees::rebuild }];
/// Free space of the realtime section.
pub(super) const REALTIME_SPACE: &[Fix<RepairJob>] = &[Fix {
    codes: &[
        codes::REALTIME_BITMAP,
        codes::REALTIME_LOST,
        codes::REALTIME_SUMMARY,
        codes::REALTIME_HEADER,
    ],
    repair: realtime::rebuild,
}];
/// Counts, when everything else is right.
pub(super) const COUNTS: &[Fix<RepairJob>] = &[
    Fix { codes: &[codes::QUOTA, codes::QUOTA_COUNTS], repair: quota::repair },
    Fix { codes: &[codes::SUPERBLOCK_COUNTS], repair: counts::totals },
    Fix { codes: &[codes::SUPERBLOCK_LOG_BITS], repair: superblock::log_bits },
    Fix { codes: &[codes::SUPERBLOCK_FIELD], repair: new_log::repair },
    Fix { codes: &[codes::SUPERBLOCK_COPY], repair: superblock::copies },
    Fix { codes: &[codes::LSN], repair: lsn::repair },
];

/// Returns whether a finding forbids allocations: blocks or inodes in use may be marked free.
pub(super) fn forbids_allocation(finding: &Finding) -> bool {
    let is_harmless = [codes::SPACE_LOST, codes::RMAP_MISSING, codes::RMAP_STALE];
    let of_trees = [INODE_TREES, SPACE_TREES, &[codes::AG_CHECKSUM]];
    !is_harmless.contains(&finding.code)
        && of_trees.iter().any(|codes| codes.contains(&finding.code))
}

/// See [`operations::repair::Repairer::begin`].
pub(super) fn begin(staging: &Arc<Staging>, is_sound: bool) -> Result<()> {
    if !is_sound {
        superblock::make_readable(staging)?;
    }
    begin::refuse_zones(staging)?;
    begin::replay(staging)
}

/// See [`operations::repair::Repairer::finish`].
pub(super) fn finish(_staging: &Arc<Staging>) -> Result<()> {
    Ok(())
}
