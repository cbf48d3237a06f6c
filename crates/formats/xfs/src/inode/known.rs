//! Reading and changing chunk records at remembered positions, without a descent from the root.

use engine::BufferId;
use operations::Outcome;

use crate::alloc::HeldAg;
use crate::alloc::ags::AgTree;
use crate::alloc::trees::GroupTree;
use crate::btree::records::{InoTree, InodeChunk};
use crate::btree::{RecordPlace, Seek, replace_record};
use crate::format::address::{AgBlock, AgIno};
use crate::inode::known_chunks::{ChunkTree, Spot};

/// Returns which inode tree a group's tree is.
const fn tree_of<T: GroupTree<Record = InodeChunk>>() -> ChunkTree {
    match T::AG_TREE {
        AgTree::Fino => ChunkTree::Free,
        _ => ChunkTree::All,
    }
}

/// A chunk whose record was found at its remembered position.
pub(super) struct KnownChunk {
    pub(super) chunk: InodeChunk,
    leaf: BufferId,
    /// Byte offset of the record in the leaf.
    at: usize,
}

impl HeldAg<'_, '_> {
    /// Remembers the position of a chunk's record.
    pub(super) fn note_chunk<T>(&mut self, chunk: InodeChunk, place: Option<RecordPlace>)
    where
        T: GroupTree<Record = InodeChunk>,
    {
        let Some(place) = place else { return };
        let (leaf, position) = (AgBlock(place.leaf as u32), place.position as u32);
        let spot = Spot { start: chunk.start, leaf, position };
        self.guard.known_chunks.note(tree_of::<T>(), spot);
    }

    /// Returns the remembered chunk of a tree, if its record is still at its position.
    pub(super) fn known_chunk<T>(&mut self) -> Outcome<Option<KnownChunk>>
    where
        T: GroupTree<Record = InodeChunk>,
    {
        let Spot { start, leaf, position } = self.guard.known_chunks.spot(tree_of::<T>());
        if leaf == AgBlock(0) {
            return Ok(None);
        }
        let (ag, geometry) = (self.number(), &self.volume.geometry);
        let leaf = self.txn.buffer(geometry.block_of(ag, leaf).0, T::KIND.of_group(ag))?;
        let (area, bytes) = (T::SHAPE.leaf_area(geometry), self.txn.data(leaf));
        let position = position as usize;
        if area.level(bytes) != 0 || position >= area.count(bytes).min(area.max) {
            return Ok(None);
        }
        let chunk = T::record(area.entry(bytes, position));
        let at = area.entry_range(position, position).start;
        Ok((chunk.start == start).then_some(KnownChunk { chunk, leaf, at }))
    }

    /// Returns the last chunk that starts at or before an inode.
    pub(super) fn chunk_with(&mut self, ino: AgIno) -> Outcome<Option<InodeChunk>> {
        let known = self.known_chunk::<InoTree>()?.map(|known| known.chunk);
        let known = known.filter(|chunk| chunk.bit(ino).is_some());
        if known.is_some() {
            return Ok(known);
        }
        let mut cursor = self.cursor::<InoTree>();
        let found = cursor.seek(ino, Seek::AtMost)?;
        let place = cursor.place();
        if let Some(found) = found {
            self.note_chunk::<InoTree>(found, place);
        }
        Ok(found)
    }

    /// Replaces the record of a remembered chunk by one with the same start.
    pub(super) fn change_known<T>(&mut self, known: &KnownChunk, new: InodeChunk)
    where
        T: GroupTree<Record = InodeChunk>,
    {
        debug_assert_eq!(known.chunk.start, new.start, "the chunk keeps its position");
        replace_record::<T>(self.txn, (known.leaf, known.at), &new);
    }

    /// Replaces the record of a chunk in a tree if its position is remembered. Returns whether it did.
    pub(super) fn update_known<T>(&mut self, old: InodeChunk, new: InodeChunk) -> Outcome<bool>
    where
        T: GroupTree<Record = InodeChunk>,
    {
        if self.guard.known_chunks.spot(tree_of::<T>()).start != old.start {
            return Ok(false);
        }
        let known = self.known_chunk::<T>()?.filter(|known| known.chunk == old);
        if let Some(known) = &known {
            self.change_known::<T>(known, new);
        }
        Ok(known.is_some())
    }
}
