//! All records in the area of the log, also those before the tail.

use disk::BlockDevice;
use vfs::{Corruption, Result};

use super::end::Ring;
use crate::format::log::build::next_cycle;
use crate::format::log::transaction::{Assembler, Transaction};
use crate::format::log::{BLOCK_SIZE, Lsn, ParsedRecord, cycle_of};
use crate::format::superblock::Superblock;

/// Calls `each` with all complete transactions in the area of the log, oldest first. Records that were partly overwritten,
/// and transactions that started in such a record, are skipped.
///
/// # Errors
/// If the superblock's log fields are invalid, or the log is on another device that is missing.
pub(crate) fn each_old_transaction(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    each: &mut dyn FnMut(&Transaction, Lsn),
) -> Result<()> {
    let damage = || Corruption::new("superblock", "the log is not inside an allocation group");
    let ring = Ring::of(device, superblock)?.ok_or_else(damage)?;
    let mut starts = Vec::new();
    let mut block = [0; BLOCK_SIZE];
    for at in 0..ring.blocks {
        if ring.read_around(at, &mut block).is_err() {
            continue;
        }
        let record = ParsedRecord::parse(&block, ring.blocks);
        let is_own =
            |record: &ParsedRecord| record.lsn.block == at && record.lsn.cycle == cycle_of(&block);
        if let Some(record) = record.filter(is_own) {
            starts.push((record.lsn, record.blocks()));
        }
    }
    starts.sort_unstable();
    let mut assembler = Assembler::default();
    let mut next = None;
    // Records do not overlap. This limits the work on a log in which they do.
    let mut left = 2 * u64::from(ring.blocks);
    for (at, blocks) in starts {
        let Some(rest) = left.checked_sub(blocks.into()) else { break };
        left = rest;
        let end = Lsn { cycle: next_cycle(at.cycle), block: at.block };
        let Ok(whole) = ring.record(at, end) else { continue };
        if next != Some(at) {
            assembler = Assembler::default();
        }
        next = Some(ring.after(at, whole.record.blocks()));
        let taken = assembler.take(at, whole.operations(), |transaction| {
            each(&transaction, at);
            Ok::<_, Corruption>(())
        });
        if taken.is_err() {
            assembler = Assembler::default();
        }
    }
    Ok(())
}
