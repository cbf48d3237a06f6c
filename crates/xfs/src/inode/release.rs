//! Giving inodes back, and telling those in use from those that are free.

use transaction::Corruption;
use vfs::{Ino, Result};

use super::InodeBlock;
use super::chunk::damage;
use crate::Xfs;
use crate::alloc::Owner;
use crate::alloc::ags::AgTree;
use crate::btree::records::{FinoTree, InoTree, InodeChunk};
use crate::btree::{Cursor, Seek};
use crate::format::address::{AgBlock, AgIno};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::inode::Handle;
use crate::op::Op;

impl Xfs {
    /// Whether an inode number, wherever it comes from, is that of an inode in use. Inodes are
    /// known by the tree of their group alone: what lies where an inode of that number would be may
    /// be anything.
    ///
    /// # Errors
    /// If the tree is damaged or cannot be read.
    pub fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let Some((ag, ag_ino)) = self.volume.geometry.split_ino(ino) else { return Ok(false) };
        self.atomically(|op| {
            let lease = op.lease(ag)?;
            let chunk = Cursor::<InoTree>::of_group(op, lease).seek(ag_ino, Seek::AtMost)?;
            let bit = chunk.and_then(|chunk| Some((chunk, chunk.bit(ag_ino)?)));
            Ok(bit.is_some_and(|(chunk, bit)| chunk.free & bit == 0))
        })
    }
}

impl Op<'_> {
    /// Makes an inode free, and its chunk's blocks if that was the last one in use.
    pub(crate) fn finish_free_inode(&mut self, mut handle: Handle) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let ino = handle.ino();
        let Some((ag, ag_ino)) = geometry.split_ino(ino) else {
            return Err(handle.corrupt("inode", "a number that no inode can have"));
        };
        let lease = self.lease(ag)?;
        let old = Cursor::<InoTree>::of_group(self, lease).seek(ag_ino, Seek::AtMost)?;
        let bit = old.and_then(|old| old.bit(ag_ino));
        let (Some(old), Some(bit)) = (old, bit) else {
            return Err(handle.corrupt("tree of inodes", "no chunk has an inode that is freed"));
        };
        if old.free & bit != 0 || u32::from(old.freecount) >= old.inodes() {
            return Err(handle.corrupt("tree of inodes", "an inode is freed that is free"));
        }
        let new = InodeChunk { freecount: old.freecount + 1, free: old.free | bit, ..old };
        self.unstage(ino);
        if u32::from(new.freecount) == new.inodes() && self.frees_chunks() {
            return self.remove_chunk(lease, old);
        }
        self.put_chunk::<InoTree>(lease, Some(old), new)?;
        self.put_free_chunk(lease, Some(old).filter(|old| old.freecount > 0), new)?;
        self.leases[lease].ifree += 1;
        handle.inode.clear();
        self.stage(handle);
        Ok(())
    }

    /// Whether chunks without an inode in use are given back: not where a block has several.
    fn frees_chunks(&self) -> bool {
        1_u32 << self.fs.volume.geometry.inodes_per_block_log() <= INODES_PER_CHUNK
    }

    /// Gives back a chunk whose last inode in use is being freed.
    fn remove_chunk(&mut self, lease: usize, old: InodeChunk) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let ag = self.leases[lease].number();
        let mut cursor = Cursor::<InoTree>::of_group(self, lease);
        cursor.seek(old.start, Seek::Exactly)?;
        cursor.remove()?;
        if self.leases[lease].root(AgTree::Fino).levels > 0 && old.freecount > 0 {
            let mut cursor = Cursor::<FinoTree>::of_group(self, lease);
            if cursor.seek(old.start, Seek::Exactly)? != Some(old) {
                return Err(damage(ag, old, "the trees of inodes disagree"));
            }
            cursor.remove()?;
        }
        self.count_gone(lease, old)?;
        for (first, inodes) in old.pieces() {
            let (start, offset) = geometry.inode_place(AgIno(old.start.0.saturating_add(first)));
            let blocks = inodes >> geometry.inodes_per_block_log();
            if offset != 0 || blocks << geometry.inodes_per_block_log() != inodes {
                return Err(damage(ag, old, "a hole that is no whole blocks"));
            }
            if !geometry.contains(geometry.fs_block(ag, start), blocks.into()) {
                return Err(damage(ag, old, "it lies outside of the group"));
            }
            for at in 0..blocks {
                let place = geometry.block_of(ag, AgBlock(start.0 + at));
                self.inode_blocks.push(InodeBlock::Gone(place));
                self.unstage_block(place);
                self.txn.forget(place.0);
            }
            self.free_in(lease, start, blocks, Owner::Inodes)?;
        }
        Ok(())
    }

    fn count_gone(&mut self, lease: usize, old: InodeChunk) -> Result<()> {
        let ag = self.leases[lease].number();
        let state = &mut self.leases[lease];
        let icount = state.icount.checked_sub(old.inodes());
        let ifree = state.ifree.checked_sub(old.freecount.into());
        let (Some(icount), Some(ifree)) = (icount, ifree) else {
            let damage = Corruption::new("AGI", "it counts fewer inodes than a chunk has");
            return Err(damage.in_group(ag.0.into()).into());
        };
        (state.icount, state.ifree) = (icount, ifree);
        if state.newino == old.start.0 {
            state.newino = AgIno::NULL.0;
        }
        Ok(())
    }
}
