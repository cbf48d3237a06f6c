//! Replacing entries of a leaf, the basis of every change of a tree.

use operations::Outcome;
use std::ops::Range;

use smallvec::SmallVec;

use super::ExtentTree;
use super::path::{ExtentPath, PathNode};
use crate::format::address::FileBlock;
use crate::format::extent::{ENTRY_SIZE, Extent, UNWRITTEN_LEN_MAX, WRITTEN_LEN_MAX, entry_range};

/// Extents that replace others. There are never more than three.
pub(super) type Pieces = SmallVec<[Extent; 3]>;

/// Merges two runs if they are contiguous and not too long.
fn joined(before: Extent, after: Extent) -> Option<Extent> {
    let len = before.len + after.len;
    let len_max = if before.unwritten { UNWRITTEN_LEN_MAX } else { WRITTEN_LEN_MAX };
    let one = before.unwritten == after.unwritten
        && before.end() == u64::from(after.block.0)
        && before.start.plus(u64::from(before.len)) == after.start
        && len <= len_max;
    one.then_some(Extent { len, ..before })
}

impl ExtentTree<'_, '_> {
    /// Replaces entries of the leaf at the end of `path` and merges adjacent extents. Returns `false` if the leaf had
    /// no room; one structural change was then made and the caller must retry. The path is invalid in both cases.
    pub(super) fn replace(
        &mut self,
        path: &ExtentPath,
        mut window: Range<usize>,
        mut pieces: Pieces,
    ) -> Outcome<bool> {
        let leaf = path[path.len() - 1];
        let node = self.node(&leaf)?;
        let count = node.len();
        if let (Some(first), Some(at)) = (pieces.first_mut(), window.start.checked_sub(1))
            && let Some(whole) = joined(node.extent(at), *first)
        {
            *first = whole;
            window.start = at;
        }
        if let Some(last) = pieces.last_mut()
            && window.end < count
            && let Some(whole) = joined(*last, node.extent(window.end))
        {
            *last = whole;
            window.end += 1;
        }
        let count_after = count - window.len() + pieces.len();
        if count_after > node.room() {
            self.make_room(path)?;
            return Ok(false);
        }
        let mut bytes: SmallVec<[u8; 3 * ENTRY_SIZE]> = SmallVec::new();
        for piece in &pieces {
            bytes.extend_from_slice(&piece.encode());
        }
        self.splice(&leaf, count, window.clone(), &bytes);
        let first = pieces.first().filter(|_| window.start == 0).map(|piece| piece.block);
        self.after_splice(path, path.len() - 1, first)?;
        if count_after < count {
            self.shrink(path)?;
        }
        Ok(true)
    }

    /// Replaces entries of a node with `count` entries by the encoded entries in `bytes`. The node must have room.
    pub(super) fn splice(
        &mut self,
        frame: &PathNode,
        count: usize,
        window: Range<usize>,
        bytes: &[u8],
    ) {
        let added = bytes.len() / ENTRY_SIZE;
        let start = entry_range(window.start).start;
        if added == window.len() {
            self.edit_node(frame, start..start + bytes.len()).copy_from_slice(bytes);
            return;
        }
        let count_after = count - window.len() + added;
        let end = entry_range(count.max(count_after)).start;
        let moved = window.len() * ENTRY_SIZE..(count - window.start) * ENTRY_SIZE;
        let room = self.edit_node(frame, start..end);
        room.copy_within(moved.clone(), bytes.len());
        room[..bytes.len()].copy_from_slice(bytes);
        room[bytes.len() + moved.len()..].fill(0);
        self.set_entries(frame, count_after);
    }

    /// Updates the index entries above a node if its first entry may have changed. `first` is the block of the new
    /// first entry, if known.
    pub(super) fn after_splice(
        &mut self,
        path: &ExtentPath,
        level: usize,
        first: Option<FileBlock>,
    ) -> Outcome<()> {
        let first = match first {
            Some(first) => Some(first),
            None => self.node(&path[level])?.first_block(0),
        };
        let Some(first) = first else { return Ok(()) };
        for frame in path[..level].iter().rev() {
            let at = frame.taken();
            if self.node(frame)?.first_block(at) == Some(first) {
                return Ok(());
            }
            let key = entry_range(at).start..entry_range(at).start + 4;
            self.edit_node(frame, key).copy_from_slice(&first.0.to_le_bytes());
            if at > 0 {
                return Ok(());
            }
        }
        Ok(())
    }
}
