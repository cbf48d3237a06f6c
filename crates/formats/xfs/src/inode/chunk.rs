//! Inode chunks. Each record of the inode trees describes a chunk of 64 inodes. A sparse chunk has blocks for only some
//! of them.

use engine::Corruption;
use operations::Outcome;
use vfs::{Error, Result};

use super::InodeBlock;
use crate::alloc::ags::AgTree;
use crate::alloc::space::AllocRequest;
use crate::alloc::trees::GroupTree;
use crate::alloc::{HeldAg, RmapOwner};
use crate::btree::Seek;
use crate::btree::records::{FinoTree, InoTree, InodeChunk};
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::features::{Incompat, Version};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::init_free_slot;
use crate::kind::BlockKind;
use crate::volume::Volume;

/// An inode that was allocated from a chunk.
pub(super) struct TakenInode {
    /// The chunk's record before.
    pub(super) old: InodeChunk,
    /// The chunk's record after.
    pub(super) new: InodeChunk,
    pub(super) ino: AgIno,
}

/// Number of inodes per bit of a hole mask (`XFS_INODES_PER_HOLEMASK_BIT`).
const INODES_PER_HOLE_BIT: u32 = 4;

/// Size and alignment of the chunks of a file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkShape {
    /// Blocks allocated for a whole chunk, or for several if one block has more inodes than a chunk.
    blocks: u32,
    /// Alignment of the first block of a chunk.
    align: u32,
    /// Size and alignment, in blocks, of the pieces of sparse chunks; `None` if sparse chunks are not allowed.
    sparse_blocks: Option<u32>,
    /// True if records store the number of their inodes.
    counts: bool,
}

impl ChunkShape {
    pub(super) fn of(volume: &Volume) -> Self {
        let geometry = &volume.geometry;
        let raw = &volume.sb.raw;
        let blocks = geometry.chunk_blocks();
        let aligns = geometry.features.version_bits.contains(Version::ALIGN);
        let align = if aligns { raw.inoalignmt.get().max(1) } else { 1 };
        let sparse = raw.spino_align.get();
        let inodes = u64::from(sparse) << geometry.inodes_per_block_log();
        let counts = geometry.features.incompat(Incompat::SPINODES);
        let is_sound = sparse > 0
            && sparse < blocks
            && blocks.is_multiple_of(sparse)
            && inodes.is_multiple_of(INODES_PER_HOLE_BIT.into());
        Self { blocks, align, sparse_blocks: (counts && is_sound).then_some(sparse), counts }
    }

    /// Returns the minimum number of blocks of a chunk.
    pub(super) fn fewest_blocks(&self) -> u32 {
        self.sparse_blocks.unwrap_or(self.blocks)
    }
}

/// Returns the mask of the inodes without blocks, according to a hole mask.
const fn holes(holemask: u16) -> u64 {
    // Nearly all chunks are whole.
    if holemask == 0 {
        return 0;
    }
    let mut holes = 0;
    let mut bit = 0;
    while bit < 16 {
        if holemask >> bit & 1 != 0 {
            holes |= 0xf << (4 * bit);
        }
        bit += 1;
    }
    holes
}

impl InodeChunk {
    /// Returns the mask of inodes that can be allocated.
    pub(crate) fn available(&self) -> u64 {
        self.free & !holes(self.holemask)
    }

    /// Returns the mask of an inode in its chunk, if it belongs to the chunk and has blocks.
    pub(super) fn bit(&self, ino: AgIno) -> Option<u64> {
        let at = ino.0.checked_sub(self.start.0).filter(|at| *at < INODES_PER_CHUNK)?;
        let bit = 1 << at;
        (holes(self.holemask) & bit == 0).then_some(bit)
    }

    /// Returns the runs of inodes that have blocks: index of the first in the chunk, and number.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let mut left = !holes(self.holemask);
        std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            if first == u64::BITS {
                return None;
            }
            let len = (left >> first).trailing_ones();
            left &= !(u64::MAX >> (u64::BITS - len) << first);
            Some((first, len))
        })
    }
}

/// Returns the error for a damaged chunk record.
pub(super) fn damage(ag: AgNumber, chunk: InodeChunk, problem: &str) -> Error {
    let what = format!("{problem}: the chunk of inode {}", chunk.start);
    Corruption::new("inode tree", what).in_group(ag.0.into()).into()
}

/// Allocates the first free inode of a chunk.
pub(super) fn take_first(ag: AgNumber, old: InodeChunk) -> Result<TakenInode> {
    let available = old.available();
    if available == 0 || available.count_ones() != u32::from(old.freecount) {
        return Err(damage(ag, old, "the free inode count is wrong"));
    }
    let at = available.trailing_zeros();
    let Some(ino) = old.start.0.checked_add(at) else {
        return Err(damage(ag, old, "it is outside the group"));
    };
    let new = InodeChunk { freecount: old.freecount - 1, free: old.free & !(1 << at), ..old };
    Ok(TakenInode { old, new, ino: AgIno(ino) })
}

impl HeldAg<'_, '_> {
    /// Adds a new chunk. Returns false if the group has no room or the file system has reached its maximum number of
    /// inodes.
    pub(super) fn add_chunk(&mut self, shape: &ChunkShape) -> Outcome<bool> {
        let volume = self.volume;
        let added = u64::from(shape.blocks) << volume.geometry.inodes_per_block_log();
        if volume.totals().icount + added > volume.icount_max() {
            return Ok(false);
        }
        self.adjust_agfl()?;
        let state = **self.guard;
        // The best location is after the newest chunk.
        let near = match AgIno(state.newino) {
            AgIno::NULL => state.root(AgTree::Ino).block,
            newest => {
                let place = volume.geometry.inode_place(newest).0;
                AgBlock(place.0.saturating_add(shape.blocks))
            }
        };
        let request = AllocRequest { align: shape.align, ..AllocRequest::near(near, shape.blocks) };
        if let Some(start) = self.take_chunk_blocks(&request)? {
            self.enter_whole(start, shape)?;
            return Ok(true);
        }
        let Some(blocks) = shape.sparse_blocks else { return Ok(false) };
        // The whole chunk, of which the record describes a piece, must be within the group, after its headers.
        let last = (state.length / shape.align * shape.align).saturating_sub(shape.blocks);
        let within = (shape.align, last.saturating_add(blocks));
        let request = AllocRequest { near, len: blocks, align: blocks, within };
        let Some(start) = self.take_chunk_blocks(&request)? else { return Ok(false) };
        self.enter_piece(start, blocks, shape)?;
        Ok(true)
    }

    /// Allocates blocks for inodes and initializes them.
    fn take_chunk_blocks(&mut self, request: &AllocRequest) -> Outcome<Option<AgBlock>> {
        if self.usable(self.claim) < request.len {
            return Ok(None);
        }
        let Some(start) = self.take_wish(request)? else { return Ok(None) };
        self.rmap_add(start, request.len, RmapOwner::Inodes)?;
        self.init_inodes(start, request.len)?;
        Ok(Some(start))
    }

    /// Fills blocks with free inodes.
    fn init_inodes(&mut self, start: AgBlock, blocks: u32) -> Outcome<()> {
        let geometry = self.volume.geometry;
        let ag = self.number();
        for at in 0..blocks {
            let block = AgBlock(start.0 + at);
            let first = geometry.first_ino(block);
            let place = geometry.block_of(ag, block);
            self.inode_blocks.push(InodeBlock::Made(place));
            let id = self.txn.create(place.0, BlockKind::Inodes.plain())?;
            let bytes = self.txn.edit(id, 0..geometry.block_size());
            for (index, slot) in bytes.chunks_exact_mut(geometry.inode_size()).enumerate() {
                let ino = geometry.ino(ag, AgIno(first.0 + index as u32));
                init_free_slot(&geometry, ino, slot);
            }
        }
        Ok(())
    }

    /// Adds records of whole chunks: one, or as many as fit into a block.
    fn enter_whole(&mut self, start: AgBlock, shape: &ChunkShape) -> Outcome<()> {
        let first = self.volume.geometry.first_ino(start);
        let inodes = shape.blocks << self.volume.geometry.inodes_per_block_log();
        for at in (0..inodes).step_by(INODES_PER_CHUNK as usize) {
            let chunk = InodeChunk {
                start: AgIno(first.0 + at),
                holemask: 0,
                count: if shape.counts { INODES_PER_CHUNK as u8 } else { 0 },
                freecount: INODES_PER_CHUNK as u8,
                free: u64::MAX,
            };
            self.put_chunk::<InoTree>(None, chunk)?;
            self.put_free_chunk(None, chunk)?;
        }
        self.count_new(first, inodes);
        Ok(())
    }

    /// Adds a piece of a sparse chunk. The chunk may already have other pieces.
    fn enter_piece(&mut self, start: AgBlock, blocks: u32, shape: &ChunkShape) -> Outcome<()> {
        let geometry = self.volume.geometry;
        let ag = self.number();
        let chunk_start = geometry.first_ino(AgBlock(start.0 / shape.align * shape.align));
        let first = geometry.first_ino(start).0 - chunk_start.0;
        let inodes = blocks << geometry.inodes_per_block_log();
        let bits = u16::MAX >> (16 - inodes / INODES_PER_HOLE_BIT);
        let holemask = !(bits << (first / INODES_PER_HOLE_BIT));
        let count = inodes as u8;
        let piece =
            InodeChunk { start: chunk_start, holemask, count, freecount: count, free: u64::MAX };
        let old = self.cursor::<InoTree>().seek(chunk_start, Seek::Exactly)?;
        let Some(old) = old else {
            self.put_chunk::<InoTree>(None, piece)?;
            self.put_free_chunk(None, piece)?;
            self.count_new(chunk_start, inodes);
            return Ok(());
        };
        if !old.holemask & !holemask != 0 {
            return Err(damage(ag, old, "it contains free blocks").into());
        }
        let merged = InodeChunk {
            holemask: old.holemask & holemask,
            count: old.count.saturating_add(count),
            freecount: old.freecount.saturating_add(count),
            ..old
        };
        self.put_chunk::<InoTree>(Some(old), merged)?;
        self.put_free_chunk(Some(old).filter(|old| old.freecount > 0), merged)?;
        self.count_new(chunk_start, inodes);
        Ok(())
    }

    fn count_new(&mut self, chunk: AgIno, inodes: u32) {
        let state = &mut *self.guard;
        state.icount += inodes;
        state.ifree += inodes;
        state.newino = chunk.0;
    }

    /// Puts a chunk into the tree of free inodes, replacing `old` if given. Does nothing without that tree.
    pub(super) fn put_free_chunk(
        &mut self,
        old: Option<InodeChunk>,
        chunk: InodeChunk,
    ) -> Outcome<()> {
        if !self.has_tree(AgTree::Fino) {
            return Ok(());
        }
        self.put_chunk::<FinoTree>(old, chunk)
    }

    /// Puts a chunk into a tree, replacing `old` if given.
    pub(super) fn put_chunk<T: GroupTree<Record = InodeChunk, Key = AgIno>>(
        &mut self,
        old: Option<InodeChunk>,
        chunk: InodeChunk,
    ) -> Outcome<()> {
        if let Some(old) = old {
            return self.replace_chunk::<T>(old, chunk);
        }
        let mut cursor = self.cursor::<T>();
        cursor.insert(chunk)?;
        let place = cursor.place();
        self.note_chunk::<T>(chunk, place);
        self.guard.known_chunks.forget_nearest();
        Ok(())
    }

    /// Replaces the record of a chunk, which must be in the tree, by one with the same start.
    pub(super) fn replace_chunk<T: GroupTree<Record = InodeChunk, Key = AgIno>>(
        &mut self,
        old: InodeChunk,
        new: InodeChunk,
    ) -> Outcome<()> {
        if self.update_known::<T>(old, new)? {
            return Ok(());
        }
        let ag = self.number();
        let mut cursor = self.cursor::<T>();
        if cursor.seek(old.start, Seek::Exactly)? != Some(old) {
            return Err(damage(ag, old, "the inode trees differ").into());
        }
        cursor.update(new)?;
        let place = cursor.place();
        self.note_chunk::<T>(new, place);
        Ok(())
    }

    /// Removes a chunk, which must be in the tree.
    pub(super) fn take_chunk_out<T: GroupTree<Record = InodeChunk, Key = AgIno>>(
        &mut self,
        old: InodeChunk,
    ) -> Outcome<()> {
        let ag = self.number();
        let mut cursor = self.cursor::<T>();
        if cursor.seek(old.start, Seek::Exactly)? != Some(old) {
            return Err(damage(ag, old, "the inode trees differ").into());
        }
        cursor.remove()?;
        self.guard.known_chunks.forget_nearest();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(holemask: u16) -> InodeChunk {
        InodeChunk { start: AgIno(128), holemask, count: 64, freecount: 64, free: u64::MAX }
    }

    #[test]
    fn a_hole_bit_stands_for_four_inodes() {
        assert_eq!(holes(0), 0);
        assert_eq!(holes(0x8001), 0xf000_0000_0000_000f);
        assert_eq!(chunk(0x8001).available(), 0x0fff_ffff_ffff_fff0);
    }

    #[test]
    fn pieces_are_what_lies_between_holes() {
        assert_eq!(chunk(0).pieces().collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(chunk(0x00ff).pieces().collect::<Vec<_>>(), [(32, 32)]);
        assert_eq!(chunk(0x0ff0).pieces().collect::<Vec<_>>(), [(0, 16), (48, 16)]);
        assert_eq!(chunk(0xffff).pieces().count(), 0);
    }

    #[test]
    fn inodes_outside_of_the_chunk_or_in_holes_have_no_bit() {
        assert_eq!(chunk(0).bit(AgIno(127)), None);
        assert_eq!(chunk(0).bit(AgIno(128)), Some(1));
        assert_eq!(chunk(0).bit(AgIno(191)), Some(1 << 63));
        assert_eq!(chunk(0).bit(AgIno(192)), None);
        assert_eq!(chunk(1).bit(AgIno(131)), None);
        assert_eq!(chunk(1).bit(AgIno(132)), Some(16));
    }
}
