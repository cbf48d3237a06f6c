//! Growing the realtime section, with and without groups, or giving an image its first one.
//!
//! Invariants:
//! - A step is one transaction: it replaces the bitmap and the summary of the last group, which may be incomplete, makes
//!   the files of new groups, and changes the superblock. A crash leaves an image of the size before or after it.
//! - Growing by many groups takes several steps, because the log limits a transaction.
//! - The superblock on the realtime device is durable before the first section exists.

mod change;
mod contents;
pub(crate) mod growth;
mod hidden;
mod remake;

use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};
use operations::reserve::Claim;
use vfs::{Error, Result, Timestamp};

use self::change::Changes;
pub use self::growth::RealtimeGrowth;
use self::growth::{group_blocks, with_blocks};
use self::hidden::WithoutRealtime;
pub(crate) use self::remake::remake;
use super::{commit, superblock_of};
use crate::Xfs;
use crate::format::features::Incompat;
use crate::format::realtime::RawRealtimeSuperblock;
use crate::format::superblock::Superblock;
use crate::fs::OpenOptions;

/// The files of groups may take one part in this many of the blocks of the log.
const LOG_SHARE: u32 = 16;
/// Blocks that a group changes: its part of inodes, of the directory, and of free space and its trees.
const BLOCKS_PER_GROUP: u32 = 4;
/// Maximum number of groups that one step adds.
const GROUPS_PER_STEP_MAX: u64 = 256;

/// Returns the result of growing the realtime section to `size_bytes`. Nothing is written, and the realtime device may
/// still be shorter.
///
/// # Errors
/// `Unsupported` for a smaller size, too many extents or groups, and an image that cannot have a section or cannot be
/// changed; `Corrupt` for an invalid superblock.
pub fn plan_realtime(device: &dyn BlockDevice, size_bytes: u64) -> Result<RealtimeGrowth> {
    let sb = superblock_of(device)?;
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "it cannot be changed"));
    }
    RealtimeGrowth::of(&sb, size_bytes)
}

/// Grows the realtime section of a file system that is not open elsewhere, in place, to `size_bytes`, which are rounded
/// down to whole realtime extents. `device` must include the realtime device, with at least
/// [`RealtimeGrowth::bytes_after`] bytes. New inodes get the time `time`. Replays the log first.
///
/// # Errors
/// The errors of [`plan_realtime`]. `Invalid` if the realtime device is missing or shorter. `NoSpace` if the files do not
/// fit into the data section. `Corrupt` if structures to be changed are damaged. An error of the device. After an error,
/// the section may have grown by a part of the groups.
pub fn grow_realtime(
    device: Arc<dyn BlockDevice>,
    size_bytes: u64,
    time: Timestamp,
) -> Result<RealtimeGrowth> {
    let planned = plan_realtime(&*device, size_bytes)?;
    if !planned.is_change() {
        return Ok(planned);
    }
    if device.part_len(DeviceRole::Realtime).is_none_or(|len| len < planned.bytes_after()) {
        let what = "the realtime device is missing, or smaller than the new size; extend it first";
        return Err(Error::Invalid(what));
    }
    // An image without a section cannot be opened with a realtime device.
    let to_open: Arc<dyn BlockDevice> = match planned.blocks_before {
        0 => Arc::new(WithoutRealtime(device.clone())),
        _ => device.clone(),
    };
    Xfs::open_writable(to_open, &OpenOptions::default())?.close()?;
    let growth = plan_realtime(&*device, size_bytes)?;
    extend(&device, growth.blocks_after, time)?;
    Ok(growth)
}

/// Grows the section of a file system with an empty log to a number of blocks.
pub(crate) fn extend(device: &Arc<dyn BlockDevice>, blocks: u64, time: Timestamp) -> Result<()> {
    let sb = superblock_of(&**device)?;
    if sb.raw.rblocks.get() == 0 && blocks > 0 && sb.features.incompat(Incompat::METADIR) {
        let first = RawRealtimeSuperblock::block(&sb);
        device.write_at(DeviceRole::Realtime.start(), &first).map_err(Error::Device)?;
        device.flush().map_err(Error::Device)?;
    }
    loop {
        let before = superblock_of(&**device)?;
        let now = before.raw.rblocks.get();
        if now >= blocks {
            return Ok(());
        }
        let at_once = groups_at_once(&before);
        let after = with_blocks(&before, next(&before, blocks, at_once))?;
        let fs = commit::open(device, &before, &after)?;
        let changes = Changes::new(&fs, &before, time)?;
        commit::commit_change(fs, &before, Claim::Ordinary, |op| changes.carry_out(op))?;
    }
}

/// Returns the number of groups that one transaction adds.
fn groups_at_once(sb: &Superblock) -> u64 {
    let fit = u64::from(sb.raw.logblocks.get() / LOG_SHARE / BLOCKS_PER_GROUP);
    fit.clamp(1, GROUPS_PER_STEP_MAX)
}

/// Returns the number of blocks after the next step towards `blocks`, which adds at most `at_once` groups.
fn next(before: &Superblock, blocks: u64, at_once: u64) -> u64 {
    match group_blocks(before) {
        0 => blocks,
        of_group => {
            let groups = u64::from(before.raw.rgcount.get()).saturating_add(at_once);
            blocks.min(groups.saturating_mul(of_group))
        }
    }
}
