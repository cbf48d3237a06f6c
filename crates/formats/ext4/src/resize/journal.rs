//! Moving the journal, and temporary use of a larger one.
//!
//! Some steps change more blocks than fit into the journal: if a directory gets a new number, the first block of each
//! of its subdirectories changes. A larger journal in free blocks, preferably past the new end, keeps such steps
//! atomic. It replaces the image's own journal in the same way as a move does, and is finally replaced by one of the
//! original length.

use std::ops::Range;

use vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::mover::Mover;
use crate::format::address::{Block, Group};
use crate::format::features::Compat;
use crate::format::indirect::{self, DIRECT_COUNT};
use crate::format::inode::{Inode, flags};
use crate::format::jbd2::RawJournalSuperblock;
use crate::mkfs::mapping::{self, Mapped};
use crate::mkfs::space::Space;

use super::map::How;

/// `s_jnl_backup_type`: the superblock contains the journal's map and size.
const BACKUP_BLOCKS: u8 = 1;
/// Journal blocks per block of a step. A transaction takes at most 7/16 of a journal, a step at most 7/8 of a
/// transaction, and some blocks are descriptors.
const JOURNAL_SHARE: usize = 3;
/// Journal blocks that no step uses.
const JOURNAL_SLACK: usize = 64;
/// Additional journal blocks for longer steps, if there is room past the new end.
const JOURNAL_BONUS: usize = 1024;
/// Maximum length of a temporary journal in blocks. Its transactions must fit into the cache.
const LENT_BLOCKS_MAX: usize = 48 << 10;

impl Mover {
    /// Returns the journal's inode; 0 without a journal.
    pub(super) fn journal(&self) -> u32 {
        let has = self.params.sb.features.compat(Compat::HAS_JOURNAL);
        if has { self.params.sb.raw.journal_inum.get() } else { 0 }
    }

    /// Returns the length of the journal in blocks; 0 if there is none.
    ///
    /// # Errors
    /// If the device fails.
    fn journal_blocks(&self) -> Result<u32> {
        let ino = self.journal();
        if ino == 0 {
            return Ok(0);
        }
        let inode = Inode::from_slot(&self.slot(ino)?);
        Ok((inode.size() >> self.params.geometry.block_size_log) as u32)
    }

    /// Moves the journal below the new end and ends the last step. A temporary journal is replaced by one of
    /// `own_blocks` blocks.
    ///
    /// # Errors
    /// If the device fails; `NoSpace` if it does not fit below the new end.
    pub(super) fn move_journal(&mut self, own_blocks: u32) -> Result<()> {
        let ino = self.journal();
        if ino == 0 {
            return self.end_step();
        }
        if self.journal_blocks()? != own_blocks {
            self.end_step()?;
            let all = u64::from(self.params.geometry.first_data_block)..self.end();
            let is_replaced = self.replace_journal(own_blocks, all)?;
            return if is_replaced { Ok(()) } else { Err(Error::NoSpace) };
        }
        loop {
            self.make_room(16)?;
            let mut slot = self.slot(ino)?;
            let mut inode = Inode::from_slot(&slot);
            // The journal is empty, so only its superblock matters.
            let how = How { zeros_from: 1, ..How::plain(ino) };
            let moved = self.move_file(&mut inode, &how)?;
            if !moved.any {
                return self.end_step();
            }
            put_fields(&mut slot, &inode);
            self.put_slot(ino, slot)?;
            self.note_journal(&inode);
            self.end_step_with_journal(ino)?;
        }
    }

    /// Replaces the journal by a larger one for a step of `step_blocks` blocks, if there are enough free blocks. The
    /// caller has ended the previous step.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn enlarge_journal(&mut self, step_blocks: usize) -> Result<()> {
        let needed = step_blocks.saturating_mul(JOURNAL_SHARE).saturating_add(JOURNAL_SLACK);
        let is_possible = self.journal() != 0 && self.params.geometry.cluster_blocks() == 1;
        if !is_possible || needed > LENT_BLOCKS_MAX {
            return Ok(());
        }
        let (end, all) = (self.end(), self.params.geometry.blocks_count);
        let wanted = (needed + JOURNAL_BONUS).min(LENT_BLOCKS_MAX) as u32;
        let needed = needed as u32;
        // Blocks below the new end are used last, because the files past it move there.
        let _ = self.replace_journal(wanted, end..all)?
            || self.replace_journal(needed, end..all)?
            || self.replace_journal(needed, 0..all)?;
        self.learn_capacity()
    }

    /// Replaces the journal by an empty one of `len` blocks, in one step. Returns `false` if `within` has no room for
    /// it.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn replace_journal(&mut self, len: u32, within: Range<u64>) -> Result<bool> {
        let ino = self.journal();
        let mut slot = self.slot(ino)?;
        let mut inode = Inode::from_slot(&slot);
        let is_extents = inode.has_flag(flags::EXTENTS);
        let Some(mapped) = self.map_journal(ino, &inode, len, within)? else { return Ok(false) };
        let Some(old_first) = self.place(&inode, 0)? else { return Ok(false) };
        let mut superblock = self.read(old_first)?;
        let mut raw = RawJournalSuperblock::parse(&superblock)?;
        raw.maxlen = len.into();
        raw.seal();
        superblock[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        for run in self.blocks_of(&inode)? {
            self.give_up(Block(run.start), run.end - run.start);
        }
        self.write_journal(&mapped, &superblock)?;
        let geometry = &self.params.geometry;
        let block_size = geometry.block_size();
        inode.set_size(u64::from(len) << geometry.block_size_log);
        let blocks = mapped.total(geometry.cluster_blocks().into());
        inode.set_blocks_512(blocks * u64::from(block_size / 512), block_size);
        inode.set_flag(flags::EXTENTS, is_extents);
        *inode.i_block_mut() = mapped.i_block;
        put_fields(&mut slot, &inode);
        self.put_slot(ino, slot)?;
        self.note_journal(&inode);
        self.end_step_with_journal(ino)?;
        Ok(true)
    }

    fn map_journal(
        &mut self,
        ino: u32,
        inode: &Inode,
        blocks: u32,
        within: Range<u64>,
    ) -> Result<Option<Mapped>> {
        let mut space = self.free_space(within.clone())?;
        let goal = if within.contains(&self.end()) { self.end() } else { within.start };
        let (len, block_size) = (u64::from(blocks), self.block_size());
        Ok(if inode.has_flag(flags::EXTENTS) {
            let seed = self.seed(ino, inode.generation());
            mapping::extents(&mut space, goal, len, block_size, seed)
        } else {
            mapping::block_map(&mut space, goal, len, block_size)
        })
    }

    /// Writes a journal that nothing refers to yet: its superblock and zeros, so that no old transaction is found.
    fn write_journal(&mut self, mapped: &Mapped, superblock: &[u8]) -> Result<()> {
        for run in &mapped.data {
            self.clear(Block(run.start), run.end - run.start)?;
            self.take_blocks(run.clone())?;
        }
        for (place, bytes) in &mapped.index {
            self.write_ahead(*place, bytes)?;
            self.take_blocks(place.0..place.0 + 1)?;
        }
        let first = mapped.blocks().next().unwrap_or_default();
        self.write_ahead(first, superblock)
    }

    /// Updates the copy of the journal's map in the superblock.
    fn note_journal(&mut self, inode: &Inode) {
        let raw = &mut self.params.sb.raw;
        if raw.jnl_backup_type != BACKUP_BLOCKS {
            return;
        }
        for (to, from) in raw.jnl_blocks.iter_mut().zip(inode.i_block().chunks_exact(4)) {
            *to = u32::from_le_bytes([from[0], from[1], from[2], from[3]]).into();
        }
        (raw.jnl_blocks[16], raw.jnl_blocks[15]) =
            ((inode.size() as u32).into(), ((inode.size() >> 32) as u32).into());
    }

    /// Returns the space in `within` that was already free before this step.
    fn free_space(&mut self, within: Range<u64>) -> Result<Space> {
        let geometry = self.params.geometry;
        let within = within.start.max(geometry.first_data_block.into())..within.end;
        let mut space = Space::new(within.clone());
        for group in geometry.groups() {
            let start = geometry.first_block(group).0;
            let end = start + u64::from(geometry.blocks_in(group));
            if end <= within.start || start >= within.end {
                continue;
            }
            let bits = self.bitmap(group)?;
            let is_used = |block: u64| {
                let bit = (block - start) as usize;
                bits[bit / 8] >> (bit % 8) & 1 == 1
            };
            let mut used = None;
            for block in start.max(within.start)..end.min(within.end) {
                match (is_used(block), used) {
                    (true, None) => used = Some(block),
                    (false, Some(first)) => {
                        space.take(first..block);
                        used = None;
                    }
                    _ => {}
                }
            }
            if let Some(first) = used {
                space.take(first..end.min(within.end));
            }
        }
        Ok(space)
    }

    /// Marks blocks as in use.
    fn take_blocks(&mut self, blocks: Range<u64>) -> Result<()> {
        let geometry = self.params.geometry;
        let mut start = blocks.start;
        while start < blocks.end {
            let group: Group = geometry.group_of(Block(start));
            let group_end = geometry.first_block(group).0 + u64::from(geometry.blocks_in(group));
            let end = blocks.end.min(group_end);
            let bit = geometry.bit_of(Block(start));
            self.take_bits(group, bit..bit + (end - start) as u32)?;
            start = end;
        }
        Ok(())
    }

    /// Returns the blocks of a file, including its map blocks.
    fn blocks_of(&self, inode: &Inode) -> Result<Vec<Range<u64>>> {
        let mut runs = Vec::new();
        if inode.has_flag(flags::EXTENTS) {
            let tree = self.tree(&inode.i_block()[..])?;
            runs.extend(tree.nodes.iter().map(|node| node.0..node.0 + 1));
            let extents = tree.extents.iter();
            runs.extend(extents.map(|e| e.start.0..e.start.0 + u64::from(e.len)));
            return Ok(runs);
        }
        for at in 0..DIRECT_COUNT + 3 {
            let levels = (at + 1).saturating_sub(DIRECT_COUNT);
            self.add_pointer(inode.i_block(), at as u16, levels, &mut runs)?;
        }
        Ok(runs)
    }

    fn add_pointer(
        &self,
        pointers: &[u8],
        at: u16,
        levels: u32,
        runs: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let Some(block) = indirect::pointer(pointers, at) else { return Ok(()) };
        match runs.last_mut() {
            Some(last) if last.end == block.0 => last.end += 1,
            _ => runs.push(block.0..block.0 + 1),
        }
        if levels > 0 {
            let below = self.read(block)?;
            for at in 0..(self.block_size() / 4) as u16 {
                self.add_pointer(&below, at, levels - 1, runs)?;
            }
        }
        Ok(())
    }
}

/// Writes the fixed fields of an inode to its slot.
fn put_fields(slot: &mut [u8], inode: &Inode) {
    let count = inode.as_bytes().len().min(slot.len());
    slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
}
