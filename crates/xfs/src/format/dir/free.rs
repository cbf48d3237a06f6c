//! Blocks of the index of free space: the longest unused range of each data block.

use transaction::Corruption;

use super::{Layout, header};
use crate::format::bytes::{be16, be32, put32};
use crate::format::edit::Edit;

/// What stands for a data block that is not there (`NULLDATAOFF`).
pub const NO_BLOCK: u16 = 0xffff;
const NAME: &str = "directory free index";

/// The numbers of a block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The first data block it describes.
    pub first: u32,
    /// Slots that count.
    pub valid: u32,
    /// Slots of data blocks that are there.
    pub used: u32,
}

fn numbers_at(layout: &Layout) -> usize {
    if layout.crc { header::DIR_END } else { 4 }
}

/// The numbers of the header.
pub fn header(layout: &Layout, block: &[u8]) -> Header {
    let at = numbers_at(layout);
    Header { first: be32(block, at), valid: be32(block, at + 4), used: be32(block, at + 8) }
}

/// Writes the numbers of the header.
pub fn set_header(layout: &Layout, block: &mut impl Edit, header: Header) {
    let at = numbers_at(layout);
    let bytes = block.edit(at..at + 12);
    put32(bytes, 0, header.first);
    put32(bytes, 4, header.valid);
    put32(bytes, 8, header.used);
}

/// First byte of a slot.
pub const fn slot_at(layout: &Layout, slot: usize) -> usize {
    layout.header() + slot * 2
}

/// The longest unused range that a slot says its data block has.
pub fn slot(layout: &Layout, block: &[u8], slot: usize) -> u16 {
    be16(block, slot_at(layout, slot))
}

/// All slots that count, as they lie. The block was verified.
pub fn slots<'b>(layout: &Layout, block: &'b [u8]) -> &'b [[u8; 2]] {
    let valid = (header(layout, block).valid as usize).min(layout.free_capacity());
    block[layout.header()..slot_at(layout, valid)].as_chunks().0
}

/// Writes a slot of a data block that is there before and after.
pub fn set_slot(layout: &Layout, block: &mut impl Edit, slot: usize, best: u16) {
    block.set16(slot_at(layout, slot), best);
}

/// Enters a data block that was not there.
pub fn enter(layout: &Layout, block: &mut impl Edit, slot: usize, best: u16) {
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

/// Takes out a data block that is there no more. True if the block describes nothing now.
pub fn remove(layout: &Layout, block: &mut impl Edit, slot: usize) -> bool {
    set_slot(layout, block, slot, NO_BLOCK);
    let mut header = header(layout, block.bytes());
    header.used = header.used.saturating_sub(1);
    let last = slots(layout, block.bytes()).iter().rposition(|best| *best != [0xff; 2]);
    header.valid = last.map_or(0, |last| last as u32 + 1);
    set_header(layout, block, header);
    header.used == 0
}

/// Checks everything behind the common header. `at` is the logical block (low 32 bits).
pub(super) fn verify(layout: &Layout, at: u32, block: &[u8]) -> Result<(), Corruption> {
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
