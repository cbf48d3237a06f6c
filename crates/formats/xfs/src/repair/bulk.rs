//! Builds trees of a group in bulk from sorted records.

use std::marker::PhantomData;

use crate::btree::Tree;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::btree::{LEVELS_MAX, Side};
use crate::format::bytes::{put16, put32};
use crate::format::geometry::Geometry;

/// Fill of blocks in quarters, so that the first changes do not split any.
const FILL_QUARTERS: usize = 3;
/// Maximum fill, if there is no other space.
const FULL_QUARTERS: usize = 4;

/// Fill of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// With room for more records.
    Roomy,
    /// In as few blocks as possible.
    Full,
}

/// Returns the number of blocks of each level of a tree with `records` records, the leaves first.
pub(super) fn levels<T: Tree>(geometry: &Geometry, records: usize, fill: Fill) -> Vec<usize> {
    let leaf = T::SHAPE.leaf_area(geometry);
    let node = T::SHAPE.node_area(geometry);
    let mut levels = vec![blocks_for(records, leaf.min(), leaf.max, fill)];
    while let Some(&below) = levels.last().filter(|below| **below > 1)
        && levels.len() < LEVELS_MAX
    {
        levels.push(blocks_for(below, node.min(), node.max, fill));
    }
    levels
}

/// Returns the total number of blocks of such a tree.
pub(super) fn blocks<T: Tree>(geometry: &Geometry, records: usize, fill: Fill) -> usize {
    levels::<T>(geometry, records, fill).iter().sum()
}

/// Returns the number of blocks for `entries` entries, with at least `min` and at most `max` in each.
fn blocks_for(entries: usize, min: usize, max: usize, fill: Fill) -> usize {
    let quarters = if fill == Fill::Full { FULL_QUARTERS } else { FILL_QUARTERS };
    let wanted = entries.div_ceil((max * quarters / 4).max(1)).max(1);
    // Entries are distributed evenly: fewer blocks are used if each would have too few.
    if entries / wanted >= min { wanted } else { entries.div_ceil(max.max(1)).max(1) }
}

/// A tree that was built.
#[derive(Debug)]
pub(super) struct Built {
    /// Its blocks and their contents.
    pub(super) blocks: Vec<(AgBlock, Vec<u8>)>,
    pub(super) root: AgBlock,
    pub(super) levels: u32,
}

/// Builds the tree of the sorted `records` in the given blocks, as many as [`blocks`] returns.
pub(super) fn build<T: Tree>(
    geometry: &Geometry,
    ag: AgNumber,
    records: &[T::Record],
    fill: Fill,
    places: &[AgBlock],
) -> Built {
    let levels = levels::<T>(geometry, records.len(), fill);
    let mut builder =
        Builder::<T> { geometry, ag, places: places.iter(), built: Vec::new(), tree: PhantomData };
    let mut entries = builder.leaves(records, levels[0]);
    for (level, count) in (1..).zip(&levels[1..]) {
        entries = builder.nodes(&entries, *count, level);
    }
    let root = entries.first().map_or(AgBlock(0), |entry| entry.place);
    Built { blocks: builder.built, root, levels: levels.len() as u32 }
}

/// The node entry of a block.
struct NodeEntry {
    place: AgBlock,
    /// Lowest key, followed by the highest one if records overlap.
    key: Vec<u8>,
}

struct Builder<'b, T> {
    geometry: &'b Geometry,
    ag: AgNumber,
    places: std::slice::Iter<'b, AgBlock>,
    built: Vec<(AgBlock, Vec<u8>)>,
    tree: PhantomData<T>,
}

/// Returns the ranges into which entries are distributed evenly.
fn parts(entries: usize, blocks: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..blocks).map(move |at| at * entries / blocks..(at + 1) * entries / blocks)
}

impl<T: Tree> Builder<'_, T> {
    fn next_place(&mut self) -> AgBlock {
        *self.places.next().expect("the number of locations equals the number of blocks")
    }

    /// Builds a level of blocks linked as siblings. `fill` writes the entries of a range and returns the key.
    fn level(
        &mut self,
        entries: usize,
        blocks: usize,
        level: u16,
        mut fill: impl FnMut(std::ops::Range<usize>, &mut [u8]) -> Vec<u8>,
    ) -> Vec<NodeEntry> {
        let places: Vec<AgBlock> = (0..blocks).map(|_| self.next_place()).collect();
        let mut made = Vec::with_capacity(blocks);
        for (at, range) in parts(entries, blocks).enumerate() {
            let place = places[at];
            let mut bytes = vec![0; self.geometry.block_size()];
            let block = self.geometry.block_of(self.ag, place);
            T::SHAPE.init(self.geometry, block, self.ag.0.into(), level, &mut bytes);
            let left = at.checked_sub(1).map(|left| places[left]);
            for (side, sibling) in [(Side::Left, left), (Side::Right, places.get(at + 1).copied())]
            {
                let sibling = sibling.unwrap_or(AgBlock::NULL);
                put32(&mut bytes, T::SHAPE.sibling_range(side).start, sibling.0);
            }
            let area = if level == 0 {
                T::SHAPE.leaf_area(self.geometry)
            } else {
                T::SHAPE.node_area(self.geometry)
            };
            put16(&mut bytes, area.count_range().start, range.len() as u16);
            let key = fill(range, &mut bytes);
            T::SHAPE.seal(self.geometry, &mut bytes);
            self.built.push((place, bytes));
            made.push(NodeEntry { place, key });
        }
        made
    }

    fn leaves(&mut self, records: &[T::Record], blocks: usize) -> Vec<NodeEntry> {
        let area = T::SHAPE.leaf_area(self.geometry);
        self.level(records.len(), blocks, 0, |range, bytes| {
            let records = &records[range];
            for (at, record) in records.iter().enumerate() {
                T::put_record(record, &mut bytes[area.entry_range(at, at + 1)]);
            }
            let mut key = vec![0; T::SHAPE.key_size];
            let half = key.len() / 2;
            if !records.is_empty() {
                let low = if T::OVERLAPS { half } else { key.len() };
                T::put_low_key(&bytes[area.entry_range(0, 1)], &mut key[..low]);
            }
            if T::OVERLAPS
                && let Some(high) = records.iter().map(T::high_key_of).max()
            {
                T::put_key(&high, &mut key[half..]);
            }
            key
        })
    }

    fn nodes(&mut self, below: &[NodeEntry], blocks: usize, level: u16) -> Vec<NodeEntry> {
        let area = T::SHAPE.node_area(self.geometry);
        self.level(below.len(), blocks, level, |range, bytes| {
            let below = &below[range];
            for (at, entry) in below.iter().enumerate() {
                bytes[area.entry_range(at, at + 1)].copy_from_slice(&entry.key);
                put32(bytes, area.pointer_range(at, at + 1).start, entry.place.0);
            }
            let mut key = below.first().map_or_else(Vec::new, |entry| entry.key.clone());
            let half = key.len() / 2;
            let high = |entry: &NodeEntry| T::key(&entry.key[half..]);
            if T::OVERLAPS
                && let Some(high) = below.iter().map(high).max()
            {
                T::put_key(&high, &mut key[half..]);
            }
            key
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_as_many_entries_as_it_must() {
        for fill in [Fill::Roomy, Fill::Full] {
            for max in [2, 11, 22, 59, 91, 505] {
                for entries in 0..5 * max {
                    let blocks = blocks_for(entries, max / 2, max, fill);
                    for part in parts(entries, blocks) {
                        assert!(part.len() <= max, "{entries} in {blocks} of {max}");
                        assert!(blocks == 1 || part.len() >= max / 2, "{entries} of {max}");
                    }
                }
            }
        }
    }
}
