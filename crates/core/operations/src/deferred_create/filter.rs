//! A Bloom filter of the names in a directory: it proves that a name does not exist, with one or two cache lines
//! instead of the leaf.
//!
//! Each name sets eight bits in one half of a cache line, one in each of eight words (a split-block Bloom filter).
//! Removed names stay in it, which only increases false positives. A full part is followed by one of four times its
//! size, so that names are never read again and there are few parts.

/// Words of a block of the filter.
const WORDS: usize = 8;

/// Bits for each name when a part is full.
const BITS_PER_NAME: u64 = 12;

/// Size of each part relative to the previous one.
const GROWTH: u64 = 4;

/// Minimum number of names of the first part.
const NAMES_LEAST: u64 = 1 << 10;

/// Odd multipliers, one for each word, whose products with a hash select the bits.
const SALTS: [u32; WORDS] = [
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
    0xd3a2_646d,
    0xfd70_46c5,
    0xb55a_4f09,
];

/// A part of the filter, for `names_max` names.
struct FilterPart {
    blocks: Vec<[u32; WORDS]>,
    names_max: u64,
    names: u64,
}

/// The names of a directory, given as 64-bit hashes whose lower half must be well mixed.
pub(super) struct Filter {
    parts: Vec<FilterPart>,
}

impl FilterPart {
    fn new(names_max: u64) -> Self {
        Self { blocks: vec![[0; WORDS]; blocks_for(names_max) as usize], names_max, names: 0 }
    }

    /// Returns the block of a name, selected by the upper half of its hash.
    fn block(&self, key: u64) -> usize {
        (((key >> 32) * self.blocks.len() as u64) >> 32) as usize
    }
}

/// Mixes both halves of a hash: directory hashes may be badly distributed.
fn mixed(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn blocks_for(names: u64) -> u64 {
    (names * BITS_PER_NAME).div_ceil(32 * WORDS as u64)
}

/// Returns the bit of a name in each word of its block, selected by the lower half of the hash.
fn bits(key: u64) -> [u32; WORDS] {
    SALTS.map(|salt| 1_u32 << ((key as u32).wrapping_mul(salt) >> 27))
}

impl Filter {
    /// Creates a filter for about `names` names; more can be added.
    pub(super) fn new(names: u64) -> Self {
        Self { parts: vec![FilterPart::new(names.max(NAMES_LEAST))] }
    }

    /// Adds a name.
    pub(super) fn add(&mut self, key: u64) {
        let key = mixed(key);
        let is_full = self.parts.last().is_none_or(|part| part.names >= part.names_max);
        if is_full {
            let names_max = self.parts.last().map_or(NAMES_LEAST, |part| part.names_max * GROWTH);
            self.parts.push(FilterPart::new(names_max));
        }
        let Some(part) = self.parts.last_mut() else { return };
        part.names += 1;
        let block = part.block(key);
        for (word, bit) in part.blocks[block].iter_mut().zip(bits(key)) {
            *word |= bit;
        }
    }

    /// Returns whether a name may exist. If not, it certainly does not.
    pub(super) fn may_have(&self, key: u64) -> bool {
        let key = mixed(key);
        let bits = bits(key);
        self.parts.iter().rev().any(|part| {
            let block = &part.blocks[part.block(key)];
            block.iter().zip(bits).all(|(word, bit)| word & bit != 0)
        })
    }

    /// Returns the memory of a filter for `names` names, in bytes.
    pub(super) fn bytes_for(names: u64) -> usize {
        blocks_for(names) as usize * size_of::<[u32; WORDS]>()
    }

    /// Returns the memory of this filter in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| size_of_val(&part.blocks[..])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_few_others() {
        let mut random = fastrand::Rng::with_seed(7);
        let keys: Vec<_> = (0..100_000).map(|_| random.u64(..)).collect();
        let mut filter = Filter::new(0);
        keys.iter().for_each(|&key| filter.add(key));
        assert!(keys.iter().all(|&key| filter.may_have(key)));
        let wrong = (0..100_000).filter(|_| filter.may_have(random.u64(..))).count();
        assert!(wrong < 4_000, "{wrong}");
        assert!(filter.bytes() < 100_000 * 6, "{}", filter.bytes());
    }
}
