//! Operations on a block group whose lock is held.

use std::ops::Range;

use engine::{BufferId, Corruption, Txn};
use operations::groups;
use operations::reserve::Claim;

use super::bitmap;
use super::groups::BlockGroup;
use crate::format::address::{Block, Group};
use crate::format::group::{GroupDescriptor, GroupFlags};
use crate::kind::BlockKind;
use crate::params::Params;

/// A block group that an operation holds.
pub(crate) type GroupGuard<'a> = groups::GroupGuard<'a, BlockGroup>;

/// The block groups that an operation holds.
pub(crate) type HeldGroups<'a> = groups::HeldGroups<'a, BlockGroup>;

/// Methods of a held block group.
pub(crate) trait Bitmaps {
    /// Returns the number of clusters that a claim may take now.
    fn usable_blocks(&self, claim: Claim) -> u32;

    /// Returns bitmaps of the blocks that must not be allocated even if the block bitmap has them as free.
    fn busy(&self) -> [Option<&[u8]>; 2];

    /// Returns the group's block bitmap. Creates it first if the group is not initialised.
    fn block_bitmap(&mut self, params: &Params, txn: &mut Txn<'_>) -> engine::Result<BufferId>;

    /// Returns a copy of the group's block bitmap, or the bitmap that an uninitialised group would get.
    fn copy_block_bitmap(&self, params: &Params, txn: &mut Txn<'_>) -> engine::Result<Box<[u8]>>;

    /// Returns the group's inode bitmap. Creates it first if the group is not initialised.
    fn inode_bitmap(&mut self, params: &Params, txn: &mut Txn<'_>) -> engine::Result<BufferId>;

    /// Returns damage found in this group.
    fn corrupt(&self, structure: &'static str, problem: &str) -> Corruption;
}

impl Bitmaps for GroupGuard<'_> {
    fn usable_blocks(&self, claim: Claim) -> u32 {
        let withheld = self.busy_set().count() + self.group().withheld(claim);
        self.desc.free_blocks.saturating_sub(withheld)
    }

    fn busy(&self) -> [Option<&[u8]>; 2] {
        self.busy_set().bitmaps()
    }

    fn block_bitmap(&mut self, params: &Params, txn: &mut Txn<'_>) -> engine::Result<BufferId> {
        let number = self.number();
        let desc = &mut self.desc;
        let tag = BlockKind::BlockBitmap.of_group(number.0);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return txn.buffer(desc.block_bitmap.0, tag);
        }
        let id = txn.create(desc.block_bitmap.0, tag)?;
        initial_block_bitmap(params, number, desc, txn.edit(id, 0..params.block_size()));
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        Ok(id)
    }

    fn copy_block_bitmap(&self, params: &Params, txn: &mut Txn<'_>) -> engine::Result<Box<[u8]>> {
        let desc = &self.desc;
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bytes: Box<[u8]> = vec![0; params.block_size()].into();
            initial_block_bitmap(params, self.number(), desc, &mut bytes);
            return Ok(bytes);
        }
        let id =
            txn.buffer(desc.block_bitmap.0, BlockKind::BlockBitmap.of_group(self.number().0))?;
        Ok(txn.data(id).into())
    }

    fn inode_bitmap(&mut self, params: &Params, txn: &mut Txn<'_>) -> engine::Result<BufferId> {
        let tag = BlockKind::InodeBitmap.of_group(self.number().0);
        let desc = &mut self.desc;
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return txn.buffer(desc.inode_bitmap.0, tag);
        }
        let id = txn.create(desc.inode_bitmap.0, tag)?;
        let bits = params.block_size() as u32 * 8;
        let bytes = txn.edit(id, 0..params.block_size());
        bitmap::set(bytes, 0, params.geometry.inodes_per_group..bits);
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        Ok(id)
    }

    fn corrupt(&self, structure: &'static str, problem: &str) -> Corruption {
        Corruption::new(structure, problem).in_group(u64::from(self.number().0))
    }
}

/// Sets the initial bits of an uninitialised group in `bytes`, which must be zero.
pub(crate) fn initial_block_bitmap(
    params: &Params,
    group: Group,
    desc: &GroupDescriptor,
    bytes: &mut [u8],
) {
    for range in metadata_bits(params, group, desc) {
        bitmap::set(bytes, 0, range);
    }
}

/// Returns the bits of a group's fixed metadata and of the blocks past its end.
fn metadata_bits(params: &Params, group: Group, desc: &GroupDescriptor) -> [Range<u32>; 5] {
    let geometry = &params.geometry;
    let first = geometry.first_block(group);
    let end = first.plus(u64::from(geometry.blocks_in(group)));
    let bits = |start: Block, len: u64| {
        let (from, to) = (start.max(first), start.plus(len).min(end));
        if from >= to {
            return 0..0;
        }
        geometry.bit_of(from)..geometry.bit_of(Block(to.0 - 1)) + 1
    };
    let base = geometry.base_metadata(group);
    [
        bits(base.start, base.end.0.saturating_sub(base.start.0)),
        bits(desc.block_bitmap, 1),
        bits(desc.inode_bitmap, 1),
        bits(desc.inode_table, u64::from(geometry.itable_blocks())),
        geometry.clusters_in(group)..geometry.block_size() * 8,
    ]
}
