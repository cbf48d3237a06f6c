//! What an operation does with a group that it holds.

use std::ops::Range;

use operation::groups;
use operation::reserve::Claim;
use transaction::{BufferId, Corruption, Txn};

use super::bitmap;
use super::groups::BlockGroup;
use crate::format::address::{Block, Group};
use crate::format::group::{GroupDescriptor, GroupFlags};
use crate::kind::Kind;
use crate::params::Params;

/// A block group held by an operation.
pub(crate) type GroupGuard<'a> = groups::GroupGuard<'a, BlockGroup>;

/// The block groups that an operation holds.
pub(crate) type HeldGroups<'a> = groups::HeldGroups<'a, BlockGroup>;

/// What ext4 asks of a group that is held.
pub(crate) trait Bitmaps {
    /// Clusters that a claim allows to take now.
    fn usable_blocks(&self, claim: Claim) -> u32;

    /// What must not be taken, be it free in the bitmap.
    fn busy(&self) -> [Option<&[u8]>; 2];

    /// The group's block bitmap, made first if the group never had one.
    fn block_bitmap(&mut self, params: &Params, txn: &mut Txn<'_>)
    -> transaction::Result<BufferId>;

    /// The group's block bitmap as it is, or as it would be made.
    fn copy_block_bitmap(
        &self,
        params: &Params,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<Box<[u8]>>;

    /// The group's inode bitmap, made first if the group never had one.
    fn inode_bitmap(&mut self, params: &Params, txn: &mut Txn<'_>)
    -> transaction::Result<BufferId>;

    /// Damage found in this group.
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

    fn block_bitmap(
        &mut self,
        params: &Params,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<BufferId> {
        let number = self.number();
        let desc = &mut self.desc;
        let tag = Kind::BlockBitmap.of_group(number.0);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return txn.buffer(desc.block_bitmap.0, tag);
        }
        let id = txn.create(desc.block_bitmap.0, tag)?;
        initial_block_bitmap(params, number, desc, txn.edit(id, 0..params.block_size()));
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        Ok(id)
    }

    fn copy_block_bitmap(
        &self,
        params: &Params,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<Box<[u8]>> {
        let desc = &self.desc;
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bytes: Box<[u8]> = vec![0; params.block_size()].into();
            initial_block_bitmap(params, self.number(), desc, &mut bytes);
            return Ok(bytes);
        }
        let id = txn.buffer(desc.block_bitmap.0, Kind::BlockBitmap.of_group(self.number().0))?;
        Ok(txn.data(id).into())
    }

    fn inode_bitmap(
        &mut self,
        params: &Params,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<BufferId> {
        let tag = Kind::InodeBitmap.of_group(self.number().0);
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

/// Sets the bits, in a bitmap of zeros, of a group that never had one.
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

/// The bits of a group that its fixed metadata takes, and those past its end.
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
