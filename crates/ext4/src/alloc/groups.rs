//! The groups of an open file system.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use blockdev::BlockDevice;
use parking_lot::{Mutex, MutexGuard};
use transaction::{BufferId, Corruption, Txn};

use super::bitmap;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::format::superblock::Superblock;
use crate::kind::Kind;
use crate::volume::Volume;

/// What changes of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupState {
    pub(crate) desc: GroupDescriptor,
    /// No block is free before this bit.
    pub(crate) first_free_block: u32,
    /// No inode is free before this bit.
    pub(crate) first_free_inode: u32,
    /// Changed since the descriptor was last written.
    dirty: bool,
}

struct GroupSlot {
    /// The first block of the inode table, which never moves.
    inode_table: Block,
    state: Mutex<GroupState>,
    /// Where what belongs in this group was last put, because this one is full. Only hints.
    block_spill: AtomicU32,
    inode_spill: AtomicU32,
    /// Checksums of the bitmaps as they lie on the device, kept outside the lock because bitmaps
    /// are verified while it is held.
    block_bitmap_csum: AtomicU32,
    inode_bitmap_csum: AtomicU32,
}

/// All groups.
pub(crate) struct Groups {
    slots: Vec<GroupSlot>,
    /// Groups whose descriptors are to be written.
    dirty: Mutex<Vec<Group>>,
}

/// A group held by an operation. Dropped without [`Lease::keep`], it puts the counts back.
pub(crate) struct Lease<'a> {
    group: Group,
    state: MutexGuard<'a, GroupState>,
    saved: GroupState,
    kept: bool,
}

impl Groups {
    /// Reads and checks all descriptors.
    pub(crate) fn read(
        device: &dyn BlockDevice,
        sb: &Superblock,
        geometry: &Geometry,
    ) -> vfs::Result<Self> {
        let mut slots = Vec::new();
        let mut block = vec![0; geometry.block_size() as usize];
        for index in 0..geometry.gdt_blocks() {
            device
                .read_at(geometry.byte_of(geometry.gdt_block(index)), &mut block)
                .map_err(vfs::Error::Device)?;
            for bytes in block.chunks_exact(usize::from(geometry.desc_size)) {
                if slots.len() == geometry.groups_count as usize {
                    break;
                }
                let group = Group(slots.len() as u32);
                slots.push(GroupSlot::new(group, GroupDescriptor::parse(bytes, sb, group)?));
            }
        }
        Ok(Self { slots, dirty: Mutex::default() })
    }

    /// Waits for a group.
    pub(crate) fn lease(&self, group: Group) -> Lease<'_> {
        let state = self.slots[group.0 as usize].state.lock();
        let saved = *state;
        Lease { group, state, saved, kept: false }
    }

    /// All groups once, starting with one.
    pub(crate) fn from(&self, start: Group) -> impl Iterator<Item = Group> + use<> {
        let count = self.slots.len() as u32;
        (0..count).map(move |step| Group((start.0 + step) % count))
    }

    /// The group to start in when blocks are wanted in `home`.
    pub(crate) fn block_spill(&self, home: Group) -> Group {
        Group(self.slots[home.0 as usize].block_spill.load(Ordering::Relaxed))
    }

    /// Remembers where blocks that were wanted in `home` were found.
    pub(crate) fn set_block_spill(&self, home: Group, group: Group) {
        self.slots[home.0 as usize].block_spill.store(group.0, Ordering::Relaxed);
    }

    /// The group to start in when an inode is wanted in `home`.
    pub(crate) fn inode_spill(&self, home: Group) -> Group {
        Group(self.slots[home.0 as usize].inode_spill.load(Ordering::Relaxed))
    }

    /// Remembers where an inode that was wanted in `home` was found.
    pub(crate) fn set_inode_spill(&self, home: Group, group: Group) {
        self.slots[home.0 as usize].inode_spill.store(group.0, Ordering::Relaxed);
    }

    /// A group's descriptor as it is now.
    pub(crate) fn descriptor(&self, group: Group) -> GroupDescriptor {
        self.slots[group.0 as usize].state.lock().desc
    }

    /// The first block of a group's inode table.
    pub(crate) fn inode_table(&self, group: Group) -> Block {
        self.slots[group.0 as usize].inode_table
    }

    /// Checksums of a group's block and inode bitmap on the device.
    pub(crate) fn bitmap_checksums(&self, group: u32) -> (u32, u32) {
        let slot = &self.slots[group as usize];
        let load = |checksum: &AtomicU32| checksum.load(Ordering::Relaxed);
        (load(&slot.block_bitmap_csum), load(&slot.inode_bitmap_csum))
    }

    /// Free clusters and free inodes of the whole file system.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.slots.iter().fold((0, 0), |(clusters, inodes), slot| {
            let desc = slot.state.lock().desc;
            (clusters + u64::from(desc.free_blocks), inodes + u64::from(desc.free_inodes))
        })
    }

    /// Keeps what an operation did in its groups and lets them go.
    pub(crate) fn keep<'a>(&self, leases: impl Iterator<Item = Lease<'a>>) {
        for mut lease in leases {
            lease.kept = true;
            if !std::mem::replace(&mut lease.state.dirty, true) {
                self.dirty.lock().push(lease.group);
            }
        }
    }

    /// Writes the descriptors that changed, with the checksums of their bitmaps.
    pub(crate) fn settle(&self, volume: &Volume, txn: &mut Txn<'_>) -> transaction::Result<()> {
        let mut dirty = std::mem::take(&mut *self.dirty.lock());
        dirty.sort_unstable();
        for group in dirty {
            let slot = &self.slots[group.0 as usize];
            let mut state = slot.state.lock();
            let desc = &mut state.desc;
            if volume.checksums {
                if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                    let id =
                        txn.buffer(desc.block_bitmap.0, Kind::BlockBitmap.of_group(group.0))?;
                    desc.block_bitmap_csum = block_bitmap_checksum(txn.data(id), &volume.sb);
                    slot.block_bitmap_csum.store(desc.block_bitmap_csum, Ordering::Relaxed);
                }
                if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                    let id =
                        txn.buffer(desc.inode_bitmap.0, Kind::InodeBitmap.of_group(group.0))?;
                    desc.inode_bitmap_csum = inode_bitmap_checksum(txn.data(id), &volume.sb);
                    slot.inode_bitmap_csum.store(desc.inode_bitmap_csum, Ordering::Relaxed);
                }
            }
            let (block, offset) = volume.geometry.descriptor_position(group);
            let id = txn.buffer(block.0, Kind::Descriptors.plain())?;
            let bytes = txn.edit(id, offset..offset + usize::from(volume.geometry.desc_size));
            desc.write(bytes, &volume.sb, group);
            state.dirty = false;
        }
        Ok(())
    }
}

impl GroupSlot {
    fn new(group: Group, desc: GroupDescriptor) -> Self {
        Self {
            inode_table: desc.inode_table,
            block_spill: AtomicU32::new(group.0),
            inode_spill: AtomicU32::new(group.0),
            block_bitmap_csum: AtomicU32::new(desc.block_bitmap_csum),
            inode_bitmap_csum: AtomicU32::new(desc.inode_bitmap_csum),
            state: Mutex::new(GroupState {
                desc,
                first_free_block: 0,
                first_free_inode: 0,
                dirty: false,
            }),
        }
    }
}

impl Lease<'_> {
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    pub(crate) fn state(&mut self) -> &mut GroupState {
        &mut self.state
    }

    /// The group's block bitmap, made first if the group never had one.
    pub(crate) fn block_bitmap(
        &mut self,
        volume: &Volume,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<BufferId> {
        let desc = &mut self.state.desc;
        let tag = Kind::BlockBitmap.of_group(self.group.0);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return txn.buffer(desc.block_bitmap.0, tag);
        }
        let id = txn.create(desc.block_bitmap.0, tag)?;
        let used = metadata_bits(volume, self.group, desc);
        let bytes = txn.edit(id, 0..volume.block_size());
        for range in used {
            bitmap::set(bytes, 0, range);
        }
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        Ok(id)
    }

    /// The group's inode bitmap, made first if the group never had one.
    pub(crate) fn inode_bitmap(
        &mut self,
        volume: &Volume,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<BufferId> {
        let desc = &mut self.state.desc;
        let tag = Kind::InodeBitmap.of_group(self.group.0);
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return txn.buffer(desc.inode_bitmap.0, tag);
        }
        let id = txn.create(desc.inode_bitmap.0, tag)?;
        let bits = volume.block_size() as u32 * 8;
        let bytes = txn.edit(id, 0..volume.block_size());
        bitmap::set(bytes, 0, volume.geometry.inodes_per_group..bits);
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        Ok(id)
    }

    /// Damage found in this group.
    pub(crate) fn corrupt(&self, structure: &'static str, problem: &str) -> Corruption {
        Corruption::new(structure, problem).in_group(u64::from(self.group.0))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.kept {
            *self.state = self.saved;
        }
    }
}

/// The bits of a group that its fixed metadata takes, and those past its end.
fn metadata_bits(volume: &Volume, group: Group, desc: &GroupDescriptor) -> [Range<u32>; 5] {
    let geometry = &volume.geometry;
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
