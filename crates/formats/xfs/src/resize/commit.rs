//! Committing a growth: one transaction in the log.

use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use engine::Log;
use operations::mounted::OpenImages as _;
use operations::reserve::Claim;
use operations::{Mode, Outcome, RunOperations};
use vfs::Result;

use crate::XfsCore;
use crate::alloc::ags::Ags;
use crate::alloc::headers;
use crate::format::address::AgNumber;
use crate::format::geometry::Geometry;
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::fs::CACHE_BYTES_DEFAULT;
use crate::log::{self, XfsLog};
use crate::op::Op;
use crate::volume::Volume;

/// The superblock copies may take one part in this many of the blocks of a checkpoint. The rest is for the changes of
/// the last group.
const COPIES_SHARE: usize = 2;
/// The copies may take one part in this many of the cache while they wait to be written.
const CACHE_SHARE: usize = 4;

/// Commits the growth of a file system to `after`. The new groups must be durable, and its log empty.
pub(super) fn commit(
    device: &Arc<dyn BlockDevice>,
    before: &Superblock,
    after: &Superblock,
) -> Result<()> {
    let fs = open(device, before, after)?;
    commit_change(fs, before, Claim::Freeing, |op| extend_last(op, before))
}

/// Commits a change together with the superblock of an open file system, and closes it. The copies of the superblock
/// change with it, or after it.
pub(super) fn commit_change(
    fs: XfsCore,
    before: &Superblock,
    claim: Claim,
    mut extend: impl FnMut(&mut Op<'_>) -> Outcome<()>,
) -> Result<()> {
    let after = fs.volume.sb.clone();
    let at_once = copies_at_once(&fs);
    let mut rest = 1..before.raw.agcount.get();
    let with_growth = take(&mut rest, at_once);
    let body = |op: &mut Op<'_>| {
        extend(op)?;
        change(op, AgNumber(0), &after.raw)?;
        change_copies(op, with_growth.clone(), &after.raw)
    };
    fs.atomically_with(claim, body, |()| Ok(()))?;
    fs.engine.checkpoint()?;
    // The remaining copies have the old size until here, and are not read.
    while !rest.is_empty() {
        let these = take(&mut rest, at_once);
        fs.atomically(|op| change_copies(op, these.clone(), &after.raw))?;
        fs.engine.checkpoint()?;
    }
    fs.close()
}

/// Opens the file system with its new superblock. Writes nothing.
pub(super) fn open(
    device: &Arc<dyn BlockDevice>,
    before: &Superblock,
    after: &Superblock,
) -> Result<XfsCore> {
    let (old, new) = (Geometry::new(before), Geometry::new(after));
    let mut states = headers::read(&**device, &old, 0..old.ag_count)?;
    states.extend(headers::read(&**device, &new, old.ag_count..new.ag_count)?);
    let position = log::recover(&**device, before)?.position;
    let log = XfsLog::open(device.clone(), after, position)?;
    let hook: Box<dyn Log> = Box::new(log.clone());
    let ags = Ags::new(&new, states, after.raw.frextents.get());
    let volume = Arc::new(Volume::new(after.clone(), new, ags));
    let device = device.clone();
    let mut fs =
        XfsCore::of_volume(device, Some(hook), volume, CACHE_BYTES_DEFAULT, Mode::Writable);
    fs.log = Some(log);
    Ok(fs)
}

/// Extends the previously last group to its new length.
fn extend_last(op: &mut Op<'_>, before: &Superblock) -> Outcome<()> {
    let last = AgNumber(before.raw.agcount.get() - 1);
    let (old, new) = (Geometry::new(before).ag_len(last), op.fs.volume.geometry.ag_len(last));
    if new > old { op.ag(last)?.extend(new) } else { Ok(()) }
}

/// Returns the number of copies that change in one transaction.
fn copies_at_once(fs: &XfsCore) -> u32 {
    let in_log = fs.engine.log_blocks_max() / COPIES_SHARE;
    let in_cache = CACHE_BYTES_DEFAULT / CACHE_SHARE / fs.volume.block_size();
    in_log.min(in_cache).max(1) as u32
}

/// Takes at most `most` elements from the start of a range.
fn take(rest: &mut Range<u32>, most: u32) -> Range<u32> {
    let end = rest.end.min(rest.start.saturating_add(most));
    let taken = rest.start..end;
    rest.start = end;
    taken
}

fn change_copies(op: &mut Op<'_>, groups: Range<u32>, raw: &RawSuperblock) -> Outcome<()> {
    groups.into_iter().try_for_each(|ag| change(op, AgNumber(ag), raw))
}

fn change(op: &mut Op<'_>, ag: AgNumber, raw: &RawSuperblock) -> Outcome<()> {
    let fs = op.fs;
    Ok(fs.edit_superblock_in(&mut op.txn, ag, |found| {
        // The LSN of the last change is set by the log.
        let lsn = found.lsn;
        *found = RawSuperblock { lsn, ..raw.clone() };
    })?)
}
