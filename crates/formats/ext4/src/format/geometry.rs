//! Layout arithmetic: blocks, groups, inodes, superblock backups and the descriptor table. All of it follows from a
//! validated superblock and cannot fail for numbers in range.

use std::ops::Range;

use vfs::Ino;

use super::address::{Block, Group};
use super::features::{Compat, Incompat, RoCompat};
use super::superblock::{SUPERBLOCK_OFFSET, Superblock};

/// Groups with a copy of the superblock (and, without `meta_bg`, of the descriptors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    /// Every group.
    All,
    /// Groups 0, 1 and the powers of 3, 5 and 7 (`sparse_super`).
    Sparse,
    /// Group 0 and these two; 0 means none (`sparse_super2`).
    Two([u32; 2]),
}

/// The geometry of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Base-2 logarithm of the block size in bytes.
    pub block_size_log: u32,
    /// Base-2 logarithm of the blocks in a cluster.
    pub cluster_blocks_log: u32,
    /// Number of blocks of the file system, including those before the first data block.
    pub blocks_count: u64,
    /// Number of inodes of the file system.
    pub inodes_count: u32,
    /// First block of group 0.
    pub first_data_block: u32,
    /// Number of blocks of every group but the last.
    pub blocks_per_group: u32,
    /// Number of inodes of every group.
    pub inodes_per_group: u32,
    /// Number of block groups.
    pub groups_count: u32,
    /// Size of an inode in bytes.
    pub inode_size: u16,
    /// Size of a group descriptor in bytes.
    pub desc_size: u16,
    /// Number of groups whose bitmaps and inode tables may be stored together; 1 without `flex_bg`.
    pub flex_groups: u32,
    /// Number of blocks reserved after the descriptor table in each group that has a copy of it.
    pub reserved_gdt_blocks: u32,
    /// Number of descriptor table blocks after the superblock. With `meta_bg`, the others are in the groups that they
    /// describe.
    classic_gdt_blocks: u32,
    backups: Backups,
}

impl Geometry {
    /// Returns the geometry that a superblock describes.
    #[must_use]
    pub fn new(sb: &Superblock) -> Self {
        let features = &sb.features;
        let desc_per_block = sb.block_size() / u32::from(sb.desc_size);
        let gdt_blocks = sb.groups_count.div_ceil(desc_per_block);
        let log_flex = u32::from(sb.raw.log_groups_per_flex);
        Self {
            block_size_log: sb.block_size_log,
            cluster_blocks_log: sb.cluster_blocks_log,
            blocks_count: sb.blocks_count,
            inodes_count: sb.inodes_count,
            first_data_block: sb.first_data_block,
            blocks_per_group: sb.blocks_per_group,
            inodes_per_group: sb.inodes_per_group,
            groups_count: sb.groups_count,
            inode_size: sb.inode_size,
            desc_size: sb.desc_size,
            flex_groups: if features.incompat(Incompat::FLEX_BG) && log_flex < 32 {
                1 << log_flex
            } else {
                1
            },
            // The field is valid only if there is an inode that owns these blocks.
            reserved_gdt_blocks: if features.compat(Compat::RESIZE_INODE) {
                u32::from(sb.raw.reserved_gdt_blocks.get())
            } else {
                0
            },
            classic_gdt_blocks: if features.incompat(Incompat::META_BG) {
                sb.raw.first_meta_bg.get().min(gdt_blocks)
            } else {
                gdt_blocks
            },
            backups: if features.compat(Compat::SPARSE_SUPER2) {
                Backups::Two(sb.raw.backup_bgs.map(|g| g.get()))
            } else if features.ro_compat(RoCompat::SPARSE_SUPER) {
                Backups::Sparse
            } else {
                Backups::All
            },
        }
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        1 << self.block_size_log
    }

    /// Returns the number of blocks of a cluster: 1 without `bigalloc`.
    #[must_use]
    pub const fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_blocks_log
    }

    /// Returns the first block of the cluster that contains `block`.
    #[must_use]
    pub(crate) const fn cluster_start(&self, block: Block) -> Block {
        // Clusters start at block 0; with `bigalloc`, so does the first group.
        Block(block.0 & !(self.cluster_blocks() as u64 - 1))
    }

    /// Returns the byte offset of a block on the device.
    #[must_use]
    pub const fn byte_of(&self, block: Block) -> u64 {
        block.0 << self.block_size_log
    }

    /// Returns whether `len` blocks from `start` on are inside the file system and after its first block.
    #[must_use]
    pub const fn contains(&self, start: Block, len: u64) -> bool {
        start.0 > self.first_data_block as u64 && start.plus(len).0 <= self.blocks_count
    }

    /// Iterates over all groups.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = Group> + use<> {
        (0..self.groups_count).map(Group)
    }

    /// Returns the group of a block.
    #[must_use]
    pub const fn group_of(&self, block: Block) -> Group {
        let from_first = block.0.saturating_sub(self.first_data_block as u64);
        Group((from_first / self.blocks_per_group as u64) as u32)
    }

    /// Returns a block's bit in its group's block bitmap. A bit represents a cluster.
    #[must_use]
    pub const fn bit_of(&self, block: Block) -> u32 {
        let from_first = block.0.saturating_sub(self.first_data_block as u64);
        (from_first % self.blocks_per_group as u64) as u32 >> self.cluster_blocks_log
    }

    /// Returns the first block of a group.
    #[must_use]
    pub const fn first_block(&self, group: Group) -> Block {
        Block(self.first_data_block as u64 + group.0 as u64 * self.blocks_per_group as u64)
    }

    /// Returns the number of blocks of a group. The last group may be shorter than the others.
    #[must_use]
    pub fn blocks_in(&self, group: Group) -> u32 {
        let left = self.blocks_count.saturating_sub(self.first_block(group).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Returns the number of clusters of a group.
    #[must_use]
    pub fn clusters_in(&self, group: Group) -> u32 {
        self.blocks_in(group).div_ceil(1 << self.cluster_blocks_log)
    }

    /// Returns the number of clusters of every group but the last.
    #[must_use]
    pub const fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_blocks_log
    }

    /// Returns the number of inodes in a block of an inode table.
    #[must_use]
    pub(crate) const fn inodes_per_block(&self) -> u32 {
        self.block_size() / self.inode_size as u32
    }

    /// Returns the number of blocks of each group's inode table.
    #[must_use]
    pub const fn itable_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Returns the group of an inode and its index in the group, or `None` if there is no such inode.
    #[must_use]
    pub const fn place_of(&self, ino: Ino) -> Option<(Group, u32)> {
        if ino.0 == 0 || ino.0 > self.inodes_count as u64 {
            return None;
        }
        let from_first = ino.0 as u32 - 1;
        Some((Group(from_first / self.inodes_per_group), from_first % self.inodes_per_group))
    }

    /// Returns the inode at an index of a group.
    #[must_use]
    pub const fn ino_of(&self, group: Group, index: u32) -> Ino {
        Ino(group.0 as u64 * self.inodes_per_group as u64 + index as u64 + 1)
    }

    /// Returns the inode table block that contains the inode at `index`, and the byte offset in that block.
    #[must_use]
    pub const fn inode_position(&self, inode_table: Block, index: u32) -> (Block, usize) {
        let per_block = self.inodes_per_block();
        let block = inode_table.plus((index / per_block) as u64);
        (block, (index % per_block) as usize * self.inode_size as usize)
    }

    /// Returns whether a group has a copy of the superblock.
    #[must_use]
    pub fn has_superblock(&self, group: Group) -> bool {
        match self.backups {
            Backups::All => true,
            Backups::Sparse => is_sparse_backup(group.0),
            Backups::Two(groups) => group.0 == 0 || groups.contains(&group.0),
        }
    }

    /// Returns the block with a group's copy of the superblock, if there is one. In group 0, with blocks larger than 1
    /// KiB, the superblock is in the middle of that block.
    #[must_use]
    pub fn superblock_of(&self, group: Group) -> Option<Block> {
        if group.0 == 0 {
            return Some(Block(SUPERBLOCK_OFFSET >> self.block_size_log));
        }
        self.has_superblock(group).then(|| self.first_block(group))
    }

    /// Returns the number of group descriptors per block.
    #[must_use]
    pub const fn desc_per_block(&self) -> u32 {
        self.block_size() / self.desc_size as u32
    }

    /// Returns the number of blocks of the whole descriptor table.
    #[must_use]
    pub(crate) const fn gdt_blocks(&self) -> u32 {
        self.groups_count.div_ceil(self.desc_per_block())
    }

    /// Returns the primary descriptor table block that contains a group's descriptor, and the byte offset in that
    /// block.
    #[must_use]
    pub fn descriptor_position(&self, group: Group) -> (Block, usize) {
        let per_block = self.desc_per_block();
        let offset = (group.0 % per_block) as usize * usize::from(self.desc_size);
        (self.gdt_block(group.0 / per_block), offset)
    }

    /// Returns block number `index` of the primary descriptor table.
    #[must_use]
    pub fn gdt_block(&self, index: u32) -> Block {
        if index < self.classic_gdt_blocks {
            return Block(SUPERBLOCK_OFFSET >> self.block_size_log).plus(1 + u64::from(index));
        }
        self.meta_gdt_block(Group(index.saturating_mul(self.desc_per_block())))
    }

    /// Returns the index of `block` in the primary descriptor table, if it belongs to it.
    #[must_use]
    pub fn gdt_index(&self, block: Block) -> Option<u32> {
        let first = (SUPERBLOCK_OFFSET >> self.block_size_log) + 1;
        let classic = block.0.checked_sub(first).and_then(|index| u32::try_from(index).ok());
        let meta = self.group_of(block).0 / self.desc_per_block();
        let is_it = |index: &u32| *index < self.gdt_blocks() && self.gdt_block(*index) == block;
        classic.filter(is_it).or(Some(meta).filter(is_it))
    }

    /// Returns the part of the descriptor table, primary or backup, that a group contains: a range of table blocks, and
    /// the position of the first.
    #[must_use]
    pub fn gdt_copy_in(&self, group: Group) -> (Range<u32>, Block) {
        let per_block = self.desc_per_block();
        let index = group.0 / per_block;
        if index < self.classic_gdt_blocks {
            let Some(superblock) = self.superblock_of(group) else { return (0..0, Block(0)) };
            return (0..self.classic_gdt_blocks, superblock.plus(1));
        }
        // A meta group's descriptor block is in its first, second and last group. Superblock backups past the classic
        // part have no copy of that part.
        let within = group.0 % per_block;
        if within == 0 || within == 1 || within == per_block - 1 {
            return (index..index + 1, self.meta_gdt_block(group));
        }
        (0..0, Block(0))
    }

    /// Returns the fixed metadata at the start of a group: superblock, descriptors and the blocks reserved for more
    /// descriptors. Empty if the group has none.
    #[must_use]
    pub fn base_metadata(&self, group: Group) -> Range<Block> {
        let start = self.first_block(group);
        let superblock_end = self.superblock_of(group).map(|block| block.plus(1));
        let (table, table_start) = self.gdt_copy_in(group);
        let mut end = superblock_end.unwrap_or(start);
        if !table.is_empty() {
            end = table_start.plus(u64::from(table.end - table.start));
            if group.0 / self.desc_per_block() < self.classic_gdt_blocks {
                end = end.plus(u64::from(self.reserved_gdt_blocks));
            }
        }
        let group_end = start.plus(u64::from(self.blocks_in(group)));
        start..end.min(group_end)
    }

    /// Returns a descriptor table block inside the meta group that it describes.
    fn meta_gdt_block(&self, group: Group) -> Block {
        match self.superblock_of(group) {
            Some(superblock) => superblock.plus(1),
            None => self.first_block(group),
        }
    }
}

/// Returns whether a group has a copy of the superblock with `sparse_super`.
pub(crate) fn is_sparse_backup(group: u32) -> bool {
    group <= 1 || [3, 5, 7].iter().any(|&base| is_power_of(group, base))
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            block_size_log: 10,
            cluster_blocks_log: 0,
            blocks_count: 1_000_000,
            inodes_count: 123 * 2048,
            first_data_block: 1,
            blocks_per_group: 8192,
            inodes_per_group: 2048,
            groups_count: 123,
            inode_size: 256,
            desc_size: 64,
            flex_groups: 16,
            reserved_gdt_blocks: 4,
            classic_gdt_blocks: 8,
            backups: Backups::Sparse,
        }
    }

    #[test]
    fn backups_are_in_powers_of_3_5_and_7() {
        let g = geometry();
        let with: Vec<_> = g.groups().filter(|g_| g.has_superblock(*g_)).map(|g| g.0).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
        let two = Geometry { backups: Backups::Two([1, 122]), ..g };
        let with: Vec<_> = g.groups().filter(|g| two.has_superblock(*g)).map(|g| g.0).collect();
        assert_eq!(with, [0, 1, 122]);
    }

    #[test]
    fn blocks_and_groups_agree() {
        let g = geometry();
        assert_eq!(g.group_of(Block(8192)), Group(0));
        assert_eq!(g.group_of(Block(8193)), Group(1));
        assert_eq!(g.bit_of(Block(8193)), 0);
        let total: u64 = g.groups().map(|group| u64::from(g.blocks_in(group))).sum();
        assert_eq!(total, 999_999);
        assert_eq!(g.base_metadata(Group(0)), Block(1)..Block(14));
        assert_eq!(g.base_metadata(Group(2)), Block(16385)..Block(16385));
    }

    #[test]
    fn inodes_have_a_place() {
        let g = geometry();
        assert_eq!(g.place_of(Ino(0)), None);
        assert_eq!(g.place_of(Ino(2049)), Some((Group(1), 0)));
        assert_eq!(g.ino_of(Group(1), 0), Ino(2049));
        assert_eq!(g.place_of(Ino(123 * 2048 + 1)), None);
        assert_eq!(g.inode_position(Block(100), 5), (Block(101), 256));
    }

    #[test]
    fn meta_groups_hold_their_own_descriptors() {
        let g = Geometry { classic_gdt_blocks: 0, reserved_gdt_blocks: 0, ..geometry() };
        assert_eq!(g.gdt_block(0), Block(2));
        assert_eq!(g.gdt_block(2), g.first_block(Group(32)));
        for g in [g, geometry()] {
            for index in 0..g.gdt_blocks() {
                assert_eq!(g.gdt_index(g.gdt_block(index)), Some(index));
            }
            assert_eq!(g.gdt_index(g.gdt_block(0).plus(9)), None);
        }
        assert_eq!(g.gdt_copy_in(Group(33)), (2..3, g.first_block(Group(33))));
        assert_eq!(g.gdt_copy_in(Group(34)).0, 0..0);
        assert_eq!(g.gdt_copy_in(Group(25)).0, 0..0);
        assert_eq!(
            g.base_metadata(Group(47)),
            g.first_block(Group(47))..g.first_block(Group(47)).plus(1)
        );
        assert_eq!(g.base_metadata(Group(25)).end, g.first_block(Group(25)).plus(1));
        assert_eq!(g.base_metadata(Group(49)).end, g.first_block(Group(49)).plus(2));
    }
}
