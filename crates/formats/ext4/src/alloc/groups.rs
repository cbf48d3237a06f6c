//! Block groups of an open file system.

use std::sync::atomic::Ordering;

use disk::{BlockDevice, ContentKind};
use engine::Txn;
use engine::locks::atomic::AtomicU32;
use operations::groups;
use operations::reserve::{Claim, ReserveSize};

use super::busy::BusyBlocks;
use super::reserved::ReservedInodes;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::format::superblock::Superblock;
use crate::kind::BlockKind;
use crate::params::Params;

/// Size of the reserve for operations that free space. It equals the kernel's (2 %, at most 4096 clusters; sysfs calls
/// it `reserved_clusters`).
const RESERVE: ReserveSize = ReserveSize { one_in: 50, total_max: 4096 };

/// State of a group that changes and is protected by the group's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupState {
    pub(crate) desc: GroupDescriptor,
    /// No block before this bit is free.
    pub(crate) first_free_block: u32,
    /// No inode before this bit is free.
    pub(crate) first_free_inode: u32,
}

/// Fields of a group that can be read without its lock.
pub(crate) struct BlockGroup {
    /// First block of the inode table, which never moves.
    inode_table: Block,
    /// Clusters that the group reserves for operations that free space.
    reserve: u32,
    /// Usable free blocks and free inodes when the group was last released. Used to choose a group without waiting for
    /// its lock.
    free_blocks: AtomicU32,
    free_inodes: AtomicU32,
    /// Free inodes that are reserved for deferred files.
    pub(super) reserved: ReservedInodes,
    /// Free clusters that are promised to deferred files. Only increased while the group's lock is held.
    promised: AtomicU32,
    /// Number of inodes allocated since the file system was opened. Kept per group, so that threads in different groups
    /// do not share it.
    uses: AtomicU32,
    /// Groups where blocks and inodes for this group were last found, because it is full. Only hints.
    block_spill: AtomicU32,
    inode_spill: AtomicU32,
    /// Checksums of the bitmaps on the device. Kept outside the lock, because bitmaps are verified while it is held.
    block_bitmap_csum: AtomicU32,
    inode_bitmap_csum: AtomicU32,
}

impl groups::Group for BlockGroup {
    type Number = Group;
    type State = GroupState;
    type Busy = BusyBlocks;

    fn index(group: Group) -> usize {
        group.0 as usize
    }

    fn publish(&self, state: &GroupState, busy: &BusyBlocks) {
        let usable = state.desc.free_blocks.saturating_sub(busy.count());
        self.free_blocks.store(usable, Ordering::Relaxed);
        self.free_inodes.store(state.desc.free_inodes, Ordering::Relaxed);
    }

    /// The bitmap checksums in a descriptor are computed when it is written. So a descriptor can change although no
    /// field differs yet.
    fn is_changed(_: &GroupState, _: &GroupState) -> bool {
        true
    }
}

impl BlockGroup {
    fn new(desc: &GroupDescriptor, group: Group, reserve: u32) -> Self {
        Self {
            inode_table: desc.inode_table,
            reserve,
            block_spill: AtomicU32::new(group.0),
            inode_spill: AtomicU32::new(group.0),
            block_bitmap_csum: AtomicU32::new(desc.block_bitmap_csum),
            inode_bitmap_csum: AtomicU32::new(desc.inode_bitmap_csum),
            free_blocks: AtomicU32::new(0),
            free_inodes: AtomicU32::new(0),
            reserved: ReservedInodes::default(),
            promised: AtomicU32::new(0),
            uses: AtomicU32::new(0),
        }
    }

    /// Returns the number of clusters that must stay free after an allocation with this claim.
    pub(super) fn withheld(&self, claim: Claim) -> u32 {
        let promised = self.promised.load(Ordering::Relaxed);
        match claim {
            // A promise may be used by the operation it was made for. Operations that free space need few clusters.
            Claim::Freeing | Claim::Unbounded => claim.withheld(self.reserve),
            Claim::Ordinary | Claim::Promised => claim.withheld(self.reserve) + promised,
        }
    }

    /// Reserves clusters for deferred files. The caller holds the group, which must have that many usable clusters.
    pub(crate) fn promise(&self, clusters: u32) {
        self.promised.fetch_add(clusters, Ordering::Relaxed);
    }

    fn seal_block_bitmap(&self, desc: &mut GroupDescriptor, checksum: u32) {
        desc.block_bitmap_csum = checksum;
        self.block_bitmap_csum.store(checksum, Ordering::Relaxed);
    }

    fn seal_inode_bitmap(&self, desc: &mut GroupDescriptor, checksum: u32) {
        desc.inode_bitmap_csum = checksum;
        self.inode_bitmap_csum.store(checksum, Ordering::Relaxed);
    }
}

/// Checks that a group descriptor must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The checksum must be right and the values possible.
    Checksums,
    /// The values must be possible. This is enough for reading; kernels do the same on read-only mounts.
    Contents,
}

/// All groups.
pub(crate) struct Groups {
    all: groups::Groups<BlockGroup>,
    count: u32,
    /// Groups whose descriptors were accepted despite a wrong checksum.
    unsealed: Vec<Group>,
}

impl Groups {
    /// Reads and checks all descriptors.
    pub(crate) fn read(
        device: &dyn BlockDevice,
        sb: &Superblock,
        geometry: &Geometry,
        trust: Trust,
    ) -> vfs::Result<Self> {
        let (mut groups, mut unsealed) = (Vec::new(), Vec::new());
        let mut block = vec![0; geometry.block_size() as usize];
        if device.has_read_ahead() {
            // The descriptors are contiguous, except those of META_BG.
            let start = geometry.byte_of(geometry.gdt_block(0));
            let len = u64::from(geometry.gdt_blocks()) * u64::from(geometry.block_size());
            device.read_ahead(start, len, ContentKind::Metadata);
        }
        for index in 0..geometry.gdt_blocks() {
            device
                .read_at(geometry.byte_of(geometry.gdt_block(index)), &mut block)
                .map_err(vfs::Error::Device)?;
            for bytes in block.chunks_exact(usize::from(geometry.desc_size)) {
                if groups.len() == geometry.groups_count as usize {
                    break;
                }
                let group = Group(groups.len() as u32);
                let sealed = GroupDescriptor::check_sum(bytes, sb, group);
                match trust {
                    Trust::Checksums => sealed?,
                    Trust::Contents if sealed.is_err() => unsealed.push(group),
                    Trust::Contents => {}
                }
                let desc = GroupDescriptor::parse_unsealed(bytes, sb, group)?;
                let clusters = geometry.clusters_in(group);
                let reserve = RESERVE.share(group.0, geometry.groups_count, clusters);
                let state = GroupState { desc, first_free_block: 0, first_free_inode: 0 };
                let busy = BusyBlocks::new(geometry.block_size());
                groups.push((BlockGroup::new(&desc, group, reserve), state, busy));
            }
        }
        Ok(Self { count: groups.len() as u32, all: groups::Groups::new(groups), unsealed })
    }

    /// Returns the groups in the form that operations lock.
    pub(crate) fn all(&self) -> &groups::Groups<BlockGroup> {
        &self.all
    }

    /// Returns the groups whose descriptors were accepted despite a wrong checksum.
    pub(crate) fn unsealed(&self) -> &[Group] {
        &self.unsealed
    }

    /// Iterates over all groups once, beginning with `start`.
    pub(crate) fn from(&self, start: Group) -> impl Iterator<Item = Group> + use<> {
        let count = self.count;
        (0..count).map(move |step| Group((start.0 + step) % count))
    }

    /// Returns the group to search first when blocks are wanted in `home`.
    pub(crate) fn block_spill(&self, home: Group) -> Group {
        Group(self.all.group(home).block_spill.load(Ordering::Relaxed))
    }

    /// Records the group in which blocks for `home` were found.
    pub(crate) fn set_block_spill(&self, home: Group, group: Group) {
        self.all.group(home).block_spill.store(group.0, Ordering::Relaxed);
    }

    /// Returns the group to search first when an inode is wanted in `home`.
    pub(crate) fn inode_spill(&self, home: Group) -> Group {
        Group(self.all.group(home).inode_spill.load(Ordering::Relaxed))
    }

    /// Records the group in which an inode for `home` was found.
    pub(crate) fn set_inode_spill(&self, home: Group, group: Group) {
        self.all.group(home).inode_spill.store(group.0, Ordering::Relaxed);
    }

    /// Returns a recent count of a group's free clusters that are not busy, including the reserve.
    pub(crate) fn free_blocks(&self, group: Group) -> u32 {
        self.all.group(group).free_blocks.load(Ordering::Relaxed)
    }

    /// Returns a recent count of a group's clusters that a claim may take.
    pub(crate) fn usable_blocks(&self, group: Group, claim: Claim) -> u32 {
        let group = self.all.group(group);
        let free = group.free_blocks.load(Ordering::Relaxed);
        free.saturating_sub(group.withheld(claim))
    }

    /// Returns a recent count of a group's free inodes.
    pub(crate) fn free_inodes(&self, group: Group) -> u32 {
        let group = self.all.group(group);
        group.free_inodes.load(Ordering::Relaxed).saturating_sub(group.reserved.count())
    }

    /// Counts an allocated inode of a group. Returns the count before.
    pub(super) fn count_use(&self, group: Group) -> u32 {
        self.all.group(group).uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Releases a reserved inode that is no longer needed or is in use now.
    pub(crate) fn let_go_of_inode(&self, group: Group, index: u32) {
        self.all.group(group).reserved.let_go(index);
    }

    /// Releases promised clusters.
    pub(crate) fn release(&self, group: Group, clusters: u32) {
        self.all.group(group).promised.fetch_sub(clusters, Ordering::Relaxed);
    }

    /// Returns a group's descriptor, for the block numbers in it, which never change.
    pub(crate) fn places(&self, group: Group) -> GroupDescriptor {
        self.all.state(group).desc
    }

    /// Returns the first block of a group's inode table.
    pub(crate) fn inode_table(&self, group: Group) -> Block {
        self.all.group(group).inode_table
    }

    /// Returns the on-disk checksums of a group's block bitmap and inode bitmap.
    pub(crate) fn bitmap_checksums(&self, group: u32) -> (u32, u32) {
        let group = self.all.group(Group(group));
        let load = |checksum: &AtomicU32| checksum.load(Ordering::Relaxed);
        (load(&group.block_bitmap_csum), load(&group.inode_bitmap_csum))
    }

    /// Returns the free clusters and free inodes of the whole file system.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.all.states().fold((0, 0), |(clusters, inodes), (_, GroupState { desc, .. })| {
            (clusters + u64::from(desc.free_blocks), inodes + u64::from(desc.free_inodes))
        })
    }

    /// Returns the number of free clusters outside the reserve.
    pub(crate) fn unreserved(&self) -> u64 {
        self.all.states().fold(0, |clusters, (group, state)| {
            let withheld = group.withheld(Claim::Ordinary);
            clusters + u64::from(state.desc.free_blocks.saturating_sub(withheld))
        })
    }

    /// Returns recent counts of the free clusters and free inodes of the whole file system, without locking any group.
    /// Clusters that are busy until a checkpoint do not count.
    pub(crate) fn estimated_totals(&self) -> (u64, u64) {
        self.all.iter().fold((0, 0), |(clusters, inodes), group| {
            let load = |count: &AtomicU32| u64::from(count.load(Ordering::Relaxed));
            (clusters + load(&group.free_blocks), inodes + load(&group.free_inodes))
        })
    }

    /// Writes the descriptors that changed, with the checksums of their bitmaps. Returns whether any changed.
    pub(crate) fn flush_deferred(
        &self,
        params: &Params,
        txn: &mut Txn<'_>,
    ) -> engine::Result<bool> {
        self.all.close_busy();
        self.all.flush_dirty(|number, group, GroupState { desc, .. }| {
            if params.checksums {
                if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                    let tag = BlockKind::BlockBitmap.of_group(number.0);
                    let id = txn.buffer(desc.block_bitmap.0, tag)?;
                    group.seal_block_bitmap(desc, block_bitmap_checksum(txn.data(id), &params.sb));
                }
                if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                    let tag = BlockKind::InodeBitmap.of_group(number.0);
                    let id = txn.buffer(desc.inode_bitmap.0, tag)?;
                    group.seal_inode_bitmap(desc, inode_bitmap_checksum(txn.data(id), &params.sb));
                }
            }
            let (block, offset) = params.geometry.descriptor_position(number);
            let id = txn.buffer(block.0, BlockKind::Descriptors.plain())?;
            let bytes = txn.edit(id, offset..offset + usize::from(params.geometry.desc_size));
            desc.write(bytes, &params.sb, number);
            Ok(())
        })
    }
}
