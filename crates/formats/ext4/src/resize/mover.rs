//! Moves everything in use below a new end, in steps. Each step is one commit and leaves a valid image of the old size.
//!
//! Data is copied to free blocks first. Blocks released in a step can be reused only after it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, is_zero};
use vfs::{Corruption, Error, Ino, Result};
use zerocopy::IntoBytes;

use super::commit::{Commits, too_many};
use super::draft::{ChangedBlocks, Draft};
use super::groups::{DescriptorTable, count_free};
use crate::alloc::bitmap::{self, Bits, find_free_run};
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, Inode};
use crate::params::Params;

/// Maximum number of clusters of one allocation.
const RUN_CLUSTERS_MAX: u64 = 4096;
/// Maximum number of blocks of a step if no journal limits it.
const STEP_BLOCKS_MAX: usize = 4096;
/// Size of one copy in bytes.
const COPY_BYTES: usize = 256 << 10;
/// Number of inode table blocks read at once.
const WINDOW_BLOCKS: u64 = 64;

/// Cached part of the inode tables, for inodes in ascending order.
#[derive(Default)]
struct Window {
    first: u64,
    bytes: Vec<u8>,
}

/// Numbers of moved objects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovedCounts {
    /// Inodes with new numbers.
    pub(super) inodes: u64,
    /// Files with moved blocks.
    pub(super) files: u64,
}

/// State of moving a file system below a new end.
pub(super) struct Mover {
    device: Arc<dyn BlockDevice>,
    /// Current parameters.
    pub(super) params: Params,
    /// Target parameters.
    pub(super) new: Params,
    pub(super) groups: DescriptorTable,
    pub(super) draft: Draft,
    /// Block bitmaps read so far, as they are after this step, except for the blocks that it releases.
    bitmaps: BTreeMap<u32, Vec<u8>>,
    dirty: BTreeSet<u32>,
    /// Clusters released in this step.
    freed: Vec<Range<u64>>,
    /// Groups of these clusters.
    freed_in: BTreeSet<u32>,
    /// Cluster from which to search for free ones.
    next: u64,
    /// Free clusters below the new end, without those released in this step; `None` until they are counted.
    free: Option<u64>,
    /// Recently read inode table blocks. Only steps and moves of inode tables change them.
    window: RefCell<Window>,
    /// Buffer for copying.
    copied: RefCell<Vec<u8>>,
    /// Counts of this step. `moved` contains those of the earlier steps.
    pub(super) moving: MovedCounts,
    pub(super) moved: MovedCounts,
    commits: Commits,
    /// Maximum number of blocks of a step; `None` without a journal.
    capacity: Option<usize>,
}

impl Mover {
    pub(super) fn new(device: Arc<dyn BlockDevice>, params: Params, new: Params) -> Result<Self> {
        let draft = Draft::new(device.clone(), params.block_size());
        let groups = DescriptorTable::read(&draft, &params)?;
        let mut commits = Commits::of(device.clone())?;
        let capacity = commits.capacity()?;
        Ok(Self {
            device,
            params,
            new,
            groups,
            draft,
            bitmaps: BTreeMap::new(),
            dirty: BTreeSet::new(),
            freed: Vec::new(),
            freed_in: BTreeSet::new(),
            next: 0,
            free: None,
            window: RefCell::default(),
            copied: RefCell::default(),
            moving: MovedCounts::default(),
            moved: MovedCounts::default(),
            commits,
            capacity,
        })
    }

    /// Returns the new end. No block may be in use from there on.
    pub(super) fn end(&self) -> u64 {
        self.new.geometry.blocks_count
    }

    pub(super) fn block_size(&self) -> usize {
        self.params.block_size()
    }

    /// Iterates over the groups that stay.
    pub(super) fn kept(&self) -> impl Iterator<Item = Group> + use<> {
        self.new.geometry.groups()
    }

    fn cluster_of(&self, block: Block) -> u64 {
        block.0 >> self.params.geometry.cluster_blocks_log
    }

    fn block_of(&self, cluster: u64) -> Block {
        Block(cluster << self.params.geometry.cluster_blocks_log)
    }

    /// Returns a group's block bitmap.
    pub(super) fn bitmap(&mut self, group: Group) -> Result<&mut Vec<u8>> {
        let missing = !self.bitmaps.contains_key(&group.0);
        if missing {
            let bits = self.groups.block_bitmap(&self.draft, &self.params, group)?;
            self.bitmaps.insert(group.0, bits);
        }
        Ok(self.bitmaps.entry(group.0).or_default())
    }

    /// Marks a group's bitmap as changed in this step.
    pub(super) fn touch(&mut self, group: Group) {
        self.dirty.insert(group.0);
    }

    /// Allocates up to `wanted` contiguous clusters below the new end.
    ///
    /// # Errors
    /// `NoSpace` if none is free.
    pub(super) fn take(&mut self, wanted: u64) -> Result<Range<u64>> {
        let wanted = wanted.min(RUN_CLUSTERS_MAX) as u32;
        let count = self.new.geometry.groups_count;
        let first = self.new.geometry.group_of(self.block_of(self.next)).0.min(count - 1);
        let mut best: Option<(Group, Range<u32>)> = None;
        for step in 0..=count {
            let group = Group((first + step) % count);
            if self.groups.get(group).free_blocks == 0 && !self.bitmaps.contains_key(&group.0) {
                continue;
            }
            let from = if step == 0 { self.bit_in(group, self.next) } else { 0 };
            let Some(run) = self.find(group, from, wanted)? else { continue };
            let len = run.end - run.start;
            if best.as_ref().is_none_or(|(_, best)| len > best.end - best.start) {
                best = Some((group, run));
            }
            if len >= wanted {
                break;
            }
        }
        let (group, run) = best.ok_or(Error::NoSpace)?;
        self.mark(group, run)
    }

    /// Allocates contiguous clusters for `blocks` blocks, in `group` if given.
    ///
    /// # Errors
    /// `NoSpace` if there are none.
    pub(super) fn take_together(&mut self, blocks: u64, group: Option<Group>) -> Result<Block> {
        let wanted = blocks.div_ceil(self.params.geometry.cluster_blocks().into()) as u32;
        let groups: Vec<Group> = group.map_or_else(|| self.kept().collect(), |group| vec![group]);
        for group in groups {
            let found = self.find(group, 0, wanted)?;
            if let Some(run) = found.filter(|run| run.end - run.start >= wanted) {
                let clusters = self.mark(group, run)?;
                return Ok(self.block_of(clusters.start));
            }
        }
        Err(Error::NoSpace)
    }

    fn bit_in(&self, group: Group, cluster: u64) -> u32 {
        let block = self.block_of(cluster);
        if self.params.geometry.group_of(block) == group {
            self.params.geometry.bit_of(block)
        } else {
            0
        }
    }

    fn find(&mut self, group: Group, from: u32, wanted: u32) -> Result<Option<Range<u32>>> {
        let len = self.new.geometry.clusters_in(group);
        let bits = self.bitmap(group)?;
        Ok(find_free_run(Bits::plain(bits), from, len, wanted))
    }

    fn mark(&mut self, group: Group, run: Range<u32>) -> Result<Range<u64>> {
        bitmap::set(self.bitmap(group)?, 0, run.clone());
        self.touch(group);
        self.free = self.free.map(|free| free.saturating_sub((run.end - run.start).into()));
        let geometry = &self.params.geometry;
        let start = self.cluster_of(geometry.first_block(group));
        // Groups start with the first data block, not with block 0.
        let clusters = start + u64::from(run.start)..start + u64::from(run.end);
        self.next = clusters.end;
        Ok(clusters)
    }

    /// Marks clusters of a group as in use.
    pub(super) fn take_bits(&mut self, group: Group, bits: Range<u32>) -> Result<()> {
        bitmap::set(self.bitmap(group)?, 0, bits);
        self.touch(group);
        self.free = None;
        Ok(())
    }

    /// Allocates a block for metadata, with a whole cluster.
    pub(super) fn take_block(&mut self) -> Result<Block> {
        let clusters = self.take(1)?;
        Ok(self.block_of(clusters.start))
    }

    /// Releases the clusters of a run of blocks.
    pub(super) fn give_up(&mut self, start: Block, blocks: u64) {
        let last = Block(start.0 + blocks.max(1) - 1);
        let geometry = &self.params.geometry;
        self.freed_in.extend(geometry.group_of(start).0..=geometry.group_of(last).0);
        self.freed.push(self.cluster_of(start)..self.cluster_of(last) + 1);
    }

    /// Returns a block as it will be after this step.
    pub(super) fn read(&self, block: Block) -> Result<Vec<u8>> {
        self.draft.read(block)
    }

    /// Writes a block that nothing refers to before the end of this step.
    pub(super) fn write_ahead(&self, block: Block, bytes: &[u8]) -> Result<()> {
        let at = self.params.geometry.byte_of(block);
        self.device.write_at(at, bytes).map_err(Error::Device)
    }

    /// Copies file data, as it will be after this step, to blocks that were free before it.
    pub(super) fn copy(&self, from: Block, to: Block, blocks: u64) -> Result<()> {
        self.copy_as_it_is(from, to, blocks)?;
        for (block, bytes) in self.draft.changed(from.0..from.0 + blocks) {
            self.write_ahead(to.plus(block - from.0), bytes)?;
        }
        Ok(())
    }

    fn copy_as_it_is(&self, from: Block, to: Block, blocks: u64) -> Result<()> {
        let geometry = &self.params.geometry;
        let (from, to) = (geometry.byte_of(from), geometry.byte_of(to));
        let len = blocks << geometry.block_size_log;
        let mut bytes = self.copied.borrow_mut();
        let at_once = (len as usize).min(COPY_BYTES);
        if bytes.len() < at_once {
            bytes.resize(at_once, 0);
        }
        let mut done = 0;
        while done < len {
            let count = ((len - done) as usize).min(COPY_BYTES);
            let piece = &mut bytes[..count];
            self.device.read_at(from + done, piece).map_err(Error::Device)?;
            let written = if is_zero(piece) {
                self.device.zero_range(to + done, count as u64)
            } else {
                self.device.write_at(to + done, piece)
            };
            written.map_err(Error::Device)?;
            done += count as u64;
        }
        Ok(())
    }

    /// Clears free blocks.
    pub(super) fn clear(&self, start: Block, blocks: u64) -> Result<()> {
        let geometry = &self.params.geometry;
        let (at, len) = (geometry.byte_of(start), blocks << geometry.block_size_log);
        self.device.zero_range(at, len).map_err(Error::Device)
    }

    /// Returns the slot of an inode.
    pub(super) fn slot(&self, ino: u32) -> Result<Vec<u8>> {
        let (block, offset) = self.slot_place(ino)?;
        let range = offset..offset + usize::from(self.params.geometry.inode_size);
        if let Some((_, bytes)) = self.draft.changed(block.0..block.0 + 1).next() {
            return Ok(bytes[range].to_vec());
        }
        let mut window = self.window.borrow_mut();
        let start = block.0 - block.0 % WINDOW_BLOCKS;
        let end = (start + WINDOW_BLOCKS).min(self.params.geometry.blocks_count);
        if window.bytes.is_empty() || window.first != start {
            *window = Window { first: start, bytes: self.draft.read_run(start..end)? };
        }
        let at = (block.0 - start) as usize * self.block_size();
        Ok(window.bytes[at + range.start..at + range.end].to_vec())
    }

    /// Drops the cached inode table blocks, because they change.
    pub(super) fn forget_tables(&mut self) {
        self.window.get_mut().bytes.clear();
    }

    fn slot_place(&self, ino: u32) -> Result<(Block, usize)> {
        let geometry = &self.params.geometry;
        let place = geometry.place_of(Ino(ino.into()));
        let (group, index) =
            place.ok_or_else(|| Corruption::new("inode", "no such inode").of_inode(ino.into()))?;
        Ok(geometry.inode_position(self.groups.get(group).inode_table, index))
    }

    /// Writes the slot of an inode with its checksum.
    pub(super) fn put_slot(&mut self, ino: u32, mut slot: Vec<u8>) -> Result<()> {
        let (block, offset) = self.slot_place(ino)?;
        if let Some(seed) = self.seed(ino, Inode::from_slot(&slot).generation()) {
            inode::seal_slot(seed, &mut slot);
        }
        self.draft.edit(block, offset, &slot)
    }

    /// Returns the checksum seed of an inode and its blocks, if there are checksums.
    pub(super) fn seed(&self, ino: u32, generation: u32) -> Option<u32> {
        let seed = || inode_seed(self.params.sb.checksum_seed, Ino(ino.into()), generation);
        self.params.checksums.then(seed)
    }

    /// Returns the minimum number of blocks that this step changes.
    pub(super) fn pending(&self) -> usize {
        // Each group has a bitmap and a descriptor block; one more for the superblock.
        self.draft.len() + 2 * (self.dirty.len() + self.freed_in.len()) + 1
    }

    /// Returns whether this step has room for `more` blocks.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.pending() + more <= self.capacity.unwrap_or(STEP_BLOCKS_MAX)
    }

    /// Ends the step if it has no room for `more` blocks.
    ///
    /// # Errors
    /// Like [`Self::end_step`]; `Unsupported` if no step has enough room.
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        if !self.has_room(more) {
            self.end_step()?;
            if !self.has_room(more) && self.capacity.is_some() {
                self.enlarge_journal(self.pending() + more)?;
            }
            if let Some(capacity) = self.capacity.filter(|_| !self.has_room(more)) {
                return Err(too_many(self.pending() + more, capacity));
            }
        }
        Ok(())
    }

    /// Ends the step if fewer than `clusters` clusters below the new end are free. Those that the step releases are
    /// free afterwards.
    ///
    /// # Errors
    /// Like [`Self::end_step`].
    pub(super) fn make_space(&mut self, clusters: u64) -> Result<()> {
        if self.freed.is_empty() || self.free_below_end()? >= clusters {
            return Ok(());
        }
        self.end_step()
    }

    fn free_below_end(&mut self) -> Result<u64> {
        if let Some(free) = self.free {
            return Ok(free);
        }
        let mut free = 0;
        for group in self.kept() {
            let len = self.new.geometry.clusters_in(group);
            let is_cut = len < self.params.geometry.clusters_in(group);
            free += u64::from(if is_cut || self.bitmaps.contains_key(&group.0) {
                count_free(self.bitmap(group)?, len)
            } else {
                self.groups.get(group).free_blocks
            });
        }
        self.free = Some(free);
        Ok(free)
    }

    /// Updates the maximum number of blocks of a step after the journal was replaced.
    ///
    /// # Errors
    /// `Unsupported` if the journal cannot be written to.
    pub(super) fn learn_capacity(&mut self) -> Result<()> {
        self.capacity = self.commits.capacity()?;
        Ok(())
    }

    /// Commits the changes since the last step.
    ///
    /// # Errors
    /// If the device fails; `Unsupported` if the journal does not have enough room.
    pub(super) fn end_step(&mut self) -> Result<()> {
        let Some(blocks) = self.finish_step()? else { return Ok(()) };
        self.commits.commit(&blocks)?;
        self.count_moved();
        Ok(())
    }

    /// Like [`Self::end_step`], for the step that moves the journal, whose inode is `ino`.
    pub(super) fn end_step_with_journal(&mut self, ino: u32) -> Result<()> {
        let (place, _) = self.slot_place(ino)?;
        let Some(blocks) = self.finish_step()? else { return Ok(()) };
        self.commits.commit_journal_move(&blocks, place)?;
        self.count_moved();
        Ok(())
    }

    /// Adds this step's counts to the total.
    fn count_moved(&mut self) {
        let MovedCounts { inodes, files } = std::mem::take(&mut self.moving);
        self.moved.inodes += inodes;
        self.moved.files += files;
    }

    /// Closes the commits. Changes that were not committed are discarded.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn close(mut self) -> Result<()> {
        self.commits.close()
    }

    fn finish_step(&mut self) -> Result<Option<ChangedBlocks>> {
        self.freed_in.clear();
        self.free = None;
        for clusters in std::mem::take(&mut self.freed) {
            for cluster in clusters {
                let block = self.block_of(cluster);
                let group = self.params.geometry.group_of(block);
                let bit = self.params.geometry.bit_of(block);
                bitmap::clear(self.bitmap(group)?, 0, bit..bit + 1);
                self.touch(group);
            }
        }
        for group in std::mem::take(&mut self.dirty).into_iter().map(Group) {
            let bits = self.bitmap(group)?.clone();
            self.groups.put_block_bitmap(&mut self.draft, &self.params, group, bits)?;
        }
        if self.draft.len() == 0 {
            return Ok(None);
        }
        self.groups.put_table(&mut self.draft, &self.params)?;
        let (clusters, inodes) = self.groups.totals();
        let mut raw = self.params.sb.raw.clone();
        self.params.set_counts(&mut raw, clusters, inodes);
        raw.seal();
        let (place, range) = self.params.superblock_place();
        self.draft.edit(place, range.start, raw.as_bytes())?;
        // Copied data must be durable before anything refers to it.
        self.device.flush().map_err(Error::Device)?;
        self.forget_tables();
        Ok(Some(self.draft.take()))
    }
}
