//! Allocation and mapping of a new file's blocks: as extents, or as a block map if extents are disabled.

use std::ops::Range;

use super::space::Space;
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{self, Extent, IndexEntry, WRITTEN_LEN_MAX};
use crate::format::inode::I_BLOCK_SIZE;

/// Number of direct blocks of a block map.
pub(crate) const DIRECT_BLOCKS: u64 = 12;
/// Maximum depth of a block map.
const LEVELS: u32 = 3;

/// Blocks of a file and their mapping.
pub(crate) struct Mapped {
    /// Contents of `i_block`.
    pub(crate) i_block: [u8; I_BLOCK_SIZE],
    /// Map blocks with their contents.
    pub(crate) index: Vec<(Block, Vec<u8>)>,
    /// Data blocks in file order.
    pub(crate) data: Vec<Range<u64>>,
}

impl Mapped {
    /// Iterates over the data blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.data.iter().cloned().flatten().map(Block)
    }

    /// Returns the number of all blocks, including map blocks, rounded up to clusters of `unit` blocks.
    pub(crate) fn total(&self, unit: u64) -> u64 {
        let data = self.data.iter().map(|run| (run.end - run.start).next_multiple_of(unit));
        data.sum::<u64>() + self.index.len() as u64 * unit
    }
}

/// Allocates `len` blocks near `goal` for a file and maps them with extents. `seed` is the inode's checksum seed, if
/// there are checksums. Returns `None` if there is no room.
pub(crate) fn extents(
    space: &mut Space,
    goal: u64,
    len: u64,
    block_size: usize,
    seed: Option<u32>,
) -> Option<Mapped> {
    let data = space.take_pieces(goal, len)?;
    let mut level: Vec<(FileBlock, [u8; extent::ENTRY_SIZE])> =
        extents_of(&data).iter().map(|extent| (extent.block, extent.encode())).collect();
    let mut index = Vec::new();
    let mut depth = 0;
    while level.len() > usize::from(extent::capacity(I_BLOCK_SIZE)) {
        let mut above = Vec::new();
        for entries in level.chunks(extent::capacity(block_size).into()) {
            // Prefer the block before the data, as mke2fs does.
            let place = Block(space.take_run(data.first()?.start.saturating_sub(1), 1)?);
            let mut bytes = vec![0; block_size];
            write_node(&mut bytes, entries, depth);
            if let Some(seed) = seed {
                extent::seal(&mut bytes, seed);
            }
            let (block, _) = *entries.first()?;
            above.push((block, IndexEntry { block, leaf: place }.encode()));
            index.push((place, bytes));
        }
        level = above;
        depth += 1;
    }
    let mut i_block = [0; I_BLOCK_SIZE];
    write_node(&mut i_block, &level, depth);
    Some(Mapped { i_block, index, data })
}

fn extents_of(data: &[Range<u64>]) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut block = 0;
    for run in data {
        let mut start = run.start;
        while start < run.end {
            let len = (run.end - start).min(u64::from(WRITTEN_LEN_MAX)) as u32;
            extents.push(Extent {
                block: FileBlock(block),
                len,
                start: Block(start),
                unwritten: false,
            });
            block += len;
            start += u64::from(len);
        }
    }
    extents
}

fn write_node(node: &mut [u8], entries: &[(FileBlock, [u8; extent::ENTRY_SIZE])], depth: u16) {
    let capacity = extent::capacity(node.len());
    extent::write_header(&mut node[..extent::ENTRY_SIZE], entries.len() as u16, capacity, depth);
    for (at, (_, entry)) in entries.iter().enumerate() {
        node[extent::entry_range(at)].copy_from_slice(entry);
    }
}

/// Allocates `len` blocks near `goal` for a file and maps them with a block map. Returns `None` if there is no room.
pub(crate) fn block_map(
    space: &mut Space,
    goal: u64,
    len: u64,
    block_size: usize,
) -> Option<Mapped> {
    let per_block = block_size as u64 / 4;
    let pieces = space.take_pieces(goal, len + index_blocks(len, per_block)?)?;
    let mut filler = Filler {
        free: pieces.into_iter().flatten(),
        left: len,
        block_size,
        index: Vec::new(),
        data: Vec::new(),
    };
    let mut i_block = [0; I_BLOCK_SIZE];
    for slot in 0..DIRECT_BLOCKS as usize + LEVELS as usize {
        if filler.left == 0 {
            break;
        }
        let level = (slot as u32 + 1).saturating_sub(DIRECT_BLOCKS as u32);
        let block = filler.fill(level)?;
        i_block[slot * 4..slot * 4 + 4].copy_from_slice(&block.to_le_bytes());
    }
    Some(Mapped { i_block, index: filler.index, data: filler.data })
}

/// Returns the number of pointer blocks for `len` data blocks; `None` if there are too many.
fn index_blocks(len: u64, per_block: u64) -> Option<u64> {
    let mut left = len.saturating_sub(DIRECT_BLOCKS);
    let mut count = 0;
    for level in 1..=LEVELS {
        let covered = left.min(per_block.pow(level));
        count += (1..=level).map(|l| covered.div_ceil(per_block.pow(l))).sum::<u64>();
        left -= covered;
    }
    (left == 0).then_some(count)
}

/// Assigns blocks in the order in which a reader needs them.
struct Filler<I> {
    free: I,
    left: u64,
    block_size: usize,
    index: Vec<(Block, Vec<u8>)>,
    data: Vec<Range<u64>>,
}

impl<I: Iterator<Item = u64>> Filler<I> {
    /// Assigns the next data block or, at a level above 0, a pointer block and the blocks below it.
    fn fill(&mut self, level: u32) -> Option<u32> {
        let block = self.free.next()?;
        if level == 0 {
            self.left -= 1;
            match self.data.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => self.data.push(block..block + 1),
            }
        } else {
            let mut bytes = vec![0; self.block_size];
            for pointer in bytes.chunks_exact_mut(4) {
                if self.left == 0 {
                    break;
                }
                pointer.copy_from_slice(&self.fill(level - 1)?.to_le_bytes());
            }
            self.index.push((Block(block), bytes));
        }
        u32::try_from(block).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_extents_fit_the_inode_and_many_take_a_block() {
        let mut space = Space::new(0..1 << 20);
        let few = extents(&mut space, 100, 40_000, 4096, None).unwrap();
        assert_eq!((few.index.len(), few.total(1)), (0, 40_000));
        let many = extents(&mut space, 500_000, 200_000, 4096, None).unwrap();
        assert_eq!((many.index.len(), many.total(1)), (1, 200_001));
        assert_eq!(many.index[0].0, Block(499_999));
    }

    #[test]
    fn any_number_of_pieces_is_mapped() {
        let mut space = Space::new(0..10_000);
        (0..5000).for_each(|at| space.take(2 * at..2 * at + 1));
        let mapped = extents(&mut space, 0, 4000, 1024, None).unwrap();
        // 84 entries fit into a block: 48 leaves below one index block, and four entries into the inode.
        assert_eq!((mapped.index.len(), mapped.i_block[6]), (49, 2));
        assert_eq!(mapped.blocks().count(), 4000);
        assert_eq!(space.taken_in(0..10_000), 5000 + 4049);
    }

    #[test]
    fn a_block_map_names_every_block_once() {
        for len in [1, 12, 13, 268, 269, 66_000] {
            let mut space = Space::new(0..1 << 20);
            space.take(1000..2000);
            let mapped = block_map(&mut space, 10, len, 1024).unwrap();
            assert_eq!(mapped.blocks().count() as u64, len);
            assert_eq!(space.taken_in(0..1 << 20), 1000 + mapped.total(1));
        }
    }

    #[test]
    fn no_room_takes_nothing() {
        let mut space = Space::new(0..100);
        assert!(block_map(&mut space, 0, 100, 1024).is_none());
        assert_eq!(space.taken_in(0..100), 0);
    }
}
