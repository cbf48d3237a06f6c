//! References of recently read regions in memory, so that a prefetch and the reads after it scan the database once.
//!
//! Invariant: an entry agrees with the database as long as no write of its region is in progress. A write removes the
//! entries of its regions when it starts, and no load that overlaps the write in time adds one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::volume::bulk::{BlockValue, Reference};

/// Maximum number of references in memory. Each takes 64 bytes.
const REFERENCES_MAX: usize = 64 << 10;
/// Maximum number of known regions. Entries are searched one after the other.
const REGIONS_MAX: usize = 64;

/// References of a region with their blocks, in order. Other blocks are zeros.
type Region = Arc<[(u64, Reference)]>;

/// Knowledge about a region.
#[derive(Clone, Debug)]
pub(crate) enum KnownRegion {
    /// All its data is in objects.
    Bulk(Region),
    /// It has data in the database, which is not kept here.
    Mixed,
}

/// Cache of the references of regions.
pub(crate) struct RegionReferences {
    /// Number of blocks in a region.
    region_blocks: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last used region is first.
    known: VecDeque<(u64, KnownRegion)>,
    /// Sum of the weights of all known regions.
    weight: usize,
    /// Valid loads and all writes in progress by number, with their regions.
    loads: Vec<(u64, Range<u64>)>,
    writes: Vec<(u64, Range<u64>)>,
    next: u64,
}

/// A load of regions. Writes of its regions make it invalid.
pub(crate) struct Load<'a> {
    cache: &'a RegionReferences,
    number: u64,
}

/// A write of blocks to the database. Their references are not cached until it is dropped.
pub(crate) struct Write<'a> {
    cache: &'a RegionReferences,
    number: u64,
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().loads.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().writes.retain(|(number, _)| *number != self.number);
    }
}

impl RegionReferences {
    pub(crate) fn new(region_blocks: u64) -> Self {
        Self { region_blocks, state: Mutex::default() }
    }

    /// Returns the regions that overlap a range of blocks.
    pub(crate) fn regions(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start / self.region_blocks..blocks.end.div_ceil(self.region_blocks)
    }

    /// Returns the blocks of regions.
    pub(crate) fn blocks(&self, regions: &Range<u64>) -> Range<u64> {
        regions.start * self.region_blocks..regions.end * self.region_blocks
    }

    /// Returns a region if it is known.
    pub(crate) fn get(&self, region: u64) -> Option<KnownRegion> {
        let mut state = self.state.lock();
        let at = state.known.iter().position(|(known, _)| *known == region)?;
        let found = state.known.remove(at)?;
        let entry = found.1.clone();
        state.known.push_front(found);
        Some(entry)
    }

    /// Starts to read regions from the database.
    pub(crate) fn load(&self, regions: Range<u64>) -> Load<'_> {
        let mut state = self.state.lock();
        let number = state.number();
        if !state.writes.iter().any(|(_, written)| overlap(written, &regions)) {
            state.loads.push((number, regions));
        }
        Load { cache: self, number }
    }

    /// Starts to write blocks. Must be called before the database shows the new values.
    pub(crate) fn write(&self, blocks: &Range<u64>) -> Write<'_> {
        let regions = self.regions(blocks);
        let mut state = self.state.lock();
        state.known.retain(|(region, _)| !regions.contains(region));
        state.weight = state.known.iter().map(|(_, entry)| entry.weight()).sum();
        state.loads.retain(|(_, loaded)| !overlap(loaded, &regions));
        let number = state.number();
        state.writes.push((number, regions));
        Write { cache: self, number }
    }
}

impl Load<'_> {
    /// Adds a region with all its values, unless a write made the load invalid.
    pub(crate) fn add(&self, region: u64, values: &[(u64, BlockValue)]) {
        let references = values.iter().map(|(block, value)| match value {
            BlockValue::Bulk(reference) => Some((*block, *reference)),
            BlockValue::Data(_) => None,
        });
        let entry = references.collect::<Option<Region>>();
        let entry = entry.map_or(KnownRegion::Mixed, KnownRegion::Bulk);
        let mut state = self.cache.state.lock();
        let is_known = state.known.iter().any(|(known, _)| *known == region);
        if is_known || !state.loads.iter().any(|(number, _)| *number == self.number) {
            return;
        }
        state.weight += entry.weight();
        state.known.push_front((region, entry));
        while state.weight > REFERENCES_MAX {
            let Some((_, oldest)) = state.known.pop_back() else { break };
            state.weight -= oldest.weight();
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl KnownRegion {
    /// Returns the part of [`REFERENCES_MAX`] that the entry takes, so that both limits hold.
    fn weight(&self) -> usize {
        let len = if let Self::Bulk(references) = self { references.len() } else { 0 };
        len.max(REFERENCES_MAX / REGIONS_MAX)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::bulk::ObjectName;
    use bytes::Bytes;

    const SIZE: u64 = 1024;

    /// Returns the values of a region in which all blocks are in object `number`.
    fn values(region: u64, number: u128) -> Vec<(u64, BlockValue)> {
        let object = ObjectName { epoch: 1, number };
        let value = |index: u64| Reference { object, index: index as u32, checksum: index };
        (0..SIZE).map(|index| (region * SIZE + index, BlockValue::Bulk(value(index)))).collect()
    }

    /// Returns the number of the object of a region.
    fn object(cache: &RegionReferences, region: u64) -> Option<u128> {
        match cache.get(region)? {
            KnownRegion::Bulk(found) => Some(found[0].1.object.number),
            KnownRegion::Mixed => None,
        }
    }

    #[test]
    fn a_write_removes_its_regions_and_refuses_earlier_loads() {
        let cache = RegionReferences::new(SIZE);
        let load = cache.load(0..4);
        (0..3).for_each(|region| load.add(region, &values(region, 1)));
        let write = cache.write(&(SIZE..SIZE + 1));
        assert_eq!([0, 1, 2].map(|it| object(&cache, it)), [Some(1), None, Some(1)]);
        // Values read before or during the write may be older.
        let during = cache.load(1..2);
        load.add(3, &values(3, 1));
        load.add(1, &values(1, 1));
        during.add(1, &values(1, 1));
        drop(write);
        load.add(1, &values(1, 1));
        during.add(1, &values(1, 1));
        assert_eq!([1, 3].map(|it| object(&cache, it)), [None; 2]);
        cache.load(1..2).add(1, &values(1, 2));
        assert_eq!(object(&cache, 1), Some(2));
        // A write of a neighbour does not matter.
        let load = cache.load(4..5);
        drop(cache.write(&(5 * SIZE..6 * SIZE)));
        load.add(4, &values(4, 3));
        assert_eq!(object(&cache, 4), Some(3));
    }

    #[test]
    fn memory_is_bounded_and_the_last_used_regions_stay() {
        let cache = RegionReferences::new(SIZE);
        let load = cache.load(0..1000);
        for region in 0..1000 {
            load.add(region, &values(region, 1));
            assert_eq!(object(&cache, 0), Some(1), "used after each load");
        }
        let known: Vec<_> = (0..1000).filter(|region| cache.get(*region).is_some()).collect();
        let rest = 1001 - REGIONS_MAX as u64..1000;
        assert_eq!(known, [vec![0], rest.collect()].concat());
        // Empty regions count, too, and small blocks make regions with more references.
        let load = cache.load(1000..3000);
        (1000..2000).for_each(|region| load.add(region, &[]));
        assert_eq!(cache.state.lock().known.len(), REGIONS_MAX);
        let large: Vec<_> = (0..8).flat_map(|region| values(region, 1)).collect();
        (2000..3000).for_each(|region| load.add(region, &large));
        assert_eq!(cache.state.lock().known.len(), REGIONS_MAX / 8);
    }

    #[test]
    fn data_is_not_kept() {
        let cache = RegionReferences::new(SIZE);
        let mut mixed = values(0, 1);
        mixed[7].1 = BlockValue::Data(Bytes::new());
        cache.load(0..1).add(0, &mixed);
        assert!(matches!(cache.get(0), Some(KnownRegion::Mixed)));
    }
}
