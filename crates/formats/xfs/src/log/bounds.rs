//! The valid part of a dirty log: from its tail to its head, without torn records.
//!
//! A wrong checksum near the head means that the record was never completely written, as if its blocks were missing;
//! all records after it are discarded, too. At the tail it may mean that the last writes wrapped around and overwrote
//! it: a part of the log is overwritten only when its changes have been written back. Anywhere else it is damage.

use vfs::{Error, Result};

use super::end::{IN_FLIGHT_BLOCKS, LogEnd, Ring};
use super::read::{WholeRecord, damage};
use crate::format::log::build::next_cycle;
use crate::format::log::{BLOCK_SIZE, Lsn, ParsedRecord};

/// Maximum number of records being written at one time (`XLOG_MAX_ICLOGS`).
const IN_FLIGHT_RECORDS: usize = 8;

impl LogEnd {
    /// Returns the head with its cycle: the position of the next record.
    pub(crate) fn head_lsn(&self) -> Lsn {
        let Some(last) = self.last else { return Lsn { cycle: 1, block: self.head } };
        // If a record ends exactly at the end of the ring, the head is at its start, in the next cycle.
        let wrapped = self.head <= last.lsn.block;
        let cycle = if wrapped { next_cycle(last.lsn.cycle) } else { last.lsn.cycle };
        Lsn { cycle, block: self.head }
    }
}

/// Returns the end of a dirty log without the incomplete records at its end.
///
/// # Errors
/// If the device fails.
pub(super) fn without_torn(ring: &Ring<'_>, end: LogEnd) -> Result<Option<LogEnd>> {
    let Some(last) = end.last else { return Ok(Some(end)) };
    let head = end.head_lsn();
    let mut starts = Vec::new();
    let mut start = last;
    loop {
        starts.push(start.lsn);
        let is_oldest = start.lsn <= last.tail || starts.len() == IN_FLIGHT_RECORDS;
        let before = if is_oldest { None } else { ring.record_before(start.lsn.block)? };
        match before {
            Some((_, record)) if is_before(ring, &record, start.lsn) => start = record,
            _ => break,
        }
    }
    for at in starts.into_iter().rev() {
        match ring.record(at, head) {
            Ok(_) => {}
            Err(Error::Corrupt(_)) => return ring.last_record(at.block),
            Err(other) => return Err(other),
        }
    }
    Ok(Some(end))
}

/// Returns whether a record ends where the one at `next` starts.
fn is_before(ring: &Ring<'_>, record: &ParsedRecord, next: Lsn) -> bool {
    ring.after(record.lsn, record.blocks()) == next
}

/// The part of a log that is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) tail: Lsn,
    pub(super) head: Lsn,
}

impl Bounds {
    /// Returns the bounds of a dirty log.
    ///
    /// # Errors
    /// `Corrupt` if a part of it is damaged.
    pub(super) fn find(ring: &Ring<'_>, last: &ParsedRecord, head: Lsn) -> Result<Self> {
        let mut bounds = Self { tail: last.tail, head };
        if ring.distance(bounds.tail, head).is_none_or(|blocks| blocks == 0) {
            let place = |at: Lsn| format!("cycle {}, log block {}", at.cycle, at.block);
            let problem = damage(last.lsn, "the tail is not before the head");
            let expected = format!("before {}", place(head));
            return Err(problem.mismatch(expected, place(last.tail)).into());
        }
        loop {
            let mut at = bounds.tail;
            let checked = bounds.each(ring, |whole| {
                at = ring.after(whole.record.lsn, whole.record.blocks());
                Ok(())
            });
            match checked {
                Ok(()) => return Ok(bounds),
                Err(Error::Corrupt(damage)) => match bounds.past_overwritten(ring, at)? {
                    Some(tail) => bounds.tail = tail,
                    None => return Err(damage.into()),
                },
                Err(other) => return Err(other),
            }
        }
    }

    /// Returns the part of a dirty log before its first damage; `None` if that is empty.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn before_damage(
        ring: &Ring<'_>,
        last: &ParsedRecord,
        head: Lsn,
    ) -> Result<Option<Self>> {
        let bounds = Self { tail: last.tail, head };
        if ring.distance(bounds.tail, head).is_none_or(|blocks| blocks == 0) {
            return Ok(None);
        }
        let mut at = bounds.tail;
        let checked = bounds.each(ring, |whole| {
            at = ring.after(whole.record.lsn, whole.record.blocks());
            Ok(())
        });
        match checked {
            Ok(()) | Err(Error::Corrupt(_)) => {
                Ok((at != bounds.tail).then_some(Self { head: at, ..bounds }))
            }
            Err(other) => Err(other),
        }
    }

    /// Calls `each` with all records, in order.
    pub(super) fn each(
        &self,
        ring: &Ring<'_>,
        mut each: impl FnMut(&WholeRecord) -> Result<()>,
    ) -> Result<()> {
        let mut at = self.tail;
        while at != self.head {
            let whole = ring.record(at, self.head)?;
            each(&whole)?;
            // A record has at least one block in addition to its headers, so the loop ends.
            at = ring.after(at, whole.record.blocks());
        }
        Ok(())
    }

    /// Returns the next record after a bad one at `bad`, if the last writes may have overwritten that one.
    fn past_overwritten(&self, ring: &Ring<'_>, bad: Lsn) -> Result<Option<Lsn>> {
        // Distance from the head forward around the ring to the record.
        let ahead = match (bad.block, self.head.block) {
            (bad, head) if bad >= head => bad - head,
            (bad, head) => ring.blocks - head + bad,
        };
        if ahead > IN_FLIGHT_BLOCKS {
            return Ok(None);
        }
        let mut at = ring.after(bad, 1);
        let mut block = [0; BLOCK_SIZE];
        while at != self.head {
            ring.read_around(at.block, &mut block)?;
            if ParsedRecord::parse(&block, ring.blocks).is_some_and(|record| record.lsn == at) {
                return Ok(Some(at));
            }
            at = ring.after(at, 1);
        }
        Ok(None)
    }
}
