//! Repairs of structures that do not belong to one file.

use std::sync::Arc;

use operations::repair::{Action, Fix, Staging};
use vfs::{Error, Result};

use super::image::{StagedImage, step};
use super::{
    RepairJob, fields, groups, journal, orphans, quota, replay, reserve, resize, space, superblock,
    system_files,
};
use crate::Ext4;
use crate::check::codes;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use crate::fs::OpenOptions;
use crate::params::read_superblock;

/// Fixes of the positions of all structures: superblocks and group descriptors.
pub(super) const PLACES: &[Fix<RepairJob>] = &[
    Fix { codes: &[codes::SUPERBLOCK_FIELD], repair: fields::repair_fields },
    Fix { codes: &[codes::SUPERBLOCK_TIME], repair: fields::repair_times },
    Fix { codes: &[codes::GROUP_PLACES, codes::GROUP_OVERLAP], repair: groups::repair_places },
    Fix {
        codes: &[codes::GROUP_CHECKSUM, codes::GROUP_FLAGS, codes::GROUP_UNUSED],
        repair: groups::repair_descriptors,
    },
    Fix { codes: &[codes::JOURNAL_INODE], repair: journal::repair_inode },
    Fix { codes: &[codes::JOURNAL_SUPERBLOCK], repair: journal::repair_superblock },
    Fix {
        codes: &[codes::JOURNAL_PENDING, codes::JOURNAL_REPLAY],
        repair: journal::repair_pending,
    },
    Fix { codes: &[codes::MMP], repair: fields::repair_mmp },
    Fix { codes: &[codes::ORPHAN_LIST], repair: orphans::repair_list },
];
/// Fixes of faults that do not depend on other structures.
pub(super) const BY_THEMSELVES: &[Fix<RepairJob>] = &[
    Fix { codes: &[codes::SUPERBLOCK_TIME], repair: fields::repair_times },
    Fix { codes: &[codes::MMP], repair: fields::repair_mmp },
];
/// Fixes of bitmaps and counts of groups.
pub(super) const SPACE: &[Fix<RepairJob>] = &[Fix {
    codes: &[
        codes::BLOCK_BITMAP_CHECKSUM,
        codes::BLOCK_BITMAP_FREE,
        codes::BLOCK_BITMAP_USED,
        codes::BLOCK_BITMAP_PADDING,
        codes::INODE_BITMAP_CHECKSUM,
        codes::INODE_BITMAP_FREE,
        codes::INODE_BITMAP_USED,
        codes::INODE_BITMAP_PADDING,
        codes::GROUP_FREE_BLOCKS,
        codes::GROUP_FREE_INODES,
        codes::GROUP_DIRECTORIES,
    ],
    repair: space::repair_groups,
}];
/// Fixes of special inodes, counts, quota and copies, once everything else is right.
pub(super) const COUNTS: &[Fix<RepairJob>] = &[
    Fix {
        codes: &[codes::INODE_SPECIAL, codes::JOURNAL_INODE],
        repair: system_files::repair_special,
    },
    Fix { codes: &[codes::ORPHAN_FILE], repair: orphans::repair_file },
    Fix { codes: &[codes::ORPHAN_FILE_ENTRY], repair: orphans::repair_entries },
    Fix { codes: &[codes::ORPHAN_PRESENT], repair: orphans::repair_present },
    Fix { codes: &[codes::RESIZE_INODE], repair: resize::repair },
    Fix { codes: &[codes::QUOTA_FILE, codes::QUOTA_USAGE], repair: quota::repair },
    Fix { codes: &[codes::SUPERBLOCK_FEATURE], repair: fields::repair_features },
    Fix { codes: &[codes::SUPERBLOCK_BACKUP], repair: fields::repair_backups },
    Fix { codes: &[codes::GROUP_BACKUP], repair: groups::repair_backups },
    Fix {
        codes: &[codes::SUPERBLOCK_FREE_BLOCKS, codes::SUPERBLOCK_FREE_INODES],
        repair: space::repair_totals,
    },
];

/// See [`operations::repair::Repairer::begin`].
pub(super) fn begin(staging: &Arc<Staging>, is_sound: bool) -> Result<()> {
    if is_sound {
        return replay::replay(staging).map(drop);
    }
    ensure_superblock(staging)?;
    journal::settle_number(staging)?;
    if !replay::replay(staging)? {
        replay_the_rest(staging)?;
    }
    // The replay may have changed the superblock.
    ensure_superblock(staging)?;
    groups::settle(staging)?;
    journal::settle_inode(staging)
}

/// Ensures that there is a valid superblock and that it leaves room for the groups' structures.
fn ensure_superblock(staging: &Arc<Staging>) -> Result<()> {
    superblock::ensure(staging)?;
    reserve::settle(staging)
}

/// Repairs the journal's metadata so that it can be replayed, at least partly.
fn replay_the_rest(staging: &Arc<Staging>) -> Result<()> {
    groups::settle(staging)?;
    journal::settle_inode(staging)?;
    if replay::replay(staging)? {
        return Ok(());
    }
    replay::salvage(staging)?;
    if replay::replay(staging)? {
        return Ok(());
    }
    journal::make_superblock(staging, &[])?;
    replay::replay(staging).map(drop)
}

/// See [`operations::repair::Repairer::finish`].
pub(super) fn finish(staging: &Arc<Staging>) -> Result<()> {
    mark_sound(staging)?;
    end_orphans(staging)
}

/// Clears the flags that the image is damaged or was not closed.
fn mark_sound(staging: &Staging) -> Result<()> {
    let Some(image) = StagedImage::of(staging) else { return Ok(()) };
    let raw = &image.params.sb.raw;
    let is_marked = raw.state.get() & (STATE_ERROR | STATE_VALID) != STATE_VALID;
    if !is_marked && raw.error_count == 0 {
        return Ok(());
    }
    step(staging, || {
        image.edit_superblock(|raw| {
            raw.state = (raw.state.get() & !STATE_ERROR | STATE_VALID).into();
            forget_errors(raw);
        })?;
        Ok(vec![Action::new("The error flags of the superblock are cleared.")])
    })
}

/// Clears the error record.
fn forget_errors(raw: &mut RawSuperblock) {
    use zerocopy::IntoBytes;
    let record = std::mem::offset_of!(RawSuperblock, error_count)
        ..std::mem::offset_of!(RawSuperblock, mount_opts);
    raw.as_mut_bytes()[record].fill(0);
    raw.first_error_time_hi = 0;
    raw.last_error_time_hi = 0;
    raw.first_error_errcode = 0;
    raw.last_error_errcode = 0;
}

/// Frees or truncates orphans, as opening the image would.
fn end_orphans(staging: &Arc<Staging>) -> Result<()> {
    let sb = read_superblock(&**staging)?;
    let may_be = sb.raw.last_orphan.get() != 0
        || sb.features.compat(Compat::ORPHAN_FILE)
            && sb.features.ro_compat(RoCompat::ORPHAN_PRESENT);
    if !may_be || sb.features.incompat(Incompat::RECOVER) {
        return Ok(());
    }
    let ended =
        Ext4::open_writable(Arc::clone(staging) as _, &OpenOptions::default()).and_then(|fs| {
            let report = fs.cleaned_orphans();
            fs.close().map(|()| report)
        });
    match ended {
        Ok(report) => {
            let what = format!(
                "Orphans are processed: {} are freed and {} truncated.",
                report.freed, report.truncated
            );
            staging.end_step(vec![Action::new(what)]).map_err(Error::Device)?;
        }
        Err(_) => staging.abandon(),
    }
    Ok(())
}
