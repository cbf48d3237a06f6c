//! The groups of an open file system: what ext4 has of each of them.

use std::sync::atomic::Ordering;

use blockdev::BlockDevice;
use operation::groups;
use operation::reserve::{Claim, ReserveSize};
use transaction::Txn;
use transaction::locks::atomic::AtomicU32;

use super::busy::BusyBlocks;
use super::reserved::ReservedInodes;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::format::superblock::Superblock;
use crate::kind::Kind;
use crate::params::Params;

/// How much is kept for operations that free: as much as kernels keep (2 %, at most 4096 clusters; `ext4(5)`
/// of sysfs calls it `reserved_clusters`).
const RESERVE: ReserveSize = ReserveSize { one_in: 50, total_max: 4096 };

/// What changes of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupState {
    pub(crate) desc: GroupDescriptor,
    /// No block is free before this bit.
    pub(crate) first_free_block: u32,
    /// No inode is free before this bit.
    pub(crate) first_free_inode: u32,
}

/// What can be seen of a group without its lock.
pub(crate) struct BlockGroup {
    /// The first block of the inode table, which never moves.
    inode_table: Block,
    /// What the group keeps free for operations that free, in clusters.
    reserve: u32,
    /// Free blocks that may be taken and free inodes, as they were last time nobody held the group:
    /// to choose groups by without waiting for them.
    free_blocks: AtomicU32,
    free_inodes: AtomicU32,
    /// Free inodes that are kept for files that wait.
    pub(super) reserved: ReservedInodes,
    /// Free clusters that are promised to such files. It grows only with the group's lock.
    promised: AtomicU32,
    /// Inodes taken since the file system was opened. Of each group, so that threads in different ones do not meet.
    uses: AtomicU32,
    /// Where what belongs in this group was last put, because this one is full. Only hints.
    block_spill: AtomicU32,
    inode_spill: AtomicU32,
    /// Checksums of the bitmaps as they lie on the device, kept outside the lock because bitmaps
    /// are verified while it is held.
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

    /// The checksums of the bitmaps are worked out when the descriptor is written, so a descriptor may
    /// change though nothing in it differs yet.
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

    /// Clusters that must stay free when an operation with a claim has taken what it wants.
    pub(super) fn withheld(&self, claim: Claim) -> u32 {
        let promised = self.promised.load(Ordering::Relaxed);
        match claim {
            // What was promised may be taken by who keeps the promise, and is little to who frees.
            Claim::Freeing | Claim::Unbounded => claim.withheld(self.reserve),
            Claim::Ordinary | Claim::Promised => claim.withheld(self.reserve) + promised,
        }
    }

    /// Keeps clusters for files that wait. The group must be held, and have as many that may be taken.
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

/// What makes a group's descriptor one to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Its checksum, and that what it says is possible.
    Checksums,
    /// That what it says is possible: enough to read what can be read, as kernels do that mount for
    /// reading.
    Contents,
}

/// All groups.
pub(crate) struct Groups {
    all: groups::Groups<BlockGroup>,
    count: u32,
    /// Groups whose descriptors were taken though their checksums are wrong.
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
            // They lie together, but for those of META_BG.
            let start = geometry.byte_of(geometry.gdt_block(0));
            let len = u64::from(geometry.gdt_blocks()) * u64::from(geometry.block_size());
            device.read_ahead(start, len);
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

    /// The groups as operations hold them.
    pub(crate) fn all(&self) -> &groups::Groups<BlockGroup> {
        &self.all
    }

    /// Groups whose descriptors were taken though their checksums are wrong.
    pub(crate) fn unsealed(&self) -> &[Group] {
        &self.unsealed
    }

    /// All groups once, starting with one.
    pub(crate) fn from(&self, start: Group) -> impl Iterator<Item = Group> + use<> {
        let count = self.count;
        (0..count).map(move |step| Group((start.0 + step) % count))
    }

    /// The group to start in when blocks are wanted in `home`.
    pub(crate) fn block_spill(&self, home: Group) -> Group {
        Group(self.all.group(home).block_spill.load(Ordering::Relaxed))
    }

    /// Remembers where blocks that were wanted in `home` were found.
    pub(crate) fn set_block_spill(&self, home: Group, group: Group) {
        self.all.group(home).block_spill.store(group.0, Ordering::Relaxed);
    }

    /// The group to start in when an inode is wanted in `home`.
    pub(crate) fn inode_spill(&self, home: Group) -> Group {
        Group(self.all.group(home).inode_spill.load(Ordering::Relaxed))
    }

    /// Remembers where an inode that was wanted in `home` was found.
    pub(crate) fn set_inode_spill(&self, home: Group, group: Group) {
        self.all.group(home).inode_spill.store(group.0, Ordering::Relaxed);
    }

    /// Free clusters of a group that may be taken, be they of the reserve, as of a moment ago.
    pub(crate) fn free_blocks(&self, group: Group) -> u32 {
        self.all.group(group).free_blocks.load(Ordering::Relaxed)
    }

    /// Free clusters of a group that a claim allows to take, as of a moment ago.
    pub(crate) fn usable_blocks(&self, group: Group, claim: Claim) -> u32 {
        let group = self.all.group(group);
        let free = group.free_blocks.load(Ordering::Relaxed);
        free.saturating_sub(group.withheld(claim))
    }

    /// Free inodes of a group, as of a moment ago.
    pub(crate) fn free_inodes(&self, group: Group) -> u32 {
        let group = self.all.group(group);
        group.free_inodes.load(Ordering::Relaxed).saturating_sub(group.reserved.count())
    }

    /// Counts an inode of a group that is taken; how many were before.
    pub(super) fn count_use(&self, group: Group) -> u32 {
        self.all.group(group).uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets others have an inode that was kept for a file, or that is used by now.
    pub(crate) fn let_go_of_inode(&self, group: Group, index: u32) {
        self.all.group(group).reserved.let_go(index);
    }

    /// Lets others have clusters that were promised.
    pub(crate) fn release(&self, group: Group, clusters: u32) {
        self.all.group(group).promised.fetch_sub(clusters, Ordering::Relaxed);
    }

    /// A group's descriptor, for the places in it, which never change.
    pub(crate) fn places(&self, group: Group) -> GroupDescriptor {
        self.all.state(group).desc
    }

    /// The first block of a group's inode table.
    pub(crate) fn inode_table(&self, group: Group) -> Block {
        self.all.group(group).inode_table
    }

    /// Checksums of a group's block and inode bitmap on the device.
    pub(crate) fn bitmap_checksums(&self, group: u32) -> (u32, u32) {
        let group = self.all.group(Group(group));
        let load = |checksum: &AtomicU32| checksum.load(Ordering::Relaxed);
        (load(&group.block_bitmap_csum), load(&group.inode_bitmap_csum))
    }

    /// Free clusters and free inodes of the whole file system.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.all.states().fold((0, 0), |(clusters, inodes), (_, GroupState { desc, .. })| {
            (clusters + u64::from(desc.free_blocks), inodes + u64::from(desc.free_inodes))
        })
    }

    /// Free clusters beside the reserve.
    pub(crate) fn unreserved(&self) -> u64 {
        self.all.states().fold(0, |clusters, (group, state)| {
            let withheld = group.withheld(Claim::Ordinary);
            clusters + u64::from(state.desc.free_blocks.saturating_sub(withheld))
        })
    }

    /// Free clusters and free inodes of the whole file system, as of a moment ago, without waiting
    /// for any group. Clusters that wait for a checkpoint do not count.
    pub(crate) fn estimated_totals(&self) -> (u64, u64) {
        self.all.iter().fold((0, 0), |(clusters, inodes), group| {
            let load = |count: &AtomicU32| u64::from(count.load(Ordering::Relaxed));
            (clusters + load(&group.free_blocks), inodes + load(&group.free_inodes))
        })
    }

    /// Writes the descriptors that changed, with the checksums of their bitmaps. Whether any did.
    pub(crate) fn flush_deferred(
        &self,
        params: &Params,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<bool> {
        self.all.close_busy();
        self.all.flush_dirty(|number, group, GroupState { desc, .. }| {
            if params.checksums {
                if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                    let tag = Kind::BlockBitmap.of_group(number.0);
                    let id = txn.buffer(desc.block_bitmap.0, tag)?;
                    group.seal_block_bitmap(desc, block_bitmap_checksum(txn.data(id), &params.sb));
                }
                if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                    let tag = Kind::InodeBitmap.of_group(number.0);
                    let id = txn.buffer(desc.inode_bitmap.0, tag)?;
                    group.seal_inode_bitmap(desc, inode_bitmap_checksum(txn.data(id), &params.sb));
                }
            }
            let (block, offset) = params.geometry.descriptor_position(number);
            let id = txn.buffer(block.0, Kind::Descriptors.plain())?;
            let bytes = txn.edit(id, offset..offset + usize::from(params.geometry.desc_size));
            desc.write(bytes, &params.sb, number);
            Ok(())
        })
    }
}
