//! Recovery: what the log holds is brought to its places.

use blockdev::BlockDevice;
use vfs::{Corruption, Error, Result};

use super::bounds::Bounds;
use super::end::{Ring, log_end};
use super::replay::Replay;
use super::{shorten, stale};
use crate::format::features::LogIncompat;
use crate::format::log::Lsn;
use crate::format::log::build::RECORD_BLOCKS_MAX;
use crate::format::log::intent::Intent;
use crate::format::superblock::Superblock;

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions that were replayed.
    pub transactions: u64,
    /// Items of theirs that were brought to their places.
    pub items_replayed: u64,
    /// Items that were not, because their buffer was given up later or is newer already.
    pub items_skipped: u64,
    /// Intents that were finished.
    pub intents: u64,
}

/// Where a log that was recovered, or is clean, goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Where the next record goes.
    pub head: Lsn,
    /// The block of the last record's header.
    pub previous: Option<u32>,
    /// The oldest place that is still needed: where what was replayed starts, as long as its intents are
    /// not finished. `None` if nothing is.
    pub tail: Option<Lsn>,
    /// The tail as the device still says it, if there was something to replay: until a record says
    /// otherwise, the next reader of the log starts there.
    pub replayed_from: Option<Lsn>,
    /// `h_size` of the records from there on, which those to come must have, too; `None` if they may have
    /// any.
    pub record_size: Option<usize>,
    /// Whether the last record says that the log is clean, and nothing was replayed.
    pub is_clean: bool,
}

/// A log whose changes are in their places.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// What was done.
    pub report: Report,
    /// What is to be finished, in the order of the log.
    pub intents: Vec<Intent>,
    /// Where the log goes on.
    pub position: Position,
}

/// Replays the log of an image: all it holds is brought to its place, durably, but for intents without a
/// done item, which are handed out. The superblock may have changed then. Nothing is written if the log is
/// damaged, or has nothing to replay.
///
/// # Errors
/// `Corrupt` for a damaged log; `Unsupported` for one that cannot be replayed here; if the device fails.
pub fn recover(device: &dyn BlockDevice, sb: &Superblock) -> Result<Recovered> {
    let no_end = || Corruption::new("log", "its end cannot be made out");
    let ring = Ring::of(device, sb)?.ok_or_else(no_end)?;
    let end = log_end(device, sb)?.ok_or_else(no_end)?;
    let head = end.head_lsn();
    let previous = end.last.map(|last| last.lsn.block);
    let Some(last) = end.last.filter(|_| !end.is_clean) else {
        if let Some(last) = end.last {
            stale::clear_leftovers(device, sb, &ring, &Bounds { tail: last.lsn, head })?;
        }
        let position = Position {
            head,
            previous,
            tail: None,
            replayed_from: None,
            record_size: None,
            is_clean: true,
        };
        return Ok(Recovered { report: Report::default(), intents: Vec::new(), position });
    };
    check_supported(sb)?;
    let bounds = Bounds::find(&ring, &last, head)?;
    let replay = Replay::run(device, sb, &ring, &bounds)?;
    let record_size = ring.record(last.lsn, head)?.size;
    replay.write_back()?;
    stale::clear(device, sb, &bounds)?;
    let report = replay.report;
    let intents = replay.into_intents();
    let (tail, record_size) = match intents.is_empty() {
        true => (None, None),
        false => (Some(bounds.tail), Some(record_size)),
    };
    let replayed_from = Some(bounds.tail);
    let mut position =
        Position { head, previous, tail, replayed_from, record_size, is_clean: false };
    if last.blocks() > RECORD_BLOCKS_MAX {
        let end = shorten::End { head, previous, tail };
        if let Some(after) = shorten::write(device, sb, &end).map_err(Error::Device)? {
            position.previous = Some(head.block);
            position.replayed_from = Some(tail.unwrap_or(head));
            position.head = after;
        }
    }
    Ok(Recovered { report, intents, position })
}

/// Replays what a damaged log holds before its first damage: records that follow each other, all whole. The log is left
/// as it is, and intents are not finished. `None` if nothing was replayed.
///
/// Blocks may be newer than what was replayed: those that were written to their places later stay so. The image is to be
/// checked.
///
/// # Errors
/// As [`recover`].
pub(crate) fn recover_before_damage(
    device: &dyn BlockDevice,
    sb: &Superblock,
) -> Result<Option<Report>> {
    let Some(ring) = Ring::of(device, sb)? else { return Ok(None) };
    let Some(end) = log_end(device, sb)?.filter(|end| !end.is_clean) else { return Ok(None) };
    let Some(last) = end.last else { return Ok(None) };
    check_supported(sb)?;
    let Some(bounds) = Bounds::before_damage(&ring, &last, end.head_lsn())? else {
        return Ok(None);
    };
    let replay = Replay::run(device, sb, &ring, &bounds)?;
    replay.write_back()?;
    Ok(Some(replay.report).filter(|report| report.transactions > 0))
}

/// Whether a clean log has records behind its end that count for nothing: torn ones, or some behind damage.
///
/// # Errors
/// If the device fails.
pub(crate) fn has_torn_records(device: &dyn BlockDevice, sb: &Superblock) -> Result<bool> {
    let Some(ring) = Ring::of(device, sb)? else { return Ok(false) };
    let Some(end) = log_end(device, sb)?.filter(|end| end.is_clean) else { return Ok(false) };
    let Some(last) = end.last else { return Ok(false) };
    stale::has_torn(&ring, &Bounds { tail: last.lsn, head: end.head_lsn() })
}

/// Refuses what cannot be replayed here.
fn check_supported(sb: &Superblock) -> Result<()> {
    const ADVICE: &str =
        "mount and unmount it once, or read it without what its log holds: --norecovery";
    if !sb.features.crc() {
        return Err(Error::unsupported("replaying the log of version 4", ADVICE));
    }
    let unknown = sb.features.log_incompat.difference(LogIncompat::all());
    if !unknown.is_empty() {
        let what = format!("a log with unknown features {:#x}", unknown.bits());
        return Err(Error::unsupported(what, ADVICE));
    }
    Ok(())
}
