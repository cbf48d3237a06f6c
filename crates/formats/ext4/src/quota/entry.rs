//! Adding an id to a quota file.

use engine::BufferId;
use operations::Outcome;
use operations::RunOperations;
use vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::load::place_of;
use super::{Dquot, DquotLocation, Quota};
use crate::Ext4Core;
use crate::format::address::FileBlock;
use crate::format::quota::{
    BLOCK_SIZE, BLOCK_SIZE_LOG, DiskQuota, ENTRIES_PER_BLOCK, HEADER_RANGE, INFO_BLOCK, INFO_RANGE,
    Info, LeafHeader, QuotaKind, ROOT_BLOCK, TREE_DEPTH, entry_at, entry_range, leaf_header,
    reference_range,
};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::{Want, Was};
use crate::op::Op;

/// A quota file to which an operation adds an id.
struct Growing<'r, 'op> {
    op: &'r mut Op<'op>,
    file: Handle,
    info: Info,
}

impl Ext4Core {
    /// Adds an entry for an id without limits or usage, in a separate operation, unless there is one.
    pub(super) fn add_entry(&self, quota: &Quota, number: usize, id: u32) -> Result<()> {
        let (Some(ino), kind) = (quota.files[number], QuotaKind::ALL[number]) else {
            return Ok(());
        };
        let _growth = quota.growth.lock();
        if quota.has(number, id) {
            return Ok(());
        }
        let (before, info) = self.load_quota_file(ino, kind)?;
        let place = self.atomically(|op| {
            let mut growing = Growing { op, file: before, info };
            let place = growing.enter(id)?;
            growing.store_info()?;
            let Growing { op, file, .. } = growing;
            op.stage_if_changed(file, &before);
            Ok(place)
        })?;
        let usage = Dquot { inodes: 0, space: 0, place, is_dirty: false };
        quota.ledger.lock().usage[number].insert(id, usage);
        Ok(())
    }
}

impl Growing<'_, '_> {
    fn corrupt(&self, problem: &'static str) -> Error {
        self.file.corrupt("quota file", problem)
    }

    /// Holds a block of the file. Returns its buffer and its offset there.
    fn block(&mut self, block: u32) -> Result<(BufferId, usize)> {
        let place = place_of(&mut *self.op, &self.file, block)?;
        Ok((self.op.buffer(place.block, BlockKind::Quota.plain())?, place.offset))
    }

    /// Holds a block that another block of the file refers to.
    fn referred(&mut self, block: u32) -> Result<(BufferId, usize)> {
        if block <= ROOT_BLOCK || block >= self.info.blocks.get() {
            return Err(self.corrupt("a pointer is outside the file"));
        }
        self.block(block)
    }

    fn store_info(&mut self) -> Result<()> {
        let (id, at) = self.block(INFO_BLOCK)?;
        let range = at + INFO_RANGE.start..at + INFO_RANGE.end;
        self.op.txn.edit(id, range).copy_from_slice(self.info.as_bytes());
        Ok(())
    }

    /// Adds an entry and the missing nodes above it. Returns its position.
    fn enter(&mut self, id: u32) -> Outcome<DquotLocation> {
        let mut node = self.block(ROOT_BLOCK)?;
        for level in 0..TREE_DEPTH - 1 {
            let (buffer, at) = node;
            let range = reference_range(level, id);
            let range = at + range.start..at + range.end;
            let next = self.reference(buffer, range.clone());
            if next != 0 {
                node = self.referred(next)?;
                continue;
            }
            let next = self.new_block()?;
            self.op.txn.edit(buffer, range).copy_from_slice(&next.to_le_bytes());
            node = self.block(next)?;
        }
        let (buffer, at) = node;
        let range = reference_range(TREE_DEPTH - 1, id);
        let range = at + range.start..at + range.end;
        if self.reference(buffer, range.clone()) != 0 {
            return Err(self.corrupt("it has an unexpected entry").into());
        }
        let (leaf, place) = self.enter_into_leaf(id)?;
        self.op.txn.edit(buffer, range).copy_from_slice(&leaf.to_le_bytes());
        Ok(place)
    }

    fn reference(&self, buffer: BufferId, range: std::ops::Range<usize>) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.op.txn.data(buffer)[range]);
        u32::from_le_bytes(bytes)
    }

    /// Writes an entry to a leaf that has room. Returns the leaf and the entry's position.
    fn enter_into_leaf(&mut self, id: u32) -> Outcome<(u32, DquotLocation)> {
        if self.info.free_leaf.get() == 0 {
            self.info.free_leaf = self.new_block()?.into();
        }
        let leaf = self.info.free_leaf.get();
        let (buffer, at) = self.referred(leaf)?;
        let bytes = &self.op.txn.data(buffer)[at..at + BLOCK_SIZE];
        let mut header = leaf_header(bytes);
        let is_free = |&index: &usize| entry_at(bytes, index).is_some_and(|e| e.is_none());
        let Some(index) = (0..ENTRIES_PER_BLOCK).find(is_free) else {
            return Err(self
                .corrupt("a leaf in the list of leaves with free entries is full")
                .into());
        };
        let count = header.entries.get().saturating_add(1);
        header.entries = count.into();
        if usize::from(count) >= ENTRIES_PER_BLOCK {
            self.unlist(&mut header)?;
        }
        let range = at + HEADER_RANGE.start..at + HEADER_RANGE.end;
        self.op.txn.edit(buffer, range).copy_from_slice(header.as_bytes());
        let range = entry_range(index);
        let range = at + range.start..at + range.end;
        let offset = range.start;
        let entry = DiskQuota::new(id).stored();
        self.op.txn.edit(buffer, range).copy_from_slice(entry.as_bytes());
        Ok((leaf, DquotLocation { block: self.op.block_of(buffer), offset }))
    }

    /// Removes the first leaf from the list of leaves with room.
    fn unlist(&mut self, header: &mut LeafHeader) -> Result<()> {
        let next = header.next_free.get();
        if next != 0 {
            let (buffer, at) = self.referred(next)?;
            let mut second = leaf_header(&self.op.txn.data(buffer)[at..]);
            second.prev_free = 0.into();
            let range = at + HEADER_RANGE.start..at + HEADER_RANGE.end;
            self.op.txn.edit(buffer, range).copy_from_slice(second.as_bytes());
        }
        self.info.free_leaf = next.into();
        (header.next_free, header.prev_free) = (0.into(), 0.into());
        Ok(())
    }

    /// Returns a zeroed block: a free one, or a new one at the end of the file.
    fn new_block(&mut self) -> Outcome<u32> {
        let free = self.info.free_block.get();
        if free != 0 {
            let (buffer, at) = self.referred(free)?;
            let bytes = &self.op.txn.data(buffer)[at..];
            self.info.free_block = leaf_header(bytes).next_free;
            self.op.txn.edit(buffer, at..at + BLOCK_SIZE).fill(0);
            return Ok(free);
        }
        let block = self.info.blocks.get();
        let count = block.checked_add(1).ok_or(Error::FileTooLarge)?;
        let end = u64::from(count) << BLOCK_SIZE_LOG;
        let log = self.op.fs.volume.geometry.block_size_log;
        let at = u32::try_from((u64::from(block) << BLOCK_SIZE_LOG) >> log);
        let at = at.map_err(|_| Error::FileTooLarge)?;
        let piece = self.op.provide(&mut self.file, FileBlock(at), at + 1, Want::Written)?;
        if piece.was != Was::Written {
            self.op.txn.create(piece.start.0, BlockKind::Quota.plain())?;
        }
        self.info.blocks = count.into();
        self.file.inode.set_size(self.file.inode.size().max(end));
        let (buffer, at) = self.block(block)?;
        self.op.txn.edit(buffer, at..at + BLOCK_SIZE).fill(0);
        Ok(block)
    }
}

impl Op<'_> {
    /// Returns the device block of a held buffer.
    fn block_of(&self, id: BufferId) -> crate::format::address::Block {
        crate::format::address::Block(self.txn.block(id))
    }
}
