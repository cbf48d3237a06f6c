//! Recovery: replaying the log.

use disk::BlockDevice;
use vfs::hint::{Advice, Hint, Setting};
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

/// Result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of transactions replayed.
    pub transactions: u64,
    /// Number of items replayed.
    pub items_replayed: u64,
    /// Number of items skipped, because their buffer was cancelled later or is already newer.
    pub items_skipped: u64,
    /// Number of intents finished.
    pub intents: u64,
}

/// The position at which a clean or recovered log continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Position of the next record.
    pub head: Lsn,
    /// The block of the last record's header.
    pub previous: Option<u32>,
    /// The oldest position still needed: the start of the replayed part, until its intents are finished. `None` if
    /// nothing is needed.
    pub tail: Option<Lsn>,
    /// The tail on the device, if something was replayed: the next reader of the log starts there until a new record is
    /// written.
    pub replayed_from: Option<Lsn>,
    /// `h_size` of the records from there on, which new records must have, too; `None` if any size is allowed.
    pub record_size: Option<usize>,
    /// True if the last record is an unmount record, and nothing was replayed.
    pub is_clean: bool,
}

/// A log whose changes were written back.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Report of the recovery.
    pub report: Report,
    /// Intents to be finished, in the order of the log.
    pub intents: Vec<Intent>,
    /// The position at which the log continues.
    pub position: Position,
}

/// Replays the log of an image: writes all its changes to their locations, durably. Returns the intents without a done
/// item. The superblock on the device may have changed afterwards. A damaged log causes no writes. If the log is clean,
/// only remains of torn records after its end are overwritten.
///
/// # Errors
/// `Corrupt` for a damaged log; `Unsupported` for one that cannot be replayed here; if the device fails.
pub fn recover(device: &dyn BlockDevice, sb: &Superblock) -> Result<Recovered> {
    let no_end = || Corruption::new("log", "its head cannot be found");
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

/// Replays the part of a damaged log before its first damage: consecutive, complete records. The log itself is not
/// changed, and intents are not finished. Returns `None` if nothing was replayed.
///
/// Blocks that were written back later are newer than the replayed part, and stay so. The image must be checked
/// afterwards.
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

/// Returns whether a clean log has records after its end that must be ignored: torn ones, or some after damage.
///
/// # Errors
/// If the device fails.
pub(crate) fn has_torn_records(device: &dyn BlockDevice, sb: &Superblock) -> Result<bool> {
    let Some(ring) = Ring::of(device, sb)? else { return Ok(false) };
    let Some(end) = log_end(device, sb)?.filter(|end| end.is_clean) else { return Ok(false) };
    let Some(last) = end.last else { return Ok(false) };
    stale::has_torn(&ring, &Bounds { tail: last.lsn, head: end.head_lsn() })
}

/// Refuses logs that cannot be replayed here.
fn check_supported(sb: &Superblock) -> Result<()> {
    const ADVICE: Advice = Advice::before(
        "mount and unmount it once, or read it without its log: ",
        Hint::Use(Setting::NORECOVERY),
    );
    let unknown = sb.features.log_incompat.difference(LogIncompat::all());
    if !unknown.is_empty() {
        let what = format!("a log with unknown features {:#x}", unknown.bits());
        return Err(Error::unsupported(what, ADVICE));
    }
    Ok(())
}
