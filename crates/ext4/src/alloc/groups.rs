//! The groups of an open file system.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use blockdev::BlockDevice;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use transaction::{BufferId, Corruption, Txn};
use vfs::reserve::{Claim, ReserveSize};

use super::bitmap;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::format::superblock::Superblock;
use crate::kind::Kind;
use crate::volume::Volume;

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
    /// Changed since the descriptor was last written.
    dirty: bool,
}

/// Blocks of a group that were freed but must not be taken yet: until the checkpoint that freed them
/// is durable, a crash would give them back to their file.
#[derive(Default)]
struct Busy {
    /// Freed in the running checkpoint.
    running: BusyBits,
    /// Freed in the one being written.
    closed: BusyBits,
}

/// A bitmap, there only while it has bits, and how many.
#[derive(Default)]
struct BusyBits {
    bits: Option<Box<[u8]>>,
    count: u32,
}

/// What a group's lock guards.
struct Guarded {
    state: GroupState,
    busy: Busy,
}

struct GroupSlot {
    /// The first block of the inode table, which never moves.
    inode_table: Block,
    /// What the group keeps free for operations that free, in clusters.
    reserve: u32,
    guarded: Mutex<Guarded>,
    /// Free blocks that may be taken and free inodes, as they were last time nobody held the group:
    /// to choose groups by without waiting for them.
    free_blocks: AtomicU32,
    free_inodes: AtomicU32,
    /// Where what belongs in this group was last put, because this one is full. Only hints.
    block_spill: AtomicU32,
    inode_spill: AtomicU32,
    /// Checksums of the bitmaps as they lie on the device, kept outside the lock because bitmaps
    /// are verified while it is held.
    block_bitmap_csum: AtomicU32,
    inode_bitmap_csum: AtomicU32,
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
    slots: Vec<GroupSlot>,
    /// Groups whose descriptors were taken though their checksums are wrong.
    unsealed: Vec<Group>,
    /// Groups whose descriptors are to be written.
    dirty: Mutex<Vec<Group>>,
    /// Groups with busy blocks of the running checkpoint, and of the one being written.
    busy_running: Mutex<Vec<Group>>,
    busy_closed: Mutex<Vec<Group>>,
}

/// A group held by an operation. Dropped before [`Groups::keep`], it puts the counts back.
pub(crate) struct Lease<'a> {
    group: Group,
    guarded: MutexGuard<'a, Guarded>,
    saved: GroupState,
    /// The group's share of the reserve.
    reserve: u32,
    /// What the operation made busy.
    freed: SmallVec<[Range<u32>; 2]>,
    kept: bool,
}

impl Groups {
    /// Reads and checks all descriptors.
    pub(crate) fn read(
        device: &dyn BlockDevice,
        sb: &Superblock,
        geometry: &Geometry,
        trust: Trust,
    ) -> vfs::Result<Self> {
        let (mut slots, mut unsealed) = (Vec::new(), Vec::new());
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
                let sealed = GroupDescriptor::check_sum(bytes, sb, group);
                match trust {
                    Trust::Checksums => sealed?,
                    Trust::Contents if sealed.is_err() => unsealed.push(group),
                    Trust::Contents => {}
                }
                let desc = GroupDescriptor::parse_unsealed(bytes, sb, group)?;
                let clusters = geometry.clusters_in(group);
                let reserve = RESERVE.share(group.0, geometry.groups_count, clusters);
                slots.push(GroupSlot::new(desc, group, reserve));
            }
        }
        Ok(Self {
            slots,
            unsealed,
            dirty: Mutex::default(),
            busy_running: Mutex::default(),
            busy_closed: Mutex::default(),
        })
    }

    /// Groups whose descriptors were taken though their checksums are wrong.
    pub(crate) fn unsealed(&self) -> &[Group] {
        &self.unsealed
    }

    /// Waits for a group.
    pub(crate) fn lease(&self, group: Group) -> Lease<'_> {
        let slot = &self.slots[group.0 as usize];
        Lease::new(group, slot.reserve, slot.guarded.lock())
    }

    /// Takes a group that nobody has.
    pub(crate) fn try_lease(&self, group: Group) -> Option<Lease<'_>> {
        let slot = &self.slots[group.0 as usize];
        Some(Lease::new(group, slot.reserve, slot.guarded.try_lock()?))
    }

    /// Whether blocks are free that only a checkpoint makes usable.
    pub(crate) fn has_busy(&self) -> bool {
        !self.busy_running.lock().is_empty() || !self.busy_closed.lock().is_empty()
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

    /// Free clusters of a group that may be taken, be they of the reserve, as of a moment ago.
    pub(crate) fn free_blocks(&self, group: Group) -> u32 {
        self.slots[group.0 as usize].free_blocks.load(Ordering::Relaxed)
    }

    /// Free clusters of a group that a claim allows to take, as of a moment ago.
    pub(crate) fn usable_blocks(&self, group: Group, claim: Claim) -> u32 {
        let slot = &self.slots[group.0 as usize];
        let free = slot.free_blocks.load(Ordering::Relaxed);
        free.saturating_sub(claim.withheld(slot.reserve))
    }

    /// Free inodes of a group, as of a moment ago.
    pub(crate) fn free_inodes(&self, group: Group) -> u32 {
        self.slots[group.0 as usize].free_inodes.load(Ordering::Relaxed)
    }

    /// A group's descriptor, for the places in it, which never change.
    pub(crate) fn places(&self, group: Group) -> GroupDescriptor {
        self.slots[group.0 as usize].guarded.lock().state.desc
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
            let desc = slot.guarded.lock().state.desc;
            (clusters + u64::from(desc.free_blocks), inodes + u64::from(desc.free_inodes))
        })
    }

    /// Free clusters beside the reserve.
    pub(crate) fn unreserved(&self) -> u64 {
        self.slots.iter().fold(0, |clusters, slot| {
            let free = slot.guarded.lock().state.desc.free_blocks;
            clusters + u64::from(free.saturating_sub(slot.reserve))
        })
    }

    /// Free clusters and free inodes of the whole file system, as of a moment ago, without waiting
    /// for any group. Clusters that wait for a checkpoint do not count.
    pub(crate) fn estimated_totals(&self) -> (u64, u64) {
        self.slots.iter().fold((0, 0), |(clusters, inodes), slot| {
            let load = |count: &AtomicU32| u64::from(count.load(Ordering::Relaxed));
            (clusters + load(&slot.free_blocks), inodes + load(&slot.free_inodes))
        })
    }

    /// Keeps what an operation did in its groups and lets them go.
    pub(crate) fn keep<'a>(&self, leases: impl Iterator<Item = Lease<'a>>) {
        for mut lease in leases {
            lease.kept = true;
            let guarded = &mut *lease.guarded;
            if !std::mem::replace(&mut guarded.state.dirty, true) {
                self.dirty.lock().push(lease.group);
            }
            if !lease.freed.is_empty() {
                let mut busy = self.busy_running.lock();
                if busy.last() != Some(&lease.group) {
                    busy.push(lease.group);
                }
            }
            self.slots[lease.group.0 as usize].publish(guarded);
        }
    }

    /// The running checkpoint is being closed: what it freed waits for it now.
    fn close_busy(&self) {
        let mut closed = self.busy_closed.lock();
        for group in self.busy_running.lock().drain(..) {
            let busy = &mut self.slots[group.0 as usize].guarded.lock().busy;
            if busy.running.count > 0 {
                busy.closed = std::mem::take(&mut busy.running);
                closed.push(group);
            }
        }
    }

    /// The checkpoint that was closed last is durable: what it freed may be taken.
    pub(crate) fn release_busy(&self) {
        for group in self.busy_closed.lock().drain(..) {
            let slot = &self.slots[group.0 as usize];
            let mut guarded = slot.guarded.lock();
            guarded.busy.closed = BusyBits::default();
            slot.publish(&guarded);
        }
    }

    /// Writes the descriptors that changed, with the checksums of their bitmaps. Whether any did.
    pub(crate) fn settle(&self, volume: &Volume, txn: &mut Txn<'_>) -> transaction::Result<bool> {
        self.close_busy();
        let mut dirty = std::mem::take(&mut *self.dirty.lock());
        let changed = !dirty.is_empty();
        dirty.sort_unstable();
        for group in dirty {
            let slot = &self.slots[group.0 as usize];
            let state = &mut slot.guarded.lock().state;
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
        Ok(changed)
    }
}

impl GroupSlot {
    fn new(desc: GroupDescriptor, group: Group, reserve: u32) -> Self {
        Self {
            inode_table: desc.inode_table,
            reserve,
            block_spill: AtomicU32::new(group.0),
            inode_spill: AtomicU32::new(group.0),
            block_bitmap_csum: AtomicU32::new(desc.block_bitmap_csum),
            inode_bitmap_csum: AtomicU32::new(desc.inode_bitmap_csum),
            free_blocks: AtomicU32::new(desc.free_blocks),
            free_inodes: AtomicU32::new(desc.free_inodes),
            guarded: Mutex::new(Guarded {
                state: GroupState { desc, first_free_block: 0, first_free_inode: 0, dirty: false },
                busy: Busy::default(),
            }),
        }
    }

    fn publish(&self, guarded: &Guarded) {
        let usable = guarded.state.desc.free_blocks.saturating_sub(guarded.busy.count());
        self.free_blocks.store(usable, Ordering::Relaxed);
        self.free_inodes.store(guarded.state.desc.free_inodes, Ordering::Relaxed);
    }
}

impl Busy {
    fn count(&self) -> u32 {
        self.running.count + self.closed.count
    }
}

impl BusyBits {
    /// Adds bits that are not in it, in a bitmap of `bytes` bytes.
    fn add(&mut self, range: Range<u32>, bytes: usize) {
        self.count += range.end - range.start;
        let bits = self.bits.get_or_insert_with(|| vec![0; bytes].into());
        let window = bitmap::bytes_of(&range);
        bitmap::set(&mut bits[window.clone()], window.start as u32 * 8, range);
    }

    fn remove(&mut self, range: Range<u32>) {
        self.count -= range.end - range.start;
        if let Some(bits) = &mut self.bits {
            let window = bitmap::bytes_of(&range);
            bitmap::clear(&mut bits[window.clone()], window.start as u32 * 8, range);
        }
    }
}

impl<'a> Lease<'a> {
    fn new(group: Group, reserve: u32, guarded: MutexGuard<'a, Guarded>) -> Self {
        let saved = guarded.state;
        Self { group, guarded, saved, reserve, freed: SmallVec::new(), kept: false }
    }

    pub(crate) fn group(&self) -> Group {
        self.group
    }

    pub(crate) fn state(&mut self) -> &mut GroupState {
        &mut self.guarded.state
    }

    /// No block is free before this bit.
    pub(crate) fn first_free_block(&self) -> u32 {
        self.guarded.state.first_free_block
    }

    /// Clusters that a claim allows to take now.
    pub(crate) fn usable_blocks(&self, claim: Claim) -> u32 {
        let withheld = self.guarded.busy.count() + claim.withheld(self.reserve);
        self.guarded.state.desc.free_blocks.saturating_sub(withheld)
    }

    /// What must not be taken, be it free in the bitmap.
    pub(crate) fn busy(&self) -> [Option<&[u8]>; 2] {
        let busy = &self.guarded.busy;
        [busy.running.bits.as_deref(), busy.closed.bits.as_deref()]
    }

    /// Counts blocks as free that must not be taken before a checkpoint is durable.
    pub(crate) fn make_busy(&mut self, range: Range<u32>, bitmap_bytes: usize) {
        self.guarded.busy.running.add(range.clone(), bitmap_bytes);
        self.freed.push(range);
    }

    /// The group's block bitmap, made first if the group never had one.
    pub(crate) fn block_bitmap(
        &mut self,
        volume: &Volume,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<BufferId> {
        let desc = &mut self.guarded.state.desc;
        let tag = Kind::BlockBitmap.of_group(self.group.0);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return txn.buffer(desc.block_bitmap.0, tag);
        }
        let id = txn.create(desc.block_bitmap.0, tag)?;
        initial_block_bitmap(volume, self.group, desc, txn.edit(id, 0..volume.block_size()));
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        Ok(id)
    }

    /// The group's block bitmap as it is, or as it would be made.
    pub(crate) fn copy_block_bitmap(
        &self,
        volume: &Volume,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<Box<[u8]>> {
        let desc = &self.guarded.state.desc;
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bytes: Box<[u8]> = vec![0; volume.block_size()].into();
            initial_block_bitmap(volume, self.group, desc, &mut bytes);
            return Ok(bytes);
        }
        let id = txn.buffer(desc.block_bitmap.0, Kind::BlockBitmap.of_group(self.group.0))?;
        Ok(txn.data(id).into())
    }

    /// The group's inode bitmap, made first if the group never had one.
    pub(crate) fn inode_bitmap(
        &mut self,
        volume: &Volume,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<BufferId> {
        let desc = &mut self.guarded.state.desc;
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
            self.guarded.state = self.saved;
            for range in self.freed.drain(..) {
                self.guarded.busy.running.remove(range);
            }
        }
    }
}

/// Sets the bits, in a bitmap of zeros, of a group that never had one.
fn initial_block_bitmap(volume: &Volume, group: Group, desc: &GroupDescriptor, bytes: &mut [u8]) {
    for range in metadata_bits(volume, group, desc) {
        bitmap::set(bytes, 0, range);
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
