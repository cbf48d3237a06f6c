//! Freeing inodes, and checking whether an inode is in use.

use engine::Corruption;
use operations::Outcome;
use operations::RunOperations;
use vfs::{Ino, Result};

use super::InodeBlock;
use super::chunk::damage;
use crate::XfsCore;
use crate::alloc::ags::AgTree;
use crate::alloc::{HeldAg, RmapOwner};
use crate::btree::Seek;
use crate::btree::records::{FinoTree, InoTree, InodeChunk};
use crate::format::address::{AgBlock, AgIno};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;
use crate::quota::Account;

impl XfsCore {
    /// Returns whether an inode number is in use. The number may come from anywhere. Only the inode tree is
    /// authoritative: a free inode's slot may contain anything.
    ///
    /// # Errors
    /// If the tree is damaged or cannot be read.
    pub(crate) fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let Some((ag, ag_ino)) = self.volume.geometry.split_ino(ino) else { return Ok(false) };
        self.atomically(|op| {
            let chunk = op.ag(ag)?.cursor::<InoTree>().seek(ag_ino, Seek::AtMost)?;
            let bit = chunk.and_then(|chunk| Some((chunk, chunk.bit(ag_ino)?)));
            Ok(bit.is_some_and(|(chunk, bit)| chunk.free & bit == 0))
        })
    }
}

impl Op<'_> {
    /// Frees an inode, and its chunk if no other inode of that is in use.
    pub(crate) fn finish_free_inode(&mut self, mut handle: Handle) -> Outcome<()> {
        let Some((ag, ag_ino)) = self.fs.volume.geometry.split_ino(handle.ino()) else {
            return Err(handle.corrupt("inode", "an invalid inode number").into());
        };
        self.unstage(handle.ino());
        let account = if self.usage.quotas().is_some() { self.account(&handle)? } else { None };
        let known = self.inode_blocks.len();
        if self.ag(ag)?.free_inode(&handle, ag_ino)? {
            for at in known..self.inode_blocks.len() {
                if let Some(place) = self.inode_blocks.gone_at(at) {
                    self.unstage_block(place);
                }
            }
            self.usage.note(handle.ino(), (account, None), 0, None);
            return Ok(());
        }
        handle.inode.clear();
        self.stage(handle);
        Ok(())
    }

    /// Returns the account of an inode as in its block.
    fn account(&mut self, handle: &Handle) -> Outcome<Option<Account>> {
        let slot = handle.offset..handle.offset + self.fs.volume.geometry.inode_size();
        let tag = BlockKind::Inodes.plain();
        // Not held, as in `new_handle`.
        if self.txn.holds(handle.block.0) {
            let id = self.buffer(handle.block, tag)?;
            return Ok(Account::of_slot(&self.txn.data(id)[slot]));
        }
        Ok(Account::of_slot(&self.fs.block(handle.block, tag)?[slot]))
    }
}

impl HeldAg<'_, '_> {
    /// Frees an inode in the trees. Returns whether its whole chunk was freed.
    fn free_inode(&mut self, handle: &Handle, ag_ino: AgIno) -> Outcome<bool> {
        let (frees_chunks, ag) = (self.frees_chunks(), self.guard.group());
        let old = self.chunk_with(ag_ino)?;
        let bit = old.and_then(|old| old.bit(ag_ino));
        let (Some(old), Some(bit)) = (old, bit) else {
            return Err(handle.corrupt("inode tree", "a freed inode is in no chunk").into());
        };
        if old.free & bit != 0 || u32::from(old.freecount) >= old.inodes() {
            return Err(handle.corrupt("inode tree", "a freed inode is already free").into());
        }
        let new = InodeChunk { freecount: old.freecount + 1, free: old.free | bit, ..old };
        if u32::from(new.freecount) == new.inodes()
            && frees_chunks
            && !ag.reserved.has_some_of(old.start)
        {
            self.remove_chunk(old)?;
            return Ok(true);
        }
        self.replace_chunk::<InoTree>(old, new)?;
        self.put_free_chunk(Some(old).filter(|old| old.freecount > 0), new)?;
        self.guard.ifree += 1;
        Ok(false)
    }

    /// Returns whether chunks without an inode in use are freed. They are not if a block has several chunks.
    fn frees_chunks(&self) -> bool {
        1_u32 << self.volume.geometry.inodes_per_block_log() <= INODES_PER_CHUNK
    }

    /// Frees a chunk whose last inode in use is being freed.
    fn remove_chunk(&mut self, old: InodeChunk) -> Outcome<()> {
        let geometry = self.volume.geometry;
        let ag = self.number();
        self.take_chunk_out::<InoTree>(old)?;
        if self.has_tree(AgTree::Fino) && old.freecount > 0 {
            self.take_chunk_out::<FinoTree>(old)?;
        }
        self.count_gone(old)?;
        for (first, inodes) in old.pieces() {
            let (start, offset) = geometry.inode_place(AgIno(old.start.0.saturating_add(first)));
            let blocks = inodes >> geometry.inodes_per_block_log();
            if offset != 0 || blocks << geometry.inodes_per_block_log() != inodes {
                return Err(damage(ag, old, "a hole that is not a multiple of a block").into());
            }
            if !geometry.contains(geometry.fs_block(ag, start), blocks.into()) {
                return Err(damage(ag, old, "it is outside the group").into());
            }
            for at in 0..blocks {
                let place = geometry.block_of(ag, AgBlock(start.0 + at));
                self.inode_blocks.push(InodeBlock::Gone(place));
                self.txn.forget(place.0);
            }
            self.free_in(start, blocks, RmapOwner::Inodes)?;
        }
        Ok(())
    }

    fn count_gone(&mut self, old: InodeChunk) -> Outcome<()> {
        let ag = self.number();
        let state = &mut *self.guard;
        let icount = state.icount.checked_sub(old.inodes());
        let ifree = state.ifree.checked_sub(old.freecount.into());
        let (Some(icount), Some(ifree)) = (icount, ifree) else {
            let damage = Corruption::new("AGI", "it counts fewer inodes than in a chunk");
            return Err(damage.in_group(ag.0.into()).into());
        };
        (state.icount, state.ifree) = (icount, ifree);
        if state.newino == old.start.0 {
            state.newino = AgIno::NULL.0;
        }
        Ok(())
    }
}
