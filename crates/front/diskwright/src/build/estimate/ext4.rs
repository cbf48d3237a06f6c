//! Space estimate of a source in ext2, ext3 and ext4.

use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::superblock::Superblock;
use import::{Entry, EntryKind, Xattr};

use super::splits::{SplitEntry, Splits};
use super::tree::{TreeEstimate, split};
use super::{Estimate, Needed, blocks_and_ranges, stored_name};

/// Fixed bytes of a directory entry. The name is padded to a multiple of 4.
const RECORD_BYTES: usize = 8;
/// Size of `.` and `..` in bytes.
const DOTS_BYTES: usize = 24;
/// Minimum size of an index block's header; the root's is larger.
const INDEX_HEADER_BYTES: u64 = 16;
const INDEX_ROOT_HEADER_BYTES: u64 = 40;
/// Size of an index entry in bytes.
const INDEX_ENTRY_BYTES: u64 = 8;
/// Size of the checksum at the end of a directory block, in bytes.
const TAIL_BYTES: usize = 12;
/// Maximum number of blocks of an extent.
const EXTENT_BLOCKS_MAX: u64 = 32_768;
/// Number of extents in the inode, and bytes per extent in an extent block.
const EXTENTS_INLINE: u64 = 4;
const EXTENT_BYTES: u64 = 12;
/// Number of blocks mapped directly by the inode.
const DIRECT_BLOCKS: u64 = 12;
/// Shorter symbolic link targets are stored in the inode.
const LINK_INLINE_BYTES: usize = 60;
/// Bytes of an inode that are not available for attributes: fixed fields, attribute magic number and terminator.
const INODE_FIXED_BYTES: usize = 160 + 8;
/// Bytes of an attribute block that are not available for attributes.
const XATTR_BLOCK_FIXED_BYTES: usize = 36;
/// Fixed bytes of an attribute.
const XATTR_ENTRY_BYTES: usize = 16;

/// Space estimate of a source.
pub(in crate::build) struct Ext4Estimate {
    shape: SpaceParameters,
    tree: TreeEstimate<DirectoryContents>,
    /// Blocks of everything except directories.
    blocks: u64,
    inodes: u64,
}

/// File system properties that determine space requirements.
struct SpaceParameters {
    block_size: usize,
    inode_size: usize,
    /// Bytes available for entries in a directory block.
    leaf_room: usize,
    has_index: bool,
    has_extents: bool,
}

/// Contents of a directory.
enum DirectoryContents {
    /// One block.
    Block { used: usize, items: Vec<SplitEntry> },
    /// Several blocks without an index: their number and the bytes used in the last one.
    Linear { blocks: u64, used: usize },
    /// Hashed index.
    Indexed(Box<Splits>),
}

impl DirectoryContents {
    fn new() -> Self {
        Self::Block { used: DOTS_BYTES, items: Vec::new() }
    }

    fn add(&mut self, shape: &SpaceParameters, name: &[u8]) {
        let size = (RECORD_BYTES + name.len()).next_multiple_of(4);
        // Any evenly distributed hash gives the same estimate.
        let hash = xxhash_rust::xxh3::xxh3_64(name) as u32;
        let item = SplitEntry { hash, size: u16::try_from(size).unwrap_or(u16::MAX) };
        match self {
            Self::Block { used, items } if *used + size <= shape.leaf_room => {
                *used += size;
                items.push(item);
            }
            Self::Block { items, .. } if shape.has_index => {
                let room = u32::try_from(shape.leaf_room).unwrap_or(u32::MAX);
                let mut splits = Splits::new(room, items);
                splits.add(item);
                *self = Self::Indexed(Box::new(splits));
            }
            Self::Block { .. } => *self = Self::Linear { blocks: 2, used: size },
            Self::Linear { blocks, used } if *used + size > shape.leaf_room => {
                *blocks += 1;
                *used = size;
            }
            Self::Linear { used, .. } => *used += size,
            Self::Indexed(splits) => splits.add(item),
        }
    }

    /// Returns the number of blocks, including index and map.
    fn blocks(&self, shape: &SpaceParameters) -> u64 {
        let blocks = match self {
            Self::Block { .. } => return 1,
            Self::Linear { blocks, .. } => *blocks,
            Self::Indexed(splits) => {
                let leaves = splits.leaves();
                leaves + 1 + shape.index_nodes(leaves)
            }
        };
        blocks + shape.map_blocks(blocks, 1)
    }
}

impl SpaceParameters {
    /// Returns the number of index blocks between root and leaves. They are split in half too.
    fn index_nodes(&self, leaves: u64) -> u64 {
        let block = self.block_size as u64;
        let in_root = (block - INDEX_ROOT_HEADER_BYTES) / INDEX_ENTRY_BYTES;
        let in_node = (block - INDEX_HEADER_BYTES) / INDEX_ENTRY_BYTES;
        let (mut below, mut nodes) = (leaves, 0);
        while below > in_root {
            below = (below * 4).div_ceil(in_node * 3);
            nodes += below;
        }
        nodes
    }

    /// Returns the number of blocks that map `blocks` file blocks in `ranges` ranges.
    fn map_blocks(&self, blocks: u64, ranges: u64) -> u64 {
        let block = self.block_size as u64;
        if self.has_extents {
            let extents = ranges.max(blocks / EXTENT_BLOCKS_MAX + u64::from(blocks > 0));
            let in_block = (block - EXTENT_BYTES - 4) / EXTENT_BYTES;
            return if extents <= EXTENTS_INLINE { 0 } else { extents.div_ceil(in_block) };
        }
        let pointers = block / 4;
        let singles = blocks.saturating_sub(DIRECT_BLOCKS).div_ceil(pointers);
        let doubles = singles.saturating_sub(1).div_ceil(pointers);
        // With holes, each range may start in an indirect block of its own.
        singles + doubles + doubles.saturating_sub(1).div_ceil(pointers) + ranges.saturating_sub(1)
    }

    /// Returns the numbers of blocks and inodes used by attributes.
    fn attributes(&self, xattrs: &[Xattr]) -> (u64, u64) {
        let mut inline = self.inode_size.saturating_sub(INODE_FIXED_BYTES);
        let mut block = self.block_size - XATTR_BLOCK_FIXED_BYTES;
        let (mut blocks, mut inodes, mut has_block) = (0, 0, false);
        for xattr in xattrs {
            let name = stored_name(&xattr.name).len().next_multiple_of(4);
            let size = XATTR_ENTRY_BYTES + name + xattr.value.len().next_multiple_of(4);
            if size <= inline {
                inline -= size;
            } else if size <= block {
                block -= size;
                has_block = true;
            } else {
                // The value is stored in a separate inode.
                blocks += xattr.value.len().div_ceil(self.block_size) as u64;
                inodes += 1;
            }
        }
        (blocks + u64::from(has_block), inodes)
    }
}

impl Ext4Estimate {
    /// Creates an empty estimate. Returns `None` if the file system uses storage features that cannot be estimated.
    pub(in crate::build) fn new(superblock: &Superblock) -> Option<Self> {
        let features = &superblock.features;
        if features.incompat(Incompat::INLINE_DATA) || features.ro_compat(RoCompat::BIGALLOC) {
            return None;
        }
        let block_size = superblock.block_size() as usize;
        let tail = if features.metadata_csum() { TAIL_BYTES } else { 0 };
        let shape = SpaceParameters {
            block_size,
            inode_size: superblock.inode_size.into(),
            leaf_room: block_size - tail,
            has_index: features.compat(Compat::DIR_INDEX),
            has_extents: features.incompat(Incompat::EXTENTS),
        };
        Some(Self {
            shape,
            tree: TreeEstimate::new(DirectoryContents::new()),
            blocks: 0,
            inodes: 0,
        })
    }

    /// Returns the index of the directory at `path`, which is created if missing.
    fn directory(&mut self, path: &[u8]) -> usize {
        let mut missing = Vec::new();
        let mut at = path;
        let mut number = loop {
            match self.tree.find(at) {
                Some(number) => break number,
                None => missing.push(at),
            }
            at = split(at).0;
        };
        for path in missing.into_iter().rev() {
            self.tree.get(number).add(&self.shape, split(path).1);
            number = self.tree.directories().len();
            self.tree.insert(path, DirectoryContents::new());
            self.inodes += 1;
        }
        number
    }
}

impl Estimate for Ext4Estimate {
    fn add(&mut self, entry: &Entry) {
        let (blocks, inodes) = self.shape.attributes(&entry.xattrs);
        self.blocks = self.blocks.saturating_add(blocks);
        self.inodes += inodes;
        if matches!(entry.kind, EntryKind::Directory) {
            self.directory(&entry.path);
            return;
        }
        let (parent, name) = self.tree.parent_of(&entry.path);
        let parent = match parent {
            Some(parent) => parent,
            None => self.directory(split(&entry.path).0),
        };
        self.tree.get(parent).add(&self.shape, name);
        self.inodes += u64::from(!matches!(entry.kind, EntryKind::Hardlink(_)));
        let blocks = match &entry.kind {
            EntryKind::File(content) => {
                let (data, ranges) =
                    blocks_and_ranges(content.runs(), self.shape.block_size as u64);
                data.saturating_add(self.shape.map_blocks(data, ranges))
            }
            EntryKind::Symlink(target) => u64::from(target.len() >= LINK_INLINE_BYTES),
            _ => 0,
        };
        self.blocks = self.blocks.saturating_add(blocks);
    }

    fn needed(&self) -> Needed {
        let directories = self.tree.directories().iter().enumerate();
        let all: u64 = directories
            .map(|(number, directory)| {
                // The root's first block is part of the empty file system.
                directory.blocks(&self.shape) - u64::from(number == 0)
            })
            .sum();
        Needed { blocks: self.blocks.saturating_add(all), inodes: self.inodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SpaceParameters = SpaceParameters {
        block_size: 4096,
        inode_size: 256,
        leaf_room: 4084,
        has_index: true,
        has_extents: true,
    };

    #[test]
    fn maps_take_blocks_when_the_inode_is_full() {
        assert_eq!(SHAPE.map_blocks(0, 0), 0);
        assert_eq!(SHAPE.map_blocks(100_000, 1), 0);
        assert_eq!(SHAPE.map_blocks(200_000, 1), 1);
        assert_eq!(SHAPE.map_blocks(5, 5), 1);
        let old = SpaceParameters { has_extents: false, ..SHAPE };
        assert_eq!([12, 13, 12 + 1024, 13 + 1024].map(|n| old.map_blocks(n, 1)), [0, 1, 1, 3]);
    }

    #[test]
    fn attributes_go_where_there_is_room() {
        let xattr = |name: &str, len| Xattr { name: name.into(), value: vec![1; len] };
        assert_eq!(SHAPE.attributes(&[]), (0, 0));
        assert_eq!(SHAPE.attributes(&[xattr("user.a", 64)]), (0, 0));
        assert_eq!(SHAPE.attributes(&[xattr("user.a", 80)]), (1, 0));
        assert_eq!(SHAPE.attributes(&[xattr("user.a", 80), xattr("user.b", 10_000)]), (4, 1));
    }

    #[test]
    fn a_directory_grows_from_a_block_to_an_index() {
        let mut directory = DirectoryContents::new();
        for number in 0..300 {
            directory.add(&SHAPE, format!("file-{number:07}").as_bytes());
        }
        assert_eq!(directory.blocks(&SHAPE), 1 + 2);
        for number in 300..1_000_000 {
            directory.add(&SHAPE, format!("file-{number:07}").as_bytes());
        }
        // 20 bytes each: 4,897 full leaves.
        let blocks = directory.blocks(&SHAPE);
        assert!((4_897 * 5 / 4..4_897 * 2).contains(&blocks), "{blocks}");
    }
}
