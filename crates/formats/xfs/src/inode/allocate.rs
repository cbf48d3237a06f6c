//! Allocating inodes: choice of group, chunk and slot.

use engine::Corruption;
use operations::Outcome;
use vfs::{Error, FileType, Ino, Result};

use super::chunk::{self, ChunkShape, TakenInode};
use crate::XfsCore;
use crate::alloc::HeldAg;
use crate::alloc::ags::AgTree;
use crate::btree::Seek;
use crate::btree::records::{FinoTree, InoTree, InodeChunk};
use crate::format::address::{AgIno, AgNumber};
use crate::format::features::Incompat;
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{Inode, check_free_slot, flags2};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

/// Contiguous free blocks that a group must have for a new directory in the first round: a chunk of inodes, and room
/// for the contents of the directory.
const DIRECTORY_ROOM_BLOCKS: u32 = 64;
/// Number of chunks before the parent's that a search without a tree of free inodes examines, before it examines all.
const NEAR_STEPS: usize = 8;

impl Op<'_> {
    /// Allocates a free inode, near `parent` or, for a directory, in a group with room. The slot is as left by
    /// [`crate::format::inode::Inode::reset`], with the flags that this file system sets for new inodes. The caller
    /// must stage it. Fails with `NoInodes` if there is none.
    pub(crate) fn allocate_inode(&mut self, parent: &Handle, is_dir: bool) -> Outcome<Handle> {
        let geometry = self.fs.volume.geometry;
        let (home, parent_ino) = geometry.split_ino(parent.ino()).unwrap_or_default();
        // Directories are placed in the groups in turn, starting at their parent's, to spread files. The group depends
        // on the parent alone, so the choice is deterministic.
        let turn = if is_dir { parent.inode.nlink().saturating_sub(1) } else { 0 };
        let count = u64::from(geometry.ag_count);
        let first = ((u64::from(home.0) + u64::from(turn)) % count) as u32;
        let shape = ChunkShape::of(&self.fs.volume);
        let fewest = shape.fewest_blocks();
        let rooms = if is_dir { [DIRECTORY_ROOM_BLOCKS.max(fewest), fewest] } else { [fewest; 2] };
        // The summary of a group may be outdated, so the second round checks it again.
        for (round, room) in rooms.into_iter().enumerate() {
            for at in 0..geometry.ag_count {
                let ag = AgNumber(((u64::from(first) + u64::from(at)) % count) as u32);
                let has_free = self.fs.volume.ags.summary(ag).ifree > 0 && (round > 0 || !is_dir);
                if !has_free && self.longest_known(ag) < room {
                    continue;
                }
                let near = if ag == home { parent_ino } else { AgIno(0) };
                if let Some(ino) = self.ag(ag)?.take_inode(near, &shape)? {
                    return self.new_handle(ag, ino);
                }
            }
        }
        Err(Error::NoInodes.into())
    }

    /// Returns the handle of an inode that was just allocated.
    pub(crate) fn new_handle(&mut self, ag: AgNumber, ag_ino: AgIno) -> Outcome<Handle> {
        let geometry = self.fs.volume.geometry;
        let ino = geometry.ino(ag, ag_ino);
        let (block, offset) = geometry.inode_place(ag_ino);
        let block = geometry.block_of(ag, block);
        let slot = offset..offset + geometry.inode_size();
        let copy = |bytes: &[u8]| {
            check_free_slot(&geometry, ino, &bytes[slot.clone()])?;
            Ok::<_, Corruption>(Inode::from_slot(&bytes[slot.clone()]))
        };
        // The operation does not hold the block: other operations may write inodes of it at the same time, and do not
        // wait for a block that this one holds.
        let tag = BlockKind::Inodes.plain();
        let read = if self.txn.holds(block.0) {
            let id = self.buffer(block, tag)?;
            copy(self.txn.data(id))
        } else {
            copy(&self.fs.block(block, tag)?)
        };
        let mut inode = read.map_err(|c| c.at_block(block.0))?;
        self.fs.reset_free(&mut inode);
        Ok(Handle::new(ino, inode, block, offset))
    }

    /// Frees an inode when the operation commits. Its blocks must have been freed already.
    pub(crate) fn free_inode(&mut self, handle: Handle) {
        self.freed_inodes.push(handle);
    }
}

impl XfsCore {
    /// Returns the handle of a free inode reserved for a deferred file, as it will be when allocated. Must not be
    /// called by a thread with a running operation.
    pub(crate) fn handle_to_be(&self, ino: Ino) -> Result<Handle> {
        let geometry = &self.volume.geometry;
        let (ag, ag_ino) = geometry.split_ino(ino).ok_or(Error::NotFound)?;
        let (block, offset) = geometry.inode_place(ag_ino);
        let block = geometry.block_of(ag, block);
        let bytes = self.block(block, BlockKind::Inodes.plain())?;
        let slot = &bytes[offset..offset + geometry.inode_size()];
        check_free_slot(geometry, ino, slot).map_err(|c| c.at_block(block.0))?;
        let mut inode = Inode::from_slot(slot);
        self.reset_free(&mut inode);
        Ok(Handle::new(ino, inode, block, offset))
    }

    /// Turns a free inode into an empty new one.
    fn reset_free(&self, inode: &mut Inode) {
        let geometry = &self.volume.geometry;
        inode.reset(FileType::Regular, 0, inode.generation());
        let mut flags = 0;
        if geometry.features.incompat(Incompat::BIGTIME) {
            flags |= flags2::BIGTIME;
        }
        if geometry.features.incompat(Incompat::NREXT64) {
            flags |= flags2::NREXT64;
        }
        inode.set_flags2(flags);
    }
}

impl HeldAg<'_, '_> {
    /// Allocates an inode. Adds a chunk if no chunk has a free inode.
    fn take_inode(&mut self, near: AgIno, shape: &ChunkShape) -> Outcome<Option<AgIno>> {
        if self.guard.group().reserved.count() > 0 {
            return self.take_unkept(near, shape);
        }
        let ag = self.number();
        if self.guard.ifree == 0 && !self.add_chunk(shape)? {
            return Ok(None);
        }
        let chunk = if self.has_tree(AgTree::Fino) {
            self.take_from_fino(near)?
        } else {
            self.find_in_ino(near)?
        };
        let Some(TakenInode { old, new, ino }) = chunk else {
            let found = self.guard.ifree;
            let damage = Corruption::new("AGI", "it counts free inodes that are in no chunk");
            return Err(damage.in_group(ag.0.into()).mismatch(0, found).into());
        };
        self.replace_chunk::<InoTree>(old, new)?;
        self.guard.ifree -= 1;
        Ok(Some(ino))
    }

    /// Allocates an inode of the chunk nearest to `near`, and updates the tree of free inodes.
    fn take_from_fino(&mut self, near: AgIno) -> Outcome<Option<TakenInode>> {
        let ag = self.number();
        if self.guard.known_chunks.has_nearest(near)
            && let Some(known) = self.known_chunk::<FinoTree>()?
        {
            let taken = chunk::take_first(ag, known.chunk)?;
            if taken.new.freecount > 0 {
                self.change_known::<FinoTree>(&known, taken.new);
                return Ok(Some(taken));
            }
        }
        let mut cursor = self.cursor::<FinoTree>();
        let above = cursor.seek(near, Seek::AtLeast)?;
        let below = match above {
            Some(_) => cursor.peek_previous()?,
            None => cursor.seek(near, Seek::AtMost)?,
        };
        let distance = |chunk: InodeChunk| chunk.start.0.abs_diff(near.0);
        let is_below = below.is_some_and(|below| {
            let is_nearer = above.is_none_or(|above| distance(below) <= distance(above));
            // A chunk that contains `near` is the nearest, regardless of its start.
            is_nearer || distance(below) < INODES_PER_CHUNK
        });
        let found = match (above, is_below) {
            (Some(_), true) => cursor.previous()?,
            (None, true) => below,
            (_, false) => above,
        };
        let Some(old) = found else { return Ok(None) };
        let taken = chunk::take_first(ag, old)?;
        if taken.new.freecount == 0 {
            cursor.remove()?;
            self.guard.known_chunks.forget_nearest();
        } else {
            cursor.update(taken.new)?;
            let place = cursor.place();
            self.note_chunk::<FinoTree>(old, place);
            self.guard.known_chunks.note_nearest(near);
        }
        Ok(Some(taken))
    }

    /// Finds an inode to allocate in the tree of all chunks: close to `near`, in the newest chunk, or anywhere. Does
    /// not change the tree.
    fn find_in_ino(&mut self, near: AgIno) -> Outcome<Option<TakenInode>> {
        let ag = self.number();
        let newest = AgIno(self.guard.newino);
        let mut cursor = self.cursor::<InoTree>();
        let has_free = |chunk: &InodeChunk| chunk.freecount > 0;
        let mut found = cursor.seek(near, Seek::AtMost)?;
        for _ in 0..NEAR_STEPS {
            if found.is_none_or(|chunk| has_free(&chunk)) {
                break;
            }
            found = cursor.previous()?;
        }
        let mut found = found.filter(has_free);
        if found.is_none() {
            found = cursor.seek(newest, Seek::Exactly)?.filter(has_free);
        }
        if found.is_none() {
            let mut next = cursor.seek(AgIno(0), Seek::AtLeast)?;
            while let Some(chunk) = next.filter(|chunk| !has_free(chunk)) {
                next = cursor.next()?.filter(|next| next.start > chunk.start);
            }
            found = next;
        }
        Ok(found.map(|old| chunk::take_first(ag, old)).transpose()?)
    }
}
