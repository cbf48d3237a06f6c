//! Repairs of structures that do not belong to one file.

use std::sync::Arc;

use operations::repair::{Action, Fix, Staging};
use vfs::{Error, Result};

use super::image::{Image, step};
use super::{
    Job, fields, groups, journal, orphans, quota, replay, reserve, resize, space, superblock,
    system_files,
};
use crate::Ext4;
use crate::check::codes;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use crate::fs::OpenOptions;
use crate::params::read_superblock;

/// Fixes of the positions of all structures: superblocks and group descriptors.
pub(super) const PLACES: &[Fix<Job>] = &[
    Fix { codes: &[codes::SUPERBLOCK_FIELD], mend: fields::mend_fields },
    Fix { codes: &[codes::SUPERBLOCK_TIME], mend: fields::mend_times },
    Fix { codes: &[codes::GROUP_PLACES, codes::GROUP_OVERLAP], mend: groups::mend_places },
    Fix {
        codes: &[codes::GROUP_CHECKSUM, codes::GROUP_FLAGS, codes::GROUP_UNUSED],
        mend: groups::mend_descriptors,
    },
    Fix { codes: &[codes::JOURNAL_INODE], mend: journal::mend_inode },
    Fix { codes: &[codes::JOURNAL_SUPERBLOCK], mend: journal::mend_superblock },
    Fix { codes: &[codes::JOURNAL_PENDING, codes::JOURNAL_REPLAY], mend: journal::mend_pending },
    Fix { codes: &[codes::MMP], mend: fields::mend_mmp },
    Fix { codes: &[codes::ORPHAN_LIST], mend: orphans::mend_list },
];
/// Fixes of faults that do not depend on other structures.
pub(super) const BY_THEMSELVES: &[Fix<Job>] = &[
    Fix { codes: &[codes::SUPERBLOCK_TIME], mend: fields::mend_times },
    Fix { codes: &[codes::MMP], mend: fields::mend_mmp },
];
/// Fixes of bitmaps and counts of groups.
pub(super) const SPACE: &[Fix<Job>] = &[Fix {
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
    mend: space::mend_groups,
}];
/// Fixes of special inodes, counts, quota and copies, once everything else is right.
pub(super) const COUNTS: &[Fix<Job>] = &[
    Fix { codes: &[codes::INODE_SPECIAL, codes::JOURNAL_INODE], mend: system_files::mend_special },
    Fix { codes: &[codes::ORPHAN_FILE], mend: orphans::mend_file },
    Fix { codes: &[codes::ORPHAN_FILE_ENTRY], mend: orphans::mend_entries },
    Fix { codes: &[codes::ORPHAN_PRESENT], mend: orphans::mend_present },
    Fix { codes: &[codes::RESIZE_INODE], mend: resize::mend },
    Fix { codes: &[codes::QUOTA_FILE, codes::QUOTA_USAGE], mend: quota::mend },
    Fix { codes: &[codes::SUPERBLOCK_FEATURE], mend: fields::mend_features },
    Fix { codes: &[codes::SUPERBLOCK_BACKUP], mend: fields::mend_backups },
    Fix { codes: &[codes::GROUP_BACKUP], mend: groups::mend_backups },
    Fix {
        codes: &[codes::SUPERBLOCK_FREE_BLOCKS, codes::SUPERBLOCK_FREE_INODES],
        mend: space::mend_totals,
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
    let Some(image) = Image::of(staging) else { return Ok(()) };
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
