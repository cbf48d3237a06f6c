//! Space estimate of a source in XFS.

use import::{Entry, EntryKind, Xattr};
use xfs::format::features::{Incompat, RoCompat};
use xfs::format::hash::{folded_hash, name_hash};
use xfs::format::superblock::RawSuperblock;

use super::splits::{SplitEntry, Splits};
use super::tree::{TreeEstimate, split};
use super::{Estimate, Needed, blocks_and_ranges, stored_name};

/// Bytes of an inode before its forks.
const CORE_BYTES: usize = 176;
/// Header size of most metadata blocks, version 5.
const HEADER_BYTES: usize = 64;
/// Header size of a short-form directory, and fixed bytes per entry.
const SHORT_HEADER_BYTES: usize = 6;
const SHORT_ENTRY_BYTES: usize = 8;
/// Fixed bytes of an entry in a block, before padding to a multiple of 8.
const ENTRY_BYTES: usize = 12;
/// Size of `.` and `..` in a block.
const DOTS_BYTES: usize = 32;
/// Size of a hash entry. The tail of a single-block directory has the same size.
const HASH_BYTES: usize = 8;
/// Header size of short-form attributes, and fixed bytes per attribute.
const SHORT_XATTR_HEADER_BYTES: usize = 4;
const SHORT_XATTR_BYTES: usize = 3;
/// Size of a parent pointer's value.
const PARENT_BYTES: usize = 12;
/// Minimum size of the data fork if there are attributes (a tree root with three entries).
const DATA_FORK_BYTES_MIN: usize = 56;
/// Size of an extent record in bytes.
const EXTENT_BYTES: usize = 16;
/// Maximum number of blocks of an extent.
const EXTENT_BLOCKS_MAX: u64 = (1 << 21) - 1;
/// Sizes of a reverse map record and of its block header.
const RMAP_BYTES: usize = 24;
const SHORT_TREE_HEADER_BYTES: usize = 56;
/// Inodes per chunk, and size of a chunk record.
const CHUNK_INODES: u64 = 64;
const CHUNK_BYTES: usize = 16;

/// Approximate number of blocks per group that are wasted or in partly used inode chunks.
const GROUP_SPARE_BLOCKS: u64 = 16;

/// Space estimate of a source.
pub(in crate::build) struct XfsEstimate {
    shape: SpaceParameters,
    tree: TreeEstimate<DirectoryContents>,
    /// Blocks of everything except directories and inodes.
    blocks: u64,
    /// File extents, each with a record in the reverse map.
    extents: u64,
    inodes: u64,
}

/// File system properties that determine space requirements.
struct SpaceParameters {
    block_size: usize,
    inode_size: usize,
    dir_block_size: usize,
    groups: u64,
    has_parents: bool,
    has_rmap: bool,
    folds_case: bool,
}

/// Contents of a directory.
struct DirectoryContents {
    /// Size of attributes, parent pointers included.
    xattr_bytes: usize,
    /// Sizes of the entries in short form and in data blocks.
    short_bytes: usize,
    data_bytes: usize,
    items: Vec<SplitEntry>,
    /// Leaves, once the entries exceed one leaf.
    splits: Option<Box<Splits>>,
}

/// Space requirements of a directory.
#[derive(Debug, PartialEq, Eq)]
struct DirectoryBlocks {
    blocks: u64,
    extents: u64,
}

impl DirectoryContents {
    fn new(xattr_bytes: usize) -> Self {
        Self { xattr_bytes, short_bytes: 0, data_bytes: 0, items: Vec::new(), splits: None }
    }

    fn add(&mut self, shape: &SpaceParameters, name: &[u8]) {
        self.short_bytes += SHORT_ENTRY_BYTES + name.len();
        self.data_bytes += (ENTRY_BYTES + name.len()).next_multiple_of(8);
        let hash = if shape.folds_case { folded_hash(name) } else { name_hash(name) };
        let item = SplitEntry { hash, size: HASH_BYTES as u16 };
        match &mut self.splits {
            Some(splits) => splits.add(item),
            None => {
                self.items.push(item);
                let room = shape.dir_block_size - HEADER_BYTES;
                if self.items.len() * HASH_BYTES > room {
                    let splits = Splits::new(u32::try_from(room).unwrap_or(u32::MAX), &self.items);
                    self.splits = Some(Box::new(splits));
                    self.items = Vec::new();
                }
            }
        }
    }

    fn blocks(&self, shape: &SpaceParameters) -> DirectoryBlocks {
        let per_block = (shape.dir_block_size / shape.block_size).max(1) as u64;
        let literal = shape.inode_size - CORE_BYTES;
        let attributes = self.xattr_bytes.min(literal - DATA_FORK_BYTES_MIN).next_multiple_of(8);
        if SHORT_HEADER_BYTES + self.short_bytes + attributes <= literal {
            return DirectoryBlocks { blocks: 0, extents: 0 };
        }
        let room = shape.dir_block_size - HEADER_BYTES;
        let data = DOTS_BYTES + self.data_bytes;
        let hashes = self.items.len() + 2;
        if self.splits.is_none() && data + (hashes + 1) * HASH_BYTES <= room {
            return DirectoryBlocks { blocks: per_block, extents: 1 };
        }
        // The unused end of a block is smaller than an entry.
        let data = data.div_ceil(room - ENTRY_BYTES) as u64;
        let Some(splits) = &self.splits else {
            return DirectoryBlocks { blocks: (data + 1) * per_block, extents: 2 };
        };
        let leaves = splits.leaves();
        let in_node = (room / HASH_BYTES) as u64;
        let (mut below, mut nodes) = (leaves, 0);
        while below > 1 {
            // Nodes are split in half too.
            below = if below <= in_node { 1 } else { (below * 4).div_ceil(in_node * 3) };
            nodes += below;
        }
        let free = data.div_ceil((room / 2) as u64);
        let blocks = (data + leaves + nodes + free) * per_block;
        DirectoryBlocks { blocks: blocks + shape.map_blocks(leaves), extents: leaves.max(4) }
    }
}

impl SpaceParameters {
    /// Returns the number of blocks of a tree that maps this many extents.
    fn map_blocks(&self, extents: u64) -> u64 {
        let inline = ((self.inode_size - CORE_BYTES) / 2 / EXTENT_BYTES) as u64;
        let in_block = ((self.block_size - HEADER_BYTES) / EXTENT_BYTES) as u64;
        if extents <= inline { 0 } else { extents.div_ceil(in_block * 3 / 4) }
    }

    /// Returns the size of attributes in an inode, with the parent pointer.
    fn xattr_bytes(&self, name: &[u8], xattrs: &[Xattr]) -> usize {
        let parent = SHORT_XATTR_BYTES + name.len() + PARENT_BYTES;
        let parent = if self.has_parents && !name.is_empty() { parent } else { 0 };
        let size =
            |xattr: &Xattr| SHORT_XATTR_BYTES + stored_name(&xattr.name).len() + xattr.value.len();
        let all = parent + xattrs.iter().map(size).sum::<usize>();
        if all == 0 { 0 } else { SHORT_XATTR_HEADER_BYTES + all }
    }

    /// Returns the number of attribute blocks if they do not fit into the inode next to `data` bytes.
    fn xattr_blocks(&self, bytes: usize, data: usize, xattrs: &[Xattr]) -> u64 {
        let literal = self.inode_size - CORE_BYTES;
        if bytes + data.max(DATA_FORK_BYTES_MIN).next_multiple_of(8) <= literal {
            return 0;
        }
        let room = self.block_size - HEADER_BYTES - 16;
        let (mut inside, mut outside) = (bytes, 0);
        for xattr in xattrs.iter().filter(|xattr| xattr.value.len() > self.block_size / 4 * 3) {
            inside -= xattr.value.len().min(inside);
            outside += xattr.value.len().div_ceil(self.block_size - HEADER_BYTES) as u64;
        }
        outside + (inside + xattrs.len() * HASH_BYTES).div_ceil(room).max(1) as u64
    }
}

impl XfsEstimate {
    /// Creates an empty estimate.
    pub(in crate::build) fn new(superblock: &RawSuperblock) -> Option<Self> {
        let features = superblock.features();
        let block_size = superblock.blocksize.get() as usize;
        let shape = SpaceParameters {
            block_size,
            inode_size: superblock.inodesize.get().into(),
            dir_block_size: block_size << superblock.dirblklog,
            groups: superblock.agcount.get().into(),
            has_parents: features.incompat(Incompat::PARENT),
            has_rmap: features.ro_compat(RoCompat::RMAPBT),
            folds_case: features.ascii_ci(),
        };
        let tree = TreeEstimate::new(DirectoryContents::new(0));
        Some(Self { shape, tree, blocks: 0, extents: 0, inodes: 0 })
    }

    /// Returns the index of the directory at `path`, which is created with these attributes if missing.
    fn directory(&mut self, path: &[u8], xattrs: &[Xattr]) -> usize {
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
            let name = split(path).1;
            self.tree.get(number).add(&self.shape, name);
            number = self.tree.directories().len();
            let bytes = self.shape.xattr_bytes(name, xattrs);
            self.blocks += self.shape.xattr_blocks(bytes, 0, xattrs);
            self.tree.insert(path, DirectoryContents::new(bytes));
            self.inodes += 1;
        }
        number
    }

    /// Adds the extents of a file or link.
    fn add_data(&mut self, data: u64, ranges: u64) {
        let extents = ranges.max(data.div_ceil(EXTENT_BLOCKS_MAX));
        let mapped = data.saturating_add(self.shape.map_blocks(extents));
        self.blocks = self.blocks.saturating_add(mapped);
        self.extents = self.extents.saturating_add(extents);
    }
}

impl Estimate for XfsEstimate {
    fn add(&mut self, entry: &Entry) {
        if matches!(entry.kind, EntryKind::Directory) {
            self.directory(&entry.path, &entry.xattrs);
            return;
        }
        let (parent, name) = self.tree.parent_of(&entry.path);
        let parent = match parent {
            Some(parent) => parent,
            None => self.directory(split(&entry.path).0, &[]),
        };
        self.tree.get(parent).add(&self.shape, name);
        if matches!(entry.kind, EntryKind::Hardlink(_)) {
            return;
        }
        self.inodes += 1;
        let bytes = self.shape.xattr_bytes(name, &entry.xattrs);
        let mut beside = 0;
        match &entry.kind {
            EntryKind::File(content) => {
                let (data, ranges) =
                    blocks_and_ranges(content.runs(), self.shape.block_size as u64);
                self.add_data(data, ranges);
                beside = usize::try_from(ranges).unwrap_or(usize::MAX).min(4) * EXTENT_BYTES;
            }
            EntryKind::Symlink(target) => {
                let literal = self.shape.inode_size - CORE_BYTES;
                if target.len() + bytes > literal {
                    self.add_data(
                        target.len().div_ceil(self.shape.block_size - HEADER_BYTES) as u64,
                        1,
                    );
                } else {
                    beside = target.len();
                }
            }
            _ => {}
        }
        let blocks = self.shape.xattr_blocks(bytes, beside, &entry.xattrs);
        self.blocks = self.blocks.saturating_add(blocks);
    }

    fn needed(&self) -> Needed {
        let shape = &self.shape;
        let (mut blocks, mut extents) = (self.blocks, self.extents);
        for directory in self.tree.directories() {
            let takes = directory.blocks(shape);
            blocks = blocks.saturating_add(takes.blocks);
            extents = extents.saturating_add(takes.extents);
        }
        let per_block = (shape.block_size / shape.inode_size).max(1) as u64;
        let chunks = self.inodes.div_ceil(CHUNK_INODES);
        let in_tree = |bytes: usize| ((shape.block_size - SHORT_TREE_HEADER_BYTES) / bytes) as u64;
        blocks = blocks.saturating_add(chunks * CHUNK_INODES.max(per_block) / per_block);
        blocks = blocks.saturating_add(chunks / in_tree(CHUNK_BYTES));
        if shape.has_rmap {
            // Leaves are slightly more than half full.
            blocks = blocks.saturating_add(extents.saturating_mul(8) / 5 / in_tree(RMAP_BYTES));
        }
        blocks = blocks.saturating_add(shape.groups * GROUP_SPARE_BLOCKS);
        Needed { blocks, inodes: self.inodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SpaceParameters = SpaceParameters {
        block_size: 4096,
        inode_size: 512,
        dir_block_size: 4096,
        groups: 4,
        has_parents: true,
        has_rmap: true,
        folds_case: false,
    };

    #[test]
    fn a_directory_takes_the_smallest_form_that_fits() {
        let mut directory = DirectoryContents::new(30);
        let names = |from: u32, to: u32| (from..to).map(|n| format!("file-{n:07}").into_bytes());
        names(0, 10).for_each(|name| directory.add(&SHAPE, &name));
        assert_eq!(directory.blocks(&SHAPE).blocks, 0);
        names(10, 30).for_each(|name| directory.add(&SHAPE, &name));
        assert_eq!(directory.blocks(&SHAPE), DirectoryBlocks { blocks: 1, extents: 1 });
        names(30, 200).for_each(|name| directory.add(&SHAPE, &name));
        assert_eq!(directory.blocks(&SHAPE), DirectoryBlocks { blocks: 2 + 1, extents: 2 });
        names(200, 1000).for_each(|name| directory.add(&SHAPE, &name));
        let blocks = directory.blocks(&SHAPE).blocks;
        assert!((6 + 2 + 2..6 + 4 + 2 + 2).contains(&blocks), "{blocks}");
    }

    #[test]
    fn attributes_take_blocks_when_the_inode_is_full() {
        let xattr = |len| Xattr { name: b"user.a".to_vec(), value: vec![1; len] };
        let blocks =
            |xattrs: &[Xattr]| SHAPE.xattr_blocks(SHAPE.xattr_bytes(b"name", xattrs), 0, xattrs);
        assert_eq!([0, 100, 300, 4000].map(|len| blocks(&[xattr(len)])), [0, 0, 1, 2]);
        assert_eq!(blocks(&[]), 0);
    }
}
