//! Checks of the inode with the blocks reserved for growth of the descriptor table.
//!
//! Its double indirect block refers to the reserved blocks in group 0, at the index of each in a whole table. Each of
//! those refers to its counterparts in the groups with backups.

use vfs::check::Finding;

use super::codes::RESIZE_INODE;
use super::contents::Claimed;
use super::context::{Context, InodeUnderCheck};
use crate::format::address::{Block, Group};
use crate::format::indirect::{self, DIRECT_COUNT};
use crate::format::inode::flags;

impl Context<'_> {
    /// Checks the resize inode. Except for one, all its blocks are the file system's own.
    pub(super) fn check_resize_inode(&self, subject: &InodeUnderCheck) -> Claimed {
        let geometry = self.geometry();
        let unknown = Claimed { is_cut: true, ..Claimed::default() };
        let tell = |detail: &str| {
            self.tell(Finding::new(RESIZE_INODE).of_inode(subject.ino.into()).detail(detail));
        };
        let double_at = DIRECT_COUNT as u16 + 1;
        let root = subject.inode.i_block();
        let others = (0..DIRECT_COUNT as u16 + 3).filter(|at| *at != double_at);
        if subject.has(flags::EXTENTS)
            || others.into_iter().any(|at| indirect::pointer(root, at).is_some())
        {
            tell("its block map is invalid");
            return unknown;
        }
        let Some(double) = indirect::pointer(root, double_at) else {
            if geometry.reserved_gdt_blocks > 0 {
                tell("it has no double indirect block");
            }
            return unknown;
        };
        if !geometry.contains(double, 1) || self.system.overlaps(double, 1) {
            tell("its double indirect block is not a data block");
            return unknown;
        }
        self.claim(subject.ino, self.claims.clusters(double, 1));
        let Some(bytes) = self.block(double) else { return unknown };
        let backups: Vec<Group> =
            geometry.groups().skip(1).filter(|group| geometry.has_superblock(*group)).collect();
        let is_right = self.check_kept_blocks(&bytes, &backups);
        if !is_right {
            tell("it does not map the reserved blocks");
        }
        let clusters = 1 + u64::from(geometry.reserved_gdt_blocks) * (1 + backups.len() as u64);
        Claimed {
            clusters,
            is_cut: geometry.cluster_blocks() > 1 || !is_right,
            ..Claimed::default()
        }
    }

    fn check_kept_blocks(&self, double: &[u8], backups: &[Group]) -> bool {
        let geometry = self.geometry();
        let per_block = self.block_size() as u64 / 4;
        let kept = u64::from(geometry.reserved_gdt_blocks);
        let first = u64::from(geometry.gdt_blocks());
        let named =
            (0..per_block).filter(|at| indirect::pointer(double, *at as u16).is_some()).count();
        named as u64 == kept
            && (first..first + kept).all(|number| {
                let block = geometry.gdt_block(0).plus(number);
                indirect::pointer(double, (number % per_block) as u16) == Some(block)
                    && self.check_counterparts(block, backups)
            })
    }

    fn check_counterparts(&self, block: Block, backups: &[Group]) -> bool {
        let Some(bytes) = self.block(block) else { return true };
        // As in mke2fs: if group 0 starts with an empty block and the others do not (bigalloc with small blocks), this
        // is the block after it.
        let group_blocks = u64::from(self.geometry().blocks_per_group);
        let expected =
            backups.iter().map(|group| Some(block.plus(u64::from(group.0) * group_blocks)));
        let per_block = self.block_size() / 4;
        expected
            .chain(std::iter::repeat(None))
            .take(per_block)
            .enumerate()
            .all(|(at, expected)| indirect::pointer(&bytes, at as u16) == expected)
    }
}
