//! Blocks of the free-space index: the longest unused range of each data block.

use engine::Corruption;

use super::{DirLayout, header};
use crate::format::bytes::{be16, be32, put32};
use crate::format::edit::Edit;

/// Value for a missing data block (`NULLDATAOFF`).
pub(crate) const NO_BLOCK: u16 = 0xffff;
const NAME: &str = "directory free index";

/// The fields of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeHeader {
    /// The first data block it describes.
    pub first: u32,
    /// Number of valid slots.
    pub valid: u32,
    /// Number of slots of existing data blocks.
    pub used: u32,
}

fn numbers_at(layout: &DirLayout) -> usize {
    if layout.crc { header::DIR_END } else { 4 }
}

/// Returns the fields of the header.
pub(crate) fn header(layout: &DirLayout, block: &[u8]) -> FreeHeader {
    let at = numbers_at(layout);
    FreeHeader { first: be32(block, at), valid: be32(block, at + 4), used: be32(block, at + 8) }
}

/// Writes the fields of the header.
pub(crate) fn set_header(layout: &DirLayout, block: &mut impl Edit, header: FreeHeader) {
    let at = numbers_at(layout);
    let bytes = block.edit(at..at + 12);
    put32(bytes, 0, header.first);
    put32(bytes, 4, header.valid);
    put32(bytes, 8, header.used);
}

/// Returns the byte offset of a slot.
pub(crate) const fn slot_at(layout: &DirLayout, slot: usize) -> usize {
    layout.header() + slot * 2
}

/// Returns the longest unused range of a data block according to its slot.
pub(crate) fn slot(layout: &DirLayout, block: &[u8], slot: usize) -> u16 {
    be16(block, slot_at(layout, slot))
}

/// Returns all valid slots as stored. The block must have been verified.
pub(crate) fn slots<'b>(layout: &DirLayout, block: &'b [u8]) -> &'b [[u8; 2]] {
    let valid = (header(layout, block).valid as usize).min(layout.free_capacity());
    block[layout.header()..slot_at(layout, valid)].as_chunks().0
}

/// Sets the slot of an existing data block.
pub(crate) fn set_slot(layout: &DirLayout, block: &mut impl Edit, slot: usize, best: u16) {
    block.set16(slot_at(layout, slot), best);
}

/// Adds a new data block.
pub(crate) fn enter(layout: &DirLayout, block: &mut impl Edit, slot: usize, best: u16) {
    let mut header = header(layout, block.bytes());
    let valid = header.valid as usize;
    if slot >= valid {
        block.edit(slot_at(layout, valid)..slot_at(layout, slot)).fill(0xff);
        header.valid = slot as u32 + 1;
    }
    header.used += 1;
    set_header(layout, block, header);
    set_slot(layout, block, slot, best);
}

/// Removes a freed data block. Returns true if no data block is left in this index block.
pub(crate) fn remove(layout: &DirLayout, block: &mut impl Edit, slot: usize) -> bool {
    set_slot(layout, block, slot, NO_BLOCK);
    let mut header = header(layout, block.bytes());
    header.used = header.used.saturating_sub(1);
    let last = slots(layout, block.bytes()).iter().rposition(|best| *best != [0xff; 2]);
    header.valid = last.map_or(0, |last| last as u32 + 1);
    set_header(layout, block, header);
    header.used == 0
}

/// Checks everything after the common header. `at` is the low 32 bits of the logical block.
pub(super) fn verify(layout: &DirLayout, at: u32, block: &[u8]) -> Result<(), Corruption> {
    let header = header(layout, block);
    let fault = |problem: &str| Corruption::new(NAME, problem);
    let number = at.wrapping_sub(layout.free_first().0 as u32) / layout.blocks();
    let first = u64::from(number) * layout.free_capacity() as u64;
    if u64::from(header.first) != first {
        return Err(fault("firstdb").mismatch(first, header.first));
    }
    if header.valid as usize > layout.free_capacity() {
        return Err(fault("nvalid").mismatch(layout.free_capacity(), header.valid));
    }
    let used = slots(layout, block).iter().filter(|best| **best != [0xff; 2]).count();
    if used != header.used as usize {
        return Err(fault("nused").mismatch(used, header.used));
    }
    let too_long = |best: u16| best != NO_BLOCK && usize::from(best) > layout.data_room();
    if let Some(best) = slots(layout, block)
        .iter()
        .map(|best| u16::from_be_bytes(*best))
        .find(|best| too_long(*best))
    {
        let most = layout.data_room();
        return Err(
            fault("free space of a data block").mismatch(format_args!("at most {most}"), best)
        );
    }
    Ok(())
}
