//! Moving what is in use below a new end, in steps: each is one commit, and leaves a sound image of the old size.
//!
//! Contents are copied into free blocks first. What was given up in a step is free for others only after it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use blockdev::{BlockDevice, is_zero};
use vfs::{Corruption, Error, Ino, Result};
use zerocopy::IntoBytes;

use super::commit::{Commits, too_many};
use super::draft::{Blocks, Draft};
use super::groups::Groups;
use crate::alloc::bitmap::{self, Bits, find_free_run};
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, Inode};
use crate::params::Params;

/// Most clusters that are taken at once.
const RUN_CLUSTERS_MAX: u64 = 4096;
/// Most blocks of a step where no journal sets a limit.
const STEP_BLOCKS_MAX: usize = 4096;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 256 << 10;
/// Blocks of inode tables that are read at once.
const WINDOW_BLOCKS: u64 = 64;

/// A part of the device as it was read, for inodes in order.
#[derive(Default)]
struct Window {
    first: u64,
    bytes: Vec<u8>,
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Inodes that got another number.
    pub(super) inodes: u64,
    /// Files of which blocks were moved.
    pub(super) files: u64,
}

/// A file system that is being moved below a new end.
pub(super) struct Mover {
    device: Arc<dyn BlockDevice>,
    /// As it is.
    pub(super) params: Params,
    /// As it will be.
    pub(super) new: Params,
    pub(super) groups: Groups,
    pub(super) draft: Draft,
    /// Bitmaps of blocks that were looked at, as they are after this step but for what it gives up.
    bitmaps: BTreeMap<u32, Vec<u8>>,
    dirty: BTreeSet<u32>,
    /// Clusters given up in this step.
    freed: Vec<Range<u64>>,
    /// Groups of these.
    freed_in: BTreeSet<u32>,
    /// The cluster from which on to look for free ones.
    next: u64,
    /// Where inodes were read last. Only steps change inode tables, and moves of these.
    window: RefCell<Window>,
    /// Room for what is copied.
    copied: RefCell<Vec<u8>>,
    /// What was moved in this step, and in those before.
    pub(super) moving: Counts,
    pub(super) moved: Counts,
    commits: Commits,
    /// Blocks that a step may change.
    capacity: Option<usize>,
}

impl Mover {
    pub(super) fn new(device: Arc<dyn BlockDevice>, params: Params, new: Params) -> Result<Self> {
        let draft = Draft::new(device.clone(), params.block_size());
        let groups = Groups::read(&draft, &params)?;
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
            window: RefCell::default(),
            copied: RefCell::default(),
            moving: Counts::default(),
            moved: Counts::default(),
            commits,
            capacity,
        })
    }

    /// The block from which on nothing may be.
    pub(super) fn end(&self) -> u64 {
        self.new.geometry.blocks_count
    }

    pub(super) fn block_size(&self) -> usize {
        self.params.block_size()
    }

    /// Groups that stay.
    pub(super) fn kept(&self) -> impl Iterator<Item = Group> + use<> {
        self.new.geometry.groups()
    }

    fn cluster_of(&self, block: Block) -> u64 {
        block.0 >> self.params.geometry.cluster_blocks_log
    }

    fn block_of(&self, cluster: u64) -> Block {
        Block(cluster << self.params.geometry.cluster_blocks_log)
    }

    /// The bitmap of a group's blocks.
    pub(super) fn bitmap(&mut self, group: Group) -> Result<&mut Vec<u8>> {
        let missing = !self.bitmaps.contains_key(&group.0);
        if missing {
            let bits = self.groups.block_bitmap(&self.draft, &self.params, group)?;
            self.bitmaps.insert(group.0, bits);
        }
        Ok(self.bitmaps.entry(group.0).or_default())
    }

    /// Says that a group's bitmap has to be written with this step.
    pub(super) fn touch(&mut self, group: Group) {
        self.dirty.insert(group.0);
    }

    /// Takes up to `wanted` clusters below the new end that lie together, as many as can be had.
    ///
    /// # Errors
    /// `NoSpace` if there are none.
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

    /// Takes clusters for `blocks` blocks that lie together, in `group` if it is given.
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
        Ok(())
    }

    /// A free block for metadata: a cluster of its own.
    pub(super) fn take_block(&mut self) -> Result<Block> {
        let clusters = self.take(1)?;
        Ok(self.block_of(clusters.start))
    }

    /// Gives up the clusters that blocks lie in.
    pub(super) fn give_up(&mut self, start: Block, blocks: u64) {
        let last = Block(start.0 + blocks.max(1) - 1);
        let geometry = &self.params.geometry;
        self.freed_in.extend(geometry.group_of(start).0..=geometry.group_of(last).0);
        self.freed.push(self.cluster_of(start)..self.cluster_of(last) + 1);
    }

    /// A block as it will be after this step.
    pub(super) fn read(&self, block: Block) -> Result<Vec<u8>> {
        self.draft.read(block)
    }

    /// Writes a block that nothing leads to before this step is done.
    pub(super) fn write_ahead(&self, block: Block, bytes: &[u8]) -> Result<()> {
        let at = self.params.geometry.byte_of(block);
        self.device.write_at(at, bytes).map_err(Error::Device)
    }

    /// Copies contents of files, as they will be after this step, into blocks that are free before it.
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

    /// Makes free blocks read as zeros.
    pub(super) fn clear(&self, start: Block, blocks: u64) -> Result<()> {
        let geometry = &self.params.geometry;
        let (at, len) = (geometry.byte_of(start), blocks << geometry.block_size_log);
        self.device.zero_range(at, len).map_err(Error::Device)
    }

    /// The slot of an inode.
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

    /// Forgets what was read of inode tables, because they change.
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

    /// Writes the slot of an inode, sealed.
    pub(super) fn put_slot(&mut self, ino: u32, mut slot: Vec<u8>) -> Result<()> {
        let (block, offset) = self.slot_place(ino)?;
        if let Some(seed) = self.seed(ino, Inode::from_slot(&slot).generation()) {
            inode::seal_slot(seed, &mut slot);
        }
        self.draft.edit(block, offset, &slot)
    }

    /// The seed of the checksums of an inode and its blocks, where there are any.
    pub(super) fn seed(&self, ino: u32, generation: u32) -> Option<u32> {
        let seed = || inode_seed(self.params.sb.checksum_seed, Ino(ino.into()), generation);
        self.params.checksums.then(seed)
    }

    /// Blocks that this step changes at least.
    pub(super) fn pending(&self) -> usize {
        // Beside the bitmap of each group, the block of its descriptor; and the superblock.
        self.draft.len() + 2 * (self.dirty.len() + self.freed_in.len()) + 1
    }

    /// Whether there is room for `more` blocks in this step.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.pending() + more <= self.capacity.unwrap_or(STEP_BLOCKS_MAX)
    }

    /// Ends the step if there is no room for `more` blocks in it.
    ///
    /// # Errors
    /// As [`Self::end_step`]; `Unsupported` if no step has room for so many.
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

    /// Reads again how many blocks a step may change, after the journal was replaced.
    ///
    /// # Errors
    /// `Unsupported` if the journal cannot be written to.
    pub(super) fn learn_capacity(&mut self) -> Result<()> {
        self.capacity = self.commits.capacity()?;
        Ok(())
    }

    /// Commits what was changed since the last step.
    ///
    /// # Errors
    /// If the device fails; `Unsupported` if the journal has no room.
    pub(super) fn end_step(&mut self) -> Result<()> {
        let Some(blocks) = self.finish_step()? else { return Ok(()) };
        self.commits.commit(&blocks)?;
        self.count_moved();
        Ok(())
    }

    /// The same for the step that moves the journal, whose inode is `ino`.
    pub(super) fn end_step_with_journal(&mut self, ino: u32) -> Result<()> {
        let (place, _) = self.slot_place(ino)?;
        let Some(blocks) = self.finish_step()? else { return Ok(()) };
        self.commits.commit_journal_move(&blocks, place)?;
        self.count_moved();
        Ok(())
    }

    /// What was moved in this step stays moved.
    fn count_moved(&mut self) {
        let Counts { inodes, files } = std::mem::take(&mut self.moving);
        self.moved.inodes += inodes;
        self.moved.files += files;
    }

    /// Ends the work: what was not committed is left out.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn close(mut self) -> Result<()> {
        self.commits.close()
    }

    fn finish_step(&mut self) -> Result<Option<Blocks>> {
        self.freed_in.clear();
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
        // Contents are there before anything leads to them.
        self.device.flush().map_err(Error::Device)?;
        self.forget_tables();
        Ok(Some(self.draft.take()))
    }
}
