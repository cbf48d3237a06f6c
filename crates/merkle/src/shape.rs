//! How many levels a tree has, and where each lies.

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;

/// A SHA-256 digest.
pub type Digest = [u8; DIGEST_BYTES];

/// Blocks of one level that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// First block, counted from the start of the tree.
    pub first: u64,
    /// How many blocks there are.
    pub blocks: u64,
}

/// The tree over so much data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    data_block: u32,
    hash_block: u32,
    data_blocks: u64,
    /// From the digests of the data up to the one block at the top. Empty if there is at most one data block.
    levels: Vec<Level>,
}

impl Shape {
    /// The tree over `data_bytes`. The last data block may be short: it counts as filled up with zeros. Block sizes
    /// are powers of two, and a block of the tree has room for at least two digests.
    pub fn new(data_bytes: u64, data_block: u32, hash_block: u32) -> Self {
        assert!(data_block.is_power_of_two() && hash_block.is_power_of_two());
        assert!(hash_block as usize >= 2 * DIGEST_BYTES);
        let data_blocks = data_bytes.div_ceil(data_block.into());
        let per_block = u64::from(hash_block) / DIGEST_BYTES as u64;
        let mut counts = Vec::new();
        let mut below = data_blocks;
        while below > 1 {
            below = below.div_ceil(per_block);
            counts.push(below);
        }
        let mut first = counts.iter().sum::<u64>();
        let levels = counts.into_iter().map(|blocks| {
            first -= blocks;
            Level { first, blocks }
        });
        let levels = levels.collect();
        Self { data_block, hash_block, data_blocks, levels }
    }

    /// Bytes of a block of data.
    pub fn data_block(&self) -> u32 {
        self.data_block
    }

    /// Bytes of a block of the tree.
    pub fn hash_block(&self) -> u32 {
        self.hash_block
    }

    /// Blocks of data.
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// The levels from the digests of the data up.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Bytes of the whole tree.
    pub fn tree_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.blocks).sum::<u64>() * u64::from(self.hash_block)
    }

    /// Digests in a block of the tree.
    pub(crate) fn per_block(&self) -> u64 {
        u64::from(self.hash_block) / DIGEST_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(blocks: u64) -> Vec<(u64, u64)> {
        let shape = Shape::new(blocks * 4096, 4096, 4096);
        assert_eq!(shape.data_blocks(), blocks);
        shape.levels().iter().map(|level| (level.first, level.blocks)).collect()
    }

    #[test]
    fn the_top_comes_first() {
        assert_eq!(levels(0), []);
        assert_eq!(levels(1), []);
        assert_eq!(levels(2), [(0, 1)]);
        assert_eq!(levels(128), [(0, 1)]);
        assert_eq!(levels(129), [(1, 2), (0, 1)]);
        assert_eq!(levels(128 * 128 + 1), [(3, 129), (1, 2), (0, 1)]);
        assert_eq!(Shape::new(129 * 4096, 4096, 4096).tree_bytes(), 3 * 4096);
        // The largest there is has an end, too.
        assert_eq!(Shape::new(u64::MAX, 512, 4096).levels().len(), 8);
    }

    #[test]
    fn a_short_block_counts() {
        assert_eq!(Shape::new(4097, 4096, 4096).data_blocks(), 2);
        assert_eq!(Shape::new(1, 4096, 4096).data_blocks(), 1);
        assert_eq!(Shape::new(129, 64, 64).levels().len(), 2);
    }
}
