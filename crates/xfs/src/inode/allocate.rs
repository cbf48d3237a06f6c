//! Taking inodes: which group, which chunk, which slot.

use transaction::Corruption;
use vfs::{Error, FileType, Result};

use super::chunk::{self, ChunkShape};
use crate::alloc::ags::AgTree;
use crate::btree::records::{FinoTree, InoTree, InodeChunk};
use crate::btree::{Cursor, Seek};
use crate::format::address::{AgIno, AgNumber};
use crate::format::features::Incompat;
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{Inode, check_free_slot, flags2};
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;

/// Free blocks in a row that a group must have for a new directory to be put there at first: a
/// chunk of inodes, and some for what the directory will hold.
const DIRECTORY_ROOM_BLOCKS: u32 = 64;
/// Chunks that are looked at on each side of the parent, without a tree of free inodes, before all are.
const NEAR_STEPS: usize = 8;

impl Op<'_> {
    /// Takes a free inode, near `parent` or, for a directory, in a group that has room. Its slot is
    /// as [`crate::format::inode::Inode::reset`] leaves it, with the flags that this file system gives
    /// new inodes, and is written when it is staged. `NoInodes` if there is none.
    pub(crate) fn allocate_inode(&mut self, parent: &Handle, is_dir: bool) -> Result<Handle> {
        let geometry = self.fs.volume.geometry;
        let (home, parent_ino) = geometry.split_ino(parent.ino()).unwrap_or_default();
        // Directories go round the groups, starting at their parent's, so that what is in them is
        // spread. Which group it is depends on nothing but the parent: it is the same each time.
        let turn = if is_dir { parent.inode.nlink().saturating_sub(1) } else { 0 };
        let count = u64::from(geometry.ag_count);
        let first = ((u64::from(home.0) + u64::from(turn)) % count) as u32;
        let shape = ChunkShape::of(&self.fs.volume);
        let fewest = shape.fewest_blocks();
        let rooms = if is_dir { [DIRECTORY_ROOM_BLOCKS.max(fewest), fewest] } else { [fewest; 2] };
        // What is known of a group may be old: the second round looks again.
        for (round, room) in rooms.into_iter().enumerate() {
            for at in 0..geometry.ag_count {
                let ag = AgNumber(((u64::from(first) + u64::from(at)) % count) as u32);
                let has_free = self.fs.volume.ags.summary(ag).ifree > 0 && (round > 0 || !is_dir);
                if !has_free && self.longest_known(ag) < room {
                    continue;
                }
                let near = if ag == home { parent_ino } else { AgIno(0) };
                if let Some(ino) = self.take_inode(ag, near, &shape)? {
                    return self.new_handle(ag, ino);
                }
            }
        }
        Err(Error::NoInodes)
    }

    /// Takes an inode of a group, of a new chunk if need be.
    fn take_inode(
        &mut self,
        ag: AgNumber,
        near: AgIno,
        shape: &ChunkShape,
    ) -> Result<Option<AgIno>> {
        let lease = self.lease(ag)?;
        if self.leases[lease].ifree == 0 && !self.add_chunk(lease, shape)? {
            return Ok(None);
        }
        let chunk = if self.leases[lease].root(AgTree::Fino).levels > 0 {
            self.take_from_fino(lease, near)?
        } else {
            self.find_in_ino(lease, near)?
        };
        let Some((old, new, ino)) = chunk else {
            let found = self.leases[lease].ifree;
            let damage = Corruption::new("AGI", "it counts free inodes that no chunk has");
            return Err(damage.in_group(ag.0.into()).mismatch(0, found).into());
        };
        let mut cursor = Cursor::<InoTree>::of_group(self, lease);
        if cursor.seek(old.start, Seek::Exactly)? != Some(old) {
            return Err(chunk::damage(ag, old, "the trees of inodes disagree"));
        }
        cursor.update(new)?;
        self.leases[lease].ifree -= 1;
        Ok(Some(ino))
    }

    /// Takes an inode of the chunk nearest to `near` out of the tree of free inodes: the chunk
    /// before and after, and the inode.
    fn take_from_fino(&mut self, lease: usize, near: AgIno) -> Result<Option<Taken>> {
        let ag = self.leases[lease].number();
        let mut cursor = Cursor::<FinoTree>::of_group(self, lease);
        let below = cursor.seek(near, Seek::AtMost)?;
        let distance = |chunk: InodeChunk| chunk.start.0.abs_diff(near.0);
        let mut found = below;
        if below.is_none_or(|chunk| distance(chunk) >= INODES_PER_CHUNK) {
            found =
                if below.is_some() { cursor.next()? } else { cursor.seek(near, Seek::AtLeast)? };
            if let Some(below) = below
                && found.is_none_or(|above| distance(below) <= distance(above))
            {
                found = cursor.seek(below.start, Seek::Exactly)?;
            }
        }
        let Some(old) = found else { return Ok(None) };
        let taken = chunk::take_first(ag, old)?;
        if taken.1.freecount == 0 {
            cursor.remove()?;
        } else {
            cursor.update(taken.1)?;
        }
        Ok(Some(taken))
    }

    /// As [`Op::take_from_fino`], from the tree of all chunks: near the parent, in the chunk made
    /// last, or anywhere. That tree is not changed yet.
    fn find_in_ino(&mut self, lease: usize, near: AgIno) -> Result<Option<Taken>> {
        let ag = self.leases[lease].number();
        let newest = AgIno(self.leases[lease].newino);
        let mut cursor = Cursor::<InoTree>::of_group(self, lease);
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
        found.map(|old| chunk::take_first(ag, old)).transpose()
    }

    /// The handle of an inode that was just taken.
    fn new_handle(&mut self, ag: AgNumber, ag_ino: AgIno) -> Result<Handle> {
        let geometry = self.fs.volume.geometry;
        let ino = geometry.ino(ag, ag_ino);
        let (block, offset) = geometry.inode_place(ag_ino);
        let block = geometry.block_of(ag, block);
        let slot = offset..offset + geometry.inode_size();
        let copy = |bytes: &[u8]| {
            check_free_slot(ino, &bytes[slot.clone()])?;
            Ok::<_, Corruption>(Inode::from_slot(&bytes[slot.clone()]))
        };
        // The block is not held on: other operations write inodes of it meanwhile, and wait for
        // none that this one may hold.
        let tag = Kind::Inodes.plain();
        let read = if self.txn.holds(block.0) {
            let id = self.buffer(block, tag)?;
            copy(self.txn.data(id))
        } else {
            copy(&self.fs.block(block, tag)?)
        };
        let mut inode = read.map_err(|c| c.at_block(block.0))?;
        inode.reset(FileType::Regular, 0, inode.generation());
        let mut flags = 0;
        if geometry.features.incompat(Incompat::BIGTIME) {
            flags |= flags2::BIGTIME;
        }
        if geometry.features.incompat(Incompat::NREXT64) {
            flags |= flags2::NREXT64;
        }
        inode.set_flags2(flags);
        Ok(Handle::new(ino, inode, block, offset))
    }

    /// Makes an inode free when the operation commits. Its blocks must be gone already.
    pub(crate) fn free_inode(&mut self, handle: Handle) {
        self.freed_inodes.push(handle);
    }
}

/// A chunk before and after an inode of it was taken, and the inode.
pub(super) type Taken = (InodeChunk, InodeChunk, AgIno);
