//! Nodes of extent trees: the root in `i_block`, the others in separate blocks.
//!
//! Source: kernel Documentation/filesystems/ext4/ifork.rst. A node is a header and an array of 12-byte entries in
//! ascending order: extents in leaves (depth 0), index entries above. In blocks, a checksum follows the space for the
//! last entry.

use engine::Corruption;

use super::address::{Block, FileBlock};
use super::checksum::crc32c;

/// `eh_magic`.
const MAGIC: u16 = 0xf30a;

/// Size of the header, of an extent and of an index entry, in bytes.
pub const ENTRY_SIZE: usize = 12;

/// Size of the checksum in blocks, in bytes.
const TAIL_SIZE: usize = 4;

/// Maximum depth of a tree.
pub(crate) const DEPTH_MAX: u16 = 5;

/// Maximum number of blocks of a written extent. A larger length field means an unwritten extent, whose length is the
/// excess.
pub(crate) const WRITTEN_LEN_MAX: u32 = 1 << 15;

/// Maximum number of blocks of an unwritten extent.
pub(crate) const UNWRITTEN_LEN_MAX: u32 = WRITTEN_LEN_MAX - 1;

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block in the file.
    pub block: FileBlock,
    /// Number of blocks: 1 to `WRITTEN_LEN_MAX`, or to `UNWRITTEN_LEN_MAX` if unwritten.
    pub len: u32,
    /// First block on the device.
    pub start: Block,
    /// True if the extent is allocated but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Returns the end in the file, exclusive; 2^32 if the extent includes the last possible block.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.block.0) + u64::from(self.len)
    }

    /// Returns the 12 bytes on disk.
    pub fn encode(&self) -> [u8; ENTRY_SIZE] {
        let len = if self.unwritten { self.len + WRITTEN_LEN_MAX } else { self.len };
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..4].copy_from_slice(&self.block.0.to_le_bytes());
        bytes[4..6].copy_from_slice(&(len as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&((self.start.0 >> 32) as u16).to_le_bytes());
        bytes[8..].copy_from_slice(&(self.start.0 as u32).to_le_bytes());
        bytes
    }
}

/// An entry of a node above the leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// First file block of the child.
    pub block: FileBlock,
    /// Block of the child.
    pub leaf: Block,
}

impl IndexEntry {
    /// Returns the 12 bytes on disk.
    pub fn encode(&self) -> [u8; ENTRY_SIZE] {
        let mut bytes = [0; ENTRY_SIZE];
        bytes[..4].copy_from_slice(&self.block.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.leaf.0 as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&((self.leaf.0 >> 32) as u16).to_le_bytes());
        bytes
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the number of entries that fit into a node of `len` bytes: the root of 60 bytes or a block.
pub const fn capacity(len: usize) -> u16 {
    let tail = if len > super::inode::I_BLOCK_SIZE { TAIL_SIZE } else { 0 };
    ((len - ENTRY_SIZE - tail) / ENTRY_SIZE) as u16
}

/// Writes the header to the twelve bytes `bytes`.
pub fn write_header(bytes: &mut [u8], entries: u16, max: u16, depth: u16) {
    bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[2..4].copy_from_slice(&entries.to_le_bytes());
    bytes[4..6].copy_from_slice(&max.to_le_bytes());
    bytes[6..8].copy_from_slice(&depth.to_le_bytes());
    bytes[8..12].fill(0);
}

/// Returns the byte range of entry `at`.
pub const fn entry_range(at: usize) -> std::ops::Range<usize> {
    (at + 1) * ENTRY_SIZE..(at + 2) * ENTRY_SIZE
}

/// A node that [`ExtentNode::parse`] checked or whose block was verified.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    bytes: &'a [u8],
    entries: u16,
    depth: u16,
}

impl<'a> ExtentNode<'a> {
    /// Checks the header, the order and the lengths of a node in `bytes` (60 bytes or a block). `depth` is the depth
    /// that the parent implies, if there is one.
    pub fn parse(bytes: &'a [u8], depth: Option<u16>) -> Result<Self, Corruption> {
        let node = Self::header(bytes, depth)?;
        let mut end = 0;
        for at in 0..node.len() {
            let (start, next) = if node.depth == 0 {
                let extent = node.extent(at);
                if extent.len == 0 || extent.end() > 1 << 32 {
                    return Err(bad("an extent has an invalid length"));
                }
                (u64::from(extent.block.0), extent.end())
            } else {
                let start = u64::from(node.index(at).block.0);
                (start, start + 1)
            };
            if start < end {
                return Err(bad("its entries overlap or are out of order"));
            }
            end = next;
        }
        Ok(node)
    }

    #[inline]
    fn header(bytes: &'a [u8], depth: Option<u16>) -> Result<Self, Corruption> {
        let magic = u16_at(bytes, 0);
        if magic != MAGIC {
            return Err(bad("wrong magic")
                .mismatch(format_args!("{MAGIC:#06x}"), format_args!("{magic:#06x}")));
        }
        let (entries, max) = (u16_at(bytes, 2), u16_at(bytes, 4));
        if max == 0 || max > capacity(bytes.len()) {
            return Err(bad("wrong maximum number of entries").mismatch(capacity(bytes.len()), max));
        }
        if entries > max {
            return Err(bad("more entries than the maximum").mismatch(max, entries));
        }
        let found = u16_at(bytes, 6);
        if found > DEPTH_MAX || depth.is_some_and(|d| d != found) {
            return Err(bad("wrong depth").mismatch(depth.unwrap_or(DEPTH_MAX), found));
        }
        if entries == 0 && found > 0 {
            return Err(bad("an index node without entries"));
        }
        Ok(Self { bytes, entries, depth: found })
    }

    /// Parses a node in a block that was already verified.
    pub(crate) fn trusted(bytes: &'a [u8], depth: u16) -> Result<Self, Corruption> {
        Self::header(bytes, Some(depth))
    }

    /// Checks that the node maps only blocks in its parent's range, `start..end`.
    pub(crate) fn check_range(&self, start: FileBlock, end: u64) -> Result<(), Corruption> {
        let Some(last) = self.len().checked_sub(1) else { return Ok(()) };
        let first = self.first_block(0).unwrap_or_default();
        let entry_end = if self.depth == 0 {
            self.extent(last).end()
        } else {
            u64::from(self.index(last).block.0) + 1
        };
        if first >= start && entry_end <= end {
            return Ok(());
        }
        Err(bad("it is outside the range of its parent entry").mismatch(
            format_args!("{start} to below {end}"),
            format_args!("{first} to below {entry_end}"),
        ))
    }

    /// Checks that some entries refer to blocks of a file system with `blocks_count` blocks. Entries must pass this, in
    /// addition to [`ExtentNode::parse`], before they are written.
    pub(crate) fn check_places(
        &self,
        entries: std::ops::Range<usize>,
        blocks_count: u64,
    ) -> Result<(), Corruption> {
        for at in entries.start..entries.end.min(self.len()) {
            let (start, len) = if self.depth == 0 {
                let extent = self.extent(at);
                (extent.start, u64::from(extent.len))
            } else {
                (self.index(at).leaf, 1)
            };
            if start.0 == 0 || start.plus(len).0 > blocks_count {
                return Err(bad("blocks outside the file system").mismatch(
                    format_args!("blocks below {blocks_count}"),
                    format_args!("{len} from {start}"),
                ));
            }
        }
        Ok(())
    }

    /// Returns the first file block of entry `at`, if there is such an entry.
    pub(crate) fn first_block(&self, at: usize) -> Option<FileBlock> {
        // Both kinds of entries start with this field.
        (at < self.len()).then(|| FileBlock(u32_at(self.bytes, entry_range(at).start)))
    }

    /// Returns the number of levels below; 0 for a leaf.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.entries)
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the maximum number of entries.
    pub(crate) fn room(&self) -> usize {
        usize::from(u16_at(self.bytes, 4))
    }

    /// Returns whether no further entry fits.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.room()
    }

    /// Returns extent `at` of a leaf.
    pub fn extent(&self, at: usize) -> Extent {
        let bytes = &self.bytes[entry_range(at)];
        let len = u32::from(u16_at(bytes, 4));
        let unwritten = len > WRITTEN_LEN_MAX;
        Extent {
            block: FileBlock(u32_at(bytes, 0)),
            len: if unwritten { len - WRITTEN_LEN_MAX } else { len },
            start: Block(u64::from(u16_at(bytes, 6)) << 32 | u64::from(u32_at(bytes, 8))),
            unwritten,
        }
    }

    /// Returns entry `at` of an index node.
    pub fn index(&self, at: usize) -> IndexEntry {
        let bytes = &self.bytes[entry_range(at)];
        IndexEntry {
            block: FileBlock(u32_at(bytes, 0)),
            leaf: Block(u64::from(u16_at(bytes, 8)) << 32 | u64::from(u32_at(bytes, 4))),
        }
    }

    /// Returns the position of the last entry that starts at or before `block`, if any.
    pub(crate) fn position(&self, block: FileBlock) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if u32_at(self.bytes, entry_range(middle).start) > block.0 {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low.checked_sub(1)
    }
}

fn bad(problem: &'static str) -> Corruption {
    Corruption::new("extent tree node", problem)
}

fn tail_offset(block: &[u8]) -> usize {
    ENTRY_SIZE + usize::from(u16_at(block, 4).min(capacity(block.len()))) * ENTRY_SIZE
}

/// Verifies a node in a block that was read, and its checksum if there is a `seed`. The targets of its entries are
/// checked when they are used.
pub(crate) fn verify(block: &[u8], seed: Option<u32>) -> Result<(), Corruption> {
    ExtentNode::parse(block, None)?;
    if let Some(seed) = seed {
        let (stored, computed) = (u32_at(block, tail_offset(block)), checksum(block, seed));
        if stored != computed {
            return Err(Corruption::checksum("extent tree node", computed, stored));
        }
    }
    Ok(())
}

fn checksum(block: &[u8], seed: u32) -> u32 {
    crc32c(seed, &block[..tail_offset(block)])
}

/// Updates the checksum of a node in a block.
pub fn seal(block: &mut [u8], seed: u32) {
    let (checksum, tail) = (checksum(block, seed), tail_offset(block));
    block[tail..tail + TAIL_SIZE].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn capacities_are_those_of_the_format() {
        assert_eq!(capacity(60), 4);
        assert_eq!(capacity(4096), 340);
        assert_eq!(capacity(1024), 84);
    }

    proptest! {
        #[test]
        fn any_node_is_read_without_harm(mut block in proptest::collection::vec(any::<u8>(), 1024), depth in 0_u16..7) {
            let entries = u16::from(block[20]);
            write_header(&mut block[..12], entries, 84, depth);
            let _ = verify(&block, Some(1));
            if let Ok(node) = ExtentNode::parse(&block, None) {
                let _ = node.position(FileBlock(77));
            }
        }

        #[test]
        fn extents_survive(block: u32, len in 1_u32..=UNWRITTEN_LEN_MAX, start in 0_u64..1 << 48, unwritten: bool) {
            let len = len.min(u32::MAX - block).max(1);
            let extent = Extent { block: FileBlock(block), len, start: Block(start), unwritten };
            let mut root = [0; 60];
            write_header(&mut root[..12], 1, 4, 0);
            root[entry_range(0)].copy_from_slice(&extent.encode());
            let node = ExtentNode::parse(&root, Some(0)).unwrap();
            prop_assert_eq!(node.extent(0), extent);
            prop_assert_eq!(node.position(FileBlock(block)), Some(0));
            prop_assert_eq!(block.checked_sub(1).and_then(|b| node.position(FileBlock(b))), None);
        }
    }

    #[test]
    fn kinds_of_damage_are_distinguished() {
        let mut block = vec![0; 1024];
        write_header(&mut block[..12], 2, 84, 0);
        let one = Extent { block: FileBlock(0), len: 4, start: Block(9), unwritten: false };
        block[entry_range(0)].copy_from_slice(&one.encode());
        block[entry_range(1)].copy_from_slice(&Extent { block: FileBlock(3), ..one }.encode());
        assert!(verify(&block, None).is_err());
        block[entry_range(1)].copy_from_slice(&Extent { block: FileBlock(4), ..one }.encode());
        seal(&mut block, 3);
        assert!(verify(&block, Some(3)).is_ok());
        assert!(verify(&block, Some(4)).is_err());
        assert!(ExtentNode::parse(&block, Some(1)).is_err());
    }
}
