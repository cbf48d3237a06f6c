//! The number of levels of a tree and their locations.

/// Size of a digest in bytes.
pub(crate) const DIGEST_BYTES: usize = 32;

/// A SHA-256 digest.
pub type Digest = [u8; DIGEST_BYTES];

/// The contiguous blocks of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLevel {
    /// First block, counted from the start of the tree.
    pub first: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Dimensions of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeShape {
    data_block: u32,
    hash_block: u32,
    data_blocks: u64,
    /// From the digests of the data up to the single block at the top. Empty if there is at most one data block.
    levels: Vec<TreeLevel>,
}

impl TreeShape {
    /// Returns the tree over `data_bytes`. A short last data block counts as padded with zeros. Block sizes must be
    /// powers of two, and a block of the tree must have room for at least two digests.
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
            TreeLevel { first, blocks }
        });
        let levels = levels.collect();
        Self { data_block, hash_block, data_blocks, levels }
    }

    /// Returns the size of a data block in bytes.
    pub fn data_block(&self) -> u32 {
        self.data_block
    }

    /// Returns the size of a block of the tree in bytes.
    pub fn hash_block(&self) -> u32 {
        self.hash_block
    }

    /// Returns the number of data blocks.
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// Returns the levels, from the digests of the data upwards.
    pub(crate) fn levels(&self) -> &[TreeLevel] {
        &self.levels
    }

    /// Returns the size of the whole tree in bytes.
    pub fn tree_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.blocks).sum::<u64>() * u64::from(self.hash_block)
    }

    /// Returns the number of digests in a block of the tree.
    pub(crate) fn per_block(&self) -> u64 {
        u64::from(self.hash_block) / DIGEST_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(blocks: u64) -> Vec<(u64, u64)> {
        let shape = TreeShape::new(blocks * 4096, 4096, 4096);
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
        assert_eq!(TreeShape::new(129 * 4096, 4096, 4096).tree_bytes(), 3 * 4096);
        // The maximum size terminates, too.
        assert_eq!(TreeShape::new(u64::MAX, 512, 4096).levels().len(), 8);
    }

    #[test]
    fn a_short_block_counts() {
        assert_eq!(TreeShape::new(4097, 4096, 4096).data_blocks(), 2);
        assert_eq!(TreeShape::new(1, 4096, 4096).data_blocks(), 1);
        assert_eq!(TreeShape::new(129, 64, 64).levels().len(), 2);
    }
}
