//! Reserving inodes for deferred files, allocating them when the files are applied, and allocating others in the
//! meantime.

use operations::Outcome;
use vfs::{Error, Ino};

use super::chunk::{self, ChunkShape};
use crate::alloc::HeldAg;
use crate::btree::Seek;
use crate::btree::records::{FinoTree, InoTree, InodeChunk};
use crate::format::address::{AgIno, AgNumber};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::inode::Handle;
use crate::op::Op;

/// Number of chunks that a search examines before a new one is added.
const STEPS: usize = 8;

/// Free inodes of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeInodes {
    pub(crate) ag: AgNumber,
    /// The first inode of the chunk: a multiple of the chunk size.
    pub(crate) chunk: AgIno,
    pub(crate) mask: u64,
}

impl Op<'_> {
    /// Finds free, unreserved inodes of a chunk near `parent`. Adds a chunk if needed. Fails with `NoInodes` if there
    /// are none.
    pub(crate) fn find_free_inodes(&mut self, parent: &Handle) -> Outcome<FreeInodes> {
        let volume = &self.fs.volume;
        let count = volume.geometry.ag_count;
        let (home, _) = volume.geometry.split_ino(parent.ino()).unwrap_or_default();
        let shape = ChunkShape::of(volume);
        for at in 0..count {
            let ag = AgNumber((home.0 + at) % count);
            let has_free = volume.ags.summary(ag).ifree > volume.ags.group(ag).reserved.count();
            if !has_free && self.longest_known(ag) < shape.fewest_blocks() {
                continue;
            }
            let mut held = self.ag(ag)?;
            let near = held.guard.group().reserved.next();
            if let Some((found, mask)) = held.find_unkept(near, &shape)?
                && found.start.0.is_multiple_of(INODES_PER_CHUNK)
            {
                return Ok(FreeInodes { ag, chunk: found.start, mask });
            }
        }
        Err(Error::NoInodes.into())
    }

    /// Allocates inodes that were reserved, in ascending order.
    pub(crate) fn take_kept(&mut self, inodes: &[Ino]) -> Outcome<()> {
        let size = u64::from(INODES_PER_CHUNK);
        for of_chunk in inodes.chunk_by(|a, b| a.0 / size == b.0 / size) {
            let first = Ino(of_chunk[0].0 / size * size);
            let mask = of_chunk.iter().fold(0, |mask, ino| mask | 1 << (ino.0 % size));
            let (ag, start) = self.fs.volume.geometry.split_ino(first).ok_or(Error::NoInodes)?;
            self.ag(ag)?.take_kept_of(start, mask)?;
        }
        Ok(())
    }
}

impl HeldAg<'_, '_> {
    /// Allocates an unreserved inode. Adds a chunk if there is none nearby.
    pub(super) fn take_unkept(
        &mut self,
        near: AgIno,
        shape: &ChunkShape,
    ) -> Outcome<Option<AgIno>> {
        let Some((old, mask)) = self.find_unkept(near, shape)? else { return Ok(None) };
        let at = mask.trailing_zeros();
        self.take_mask(old, 1 << at)?;
        Ok(Some(AgIno(old.start.0 + at)))
    }

    /// Finds a chunk with free, unreserved inodes, and returns their mask.
    fn find_unkept(
        &mut self,
        near: AgIno,
        shape: &ChunkShape,
    ) -> Outcome<Option<(InodeChunk, u64)>> {
        let newest = AgIno(self.guard.newino);
        for (from, steps) in [(near, STEPS), (newest, 1)] {
            let found = self.search_unkept(from, steps)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if self.add_chunk(shape)? {
            return self.search_unkept(AgIno(self.guard.newino), 1);
        }
        self.search_unkept(AgIno(0), usize::MAX)
    }

    fn search_unkept(&mut self, from: AgIno, steps: usize) -> Outcome<Option<(InodeChunk, u64)>> {
        let reserved = &self.guard.group().reserved;
        let mut cursor = self.cursor::<FinoTree>();
        let mut next = cursor.seek(from, Seek::AtLeast)?;
        for _ in 0..steps {
            let Some(chunk) = next else { break };
            let mask = chunk.available() & !reserved.of(chunk.start);
            if mask != 0 {
                return Ok(Some((chunk, mask)));
            }
            next = cursor.next()?.filter(|next| next.start > chunk.start);
        }
        Ok(None)
    }

    fn take_kept_of(&mut self, start: AgIno, mask: u64) -> Outcome<()> {
        let ag = self.number();
        match self.cursor::<FinoTree>().seek(start, Seek::Exactly)? {
            Some(old) if old.available() & mask == mask => self.take_mask(old, mask),
            found => {
                let none = InodeChunk { start, holemask: 0, count: 0, freecount: 0, free: 0 };
                let problem = "reserved inodes are in use";
                Err(chunk::damage(ag, found.unwrap_or(none), problem).into())
            }
        }
    }

    /// Allocates free inodes of a chunk, in both trees.
    fn take_mask(&mut self, old: InodeChunk, mask: u64) -> Outcome<()> {
        let ag = self.number();
        let (available, taken) = (old.available().count_ones(), mask.count_ones());
        let left = u32::from(old.freecount).checked_sub(taken);
        let Some(left) = left.filter(|_| available == u32::from(old.freecount)) else {
            let problem = "the free inode count is wrong";
            return Err(chunk::damage(ag, old, problem).into());
        };
        let new = InodeChunk { freecount: left as u8, free: old.free & !mask, ..old };
        if left == 0 {
            self.take_chunk_out::<FinoTree>(old)?;
        } else {
            self.replace_chunk::<FinoTree>(old, new)?;
        }
        self.replace_chunk::<InoTree>(old, new)?;
        self.guard.ifree = self.guard.ifree.saturating_sub(taken);
        Ok(())
    }
}
