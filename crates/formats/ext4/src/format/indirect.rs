//! Block maps of ext2 and ext3: twelve direct pointers and three trees of pointer blocks.
//!
//! Source: kernel Documentation/filesystems/ext4/blockmap.rst. Pointers are 32-bit block numbers; 0 is a hole that
//! covers all blocks below it.

use engine::Corruption;

use super::address::{Block, FileBlock};

/// Number of direct pointers in `i_block`.
pub(crate) const DIRECT_COUNT: u32 = 12;
/// Maximum number of pointer blocks between `i_block` and data.
pub(crate) const LEVELS_MAX: usize = 3;

/// Path from `i_block` to a file block: the slot at each level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndirectPath {
    indexes: [u16; LEVELS_MAX + 1],
    levels: u8,
}

impl IndirectPath {
    /// Returns the path to `block`, or `None` past the capacity of a map with blocks of `block_size` bytes.
    pub(crate) fn to(block: FileBlock, block_size: u32) -> Option<Self> {
        let pointers_log = (block_size / 4).ilog2();
        let mut rest = u64::from(block.0);
        if rest < u64::from(DIRECT_COUNT) {
            return Some(Self { indexes: [rest as u16, 0, 0, 0], levels: 0 });
        }
        rest -= u64::from(DIRECT_COUNT);
        for levels in 1..=LEVELS_MAX {
            let span = 1_u64 << (pointers_log * levels as u32);
            if rest < span {
                let mut indexes = [0; LEVELS_MAX + 1];
                indexes[0] = DIRECT_COUNT as u16 + levels as u16 - 1;
                for (step, index) in indexes[1..=levels].iter_mut().enumerate() {
                    let below = pointers_log * (levels - 1 - step) as u32;
                    *index = ((rest >> below) & ((1 << pointers_log) - 1)) as u16;
                }
                return Some(Self { indexes, levels: levels as u8 });
            }
            rest -= span;
        }
        None
    }

    /// Returns the number of pointer blocks on the path.
    pub(crate) fn levels(&self) -> usize {
        usize::from(self.levels)
    }

    /// Returns the slot in `i_block`, then the slot in each pointer block.
    pub(crate) fn indexes(&self) -> &[u16] {
        &self.indexes[..=self.levels()]
    }

    /// Returns the number of file blocks, from this one on, below the pointer at `step` of the path (0 is `i_block`).
    /// If that pointer is 0, it is the length of the hole.
    pub(crate) fn shared_after(&self, step: usize, block_size: u32) -> u64 {
        let pointers_log = (block_size / 4).ilog2();
        let below = self.indexes().iter().skip(step + 1);
        let position = below.fold(0, |at, &index| at << pointers_log | u64::from(index));
        let span = 1_u64 << (pointers_log * self.levels().saturating_sub(step) as u32);
        span - position
    }
}

/// Returns pointer `index` of a pointer block or of `i_block`; `None` for a hole.
pub(crate) fn pointer(block: &[u8], index: u16) -> Option<Block> {
    let at = usize::from(index) * 4;
    let bytes = block.get(at..at + 4)?;
    let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (number != 0).then_some(Block(number.into()))
}

/// Checks that all pointers of a block, or of `i_block`, are below `blocks_count`. Used after reading and before
/// writing, because these blocks have no checksum.
pub(crate) fn verify(block: &[u8], blocks_count: u64) -> Result<(), Corruption> {
    let (pointers, _) = block.as_chunks::<4>();
    match pointers.iter().map(|&p| u32::from_le_bytes(p)).find(|&p| u64::from(p) >= blocks_count) {
        Some(found) => Err(Corruption::new("indirect block", "a pointer past the last block")
            .mismatch(format_args!("below {blocks_count}"), found)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ways_are_those_of_the_format() {
        let indexes =
            |block, size| IndirectPath::to(FileBlock(block), size).unwrap().indexes().to_vec();
        assert_eq!(indexes(11, 1024), [11]);
        assert_eq!(indexes(12, 1024), [12, 0]);
        assert_eq!(indexes(12 + 255, 1024), [12, 255]);
        assert_eq!(indexes(12 + 256, 1024), [13, 0, 0]);
        assert_eq!(indexes(12 + 256 + 65536, 1024), [14, 0, 0, 0]);
        assert_eq!(indexes(12 + 256 + 65536 + 65537, 1024), [14, 1, 0, 1]);
        let last = 12 + 256 + 65536 + (1 << 24) - 1;
        assert_eq!(indexes(last, 1024), [14, 255, 255, 255]);
        assert_eq!(IndirectPath::to(FileBlock(last + 1), 1024), None);
        assert!(IndirectPath::to(FileBlock(u32::MAX), 65536).is_some());
    }

    #[test]
    fn pointers_are_checked() {
        let mut block = [0; 1024];
        block[4..8].copy_from_slice(&9_u32.to_le_bytes());
        assert_eq!((pointer(&block, 0), pointer(&block, 1)), (None, Some(Block(9))));
        assert_eq!(pointer(&block, 256), None);
        assert!(verify(&block, 10).is_ok());
        assert!(verify(&block, 9).is_err());
    }

    proptest! {
        /// A shared range ends exactly where the pointer changes.
        #[test]
        fn shared_path_prefixes_end_where_the_pointer_differs(block in 0_u32..20_000_000, size_log in 10_u32..17) {
            let size = 1 << size_log;
            if let Some(path) = IndirectPath::to(FileBlock(block), size) {
                for step in 0..=path.levels() {
                    let end = u64::from(block) + path.shared_after(step, size);
                    let last = u32::try_from(end - 1).unwrap_or(u32::MAX);
                    let last = IndirectPath::to(FileBlock(last), size).unwrap();
                    prop_assert_eq!(&last.indexes()[..=step], &path.indexes()[..=step]);
                    if let Some(next) = u32::try_from(end).ok().and_then(|end| IndirectPath::to(FileBlock(end), size)) {
                        let other = next.levels() != path.levels()
                            || next.indexes()[..=step] != path.indexes()[..=step];
                        prop_assert!(other);
                    }
                }
            }
        }
    }
}
