//! Contents of a volume as numbers of writes, and those that may survive a crash.

use std::ops::Range;

pub(super) const BLOCK_BYTES: u64 = 4096;
/// Number of blocks that are used: the first ones of each region of 4 MiB.
pub(super) const BLOCKS: u64 = 8 * REGION_BLOCKS;
const REGION_BLOCKS: u64 = 64;
const REGION_BYTES: u64 = 4 << 20;
pub(super) const LEN: u64 = 8 * REGION_BYTES;

/// Splits a range of blocks at regions. Returns each part with its offset on the device.
pub(super) fn parts(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let regions = blocks.start / REGION_BLOCKS..blocks.end.div_ceil(REGION_BLOCKS);
    regions.map(move |region| {
        let start = blocks.start.max(region * REGION_BLOCKS);
        let end = blocks.end.min((region + 1) * REGION_BLOCKS);
        (region * REGION_BYTES + start % REGION_BLOCKS * BLOCK_BYTES, start..end)
    })
}

/// Returns the contents of a block after a write.
pub(super) fn block(number: u64, block: u64) -> Vec<u8> {
    let word = (number << 16 | block).to_le_bytes();
    word.into_iter().cycle().take(BLOCK_BYTES as usize).collect()
}

/// Returns the number of the write of each block; 0 for zeros.
pub(super) fn numbers(data: &[u8]) -> Vec<u64> {
    let number = |(index, found): (usize, &[u8])| {
        let word = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert!(found.chunks(8).all(|other| other == &found[..8]), "block {index} is torn");
        assert!(word == 0 || word & 0xffff == index as u64, "block {index} has another place");
        word >> 16
    };
    data.chunks(BLOCK_BYTES as usize).enumerate().map(number).collect()
}

/// A write of a block that may survive: its number, and the number of barriers before it.
#[derive(Clone, Copy, Debug)]
struct BlockWrite {
    number: u64,
    barrier: u64,
}

/// Writes of each block since the last one that must survive, in order.
#[derive(Clone)]
pub(super) struct ExpectedContents {
    blocks: Vec<Vec<BlockWrite>>,
    number: u64,
    barrier: u64,
}

impl ExpectedContents {
    pub(super) fn new() -> Self {
        let zeros = vec![BlockWrite { number: 0, barrier: 0 }];
        Self { blocks: vec![zeros; BLOCKS as usize], number: 0, barrier: 0 }
    }

    /// Adds a write, and returns its number. Zeros have the number 0.
    pub(super) fn write(&mut self, blocks: Range<u64>, is_zero: bool) -> u64 {
        self.number += 1;
        let number = if is_zero { 0 } else { self.number };
        for block in blocks {
            self.blocks[block as usize].push(BlockWrite { number, barrier: self.barrier });
        }
        number
    }

    pub(super) fn barrier(&mut self) {
        self.barrier += 1;
    }

    /// All writes were made durable.
    pub(super) fn synced(&mut self) {
        for writes in &mut self.blocks {
            writes.drain(..writes.len() - 1);
            writes[0].barrier = 0;
        }
        self.barrier = 0;
    }

    pub(super) fn newest(&self) -> Vec<u64> {
        self.blocks.iter().map(|writes| writes[writes.len() - 1].number).collect()
    }

    /// Checks contents that another machine finds. From then on, they must survive.
    ///
    /// # Panics
    /// If a synced write was lost, or a write before a barrier although one after it survived.
    pub(super) fn survived(&mut self, found: &[u64]) {
        // Zeros and equal numbers may be of several writes. A write that must have survived is the first of them,
        // and a write that must not be too old is the last.
        let barrier = self.blocks.iter().zip(found).map(|(writes, found)| {
            let write = writes.iter().find(|write| write.number == *found);
            write.map_or(0, |write| write.barrier)
        });
        let barrier = barrier.max().unwrap_or(0);
        for (block, (writes, found)) in self.blocks.iter_mut().zip(found).enumerate() {
            let index = writes.iter().rposition(|write| write.number == *found);
            let index = index.unwrap_or_else(|| {
                panic!("block {block} has write {found}, and not one of {writes:?}")
            });
            let must = writes.iter().rposition(|write| write.barrier < barrier).unwrap_or(0);
            assert!(
                index >= must,
                "block {block} has write {found}, but writes after barrier {barrier} survived: \
                 {writes:?}"
            );
            *writes = vec![BlockWrite { number: *found, barrier: 0 }];
        }
        self.barrier = 0;
    }
}
