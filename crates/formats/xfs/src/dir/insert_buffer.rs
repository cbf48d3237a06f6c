//! The insert buffer: names of a large directory that are not in its hash index yet.
//!
//! Hashes of new names are spread over all leaves, so each insertion would touch another leaf, in memory that is not
//! cached. For each leaf the insert buffer therefore keeps a filter and *buffered* entries. The filter shows for most
//! new hashes that the leaf does not have them. Buffered entries are already in the data blocks. They are merged into
//! the leaf together: when there are enough of them, when the leaf changes for another reason, and when a checkpoint is
//! closed.
//!
//! Invariants:
//! - `live` plus `buffered` of a leaf is less than its capacity. So merging never splits the leaf. It takes no space,
//!   changes no other block and no inode, and fails only if the device does. The sum must not equal the capacity:
//!   merging keeps a stale entry at the end, because the node above has its hash.
//! - The hash of a buffered entry is below the highest hash of the leaf in the nodes above. So it belongs to this leaf
//!   alone, and the nodes need not change.
//! - A filter contains every hash of the leaf and of its buffered entries. False positives are possible.
//! - Buffered entries exist nowhere else in the index, so they are never dropped. All else can be rebuilt.

mod slab;

use smallvec::SmallVec;

use self::slab::{LINE_WORDS, Line, Slab, Slot};
use crate::format::address::Block;
use crate::format::dir::leaf::LeafEntry;

/// Addresses of buffered entries with one hash.
pub(crate) type BufferedAddresses = SmallVec<[u32; 4]>;

/// Maximum number of hashes per filter line: 8 bits for each.
const HASHES_PER_LINE: usize = 64;
/// Bits that a hash sets in its line.
const BITS_PER_HASH: u32 = 4;

/// The buffered entries of one leaf, and one more. Tests may buffer more.
pub(super) type BufferedEntries = SmallVec<[LeafEntry; 36]>;

/// The insert buffer's data of one leaf.
#[derive(Default)]
struct BufferedLeaf {
    /// The lines of the filter, followed by the buffered entries. `None` without a buffer.
    slot: Option<Slot>,
    block: u64,
    /// Number of entries of the leaf that are not stale.
    live: u16,
    /// Number of buffered entries.
    buffered: u16,
    /// Number of hashes entered into the filter.
    marked: u16,
}

/// Returns the line of a filter that a hash belongs to, and its bits there.
fn bits_of(hash: u32, lines: usize) -> (usize, [(usize, u64); BITS_PER_HASH as usize]) {
    let mut mixed = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let line = ((mixed >> 48) as usize * lines) >> 16;
    let bit = |i: u32| {
        let at = mixed >> (i * 9);
        ((at >> 6 & 7) as usize, 1 << (at & 63))
    };
    (line, [bit(0), bit(1), bit(2), bit(3)])
}

const fn pack(entry: LeafEntry) -> u64 {
    (entry.hash as u64) << 32 | entry.address as u64
}

const fn unpack(word: u64) -> LeafEntry {
    LeafEntry { hash: (word >> 32) as u32, address: word as u32 }
}

fn mark(lines: &mut [Line], hash: u32, filter: usize) {
    let (line, bits) = bits_of(hash, filter);
    for (word, bit) in bits {
        lines[line].0[word] |= bit;
    }
}

fn may_have(lines: &[Line], hash: u32, filter: usize) -> bool {
    let (line, bits) = bits_of(hash, filter);
    let line = &lines[line].0;
    bits.iter().all(|&(word, bit)| line[word] & bit != 0)
}

fn set_entry(lines: &mut [Line], filter: usize, index: usize, entry: LeafEntry) {
    lines[filter + index / LINE_WORDS].0[index % LINE_WORDS] = pack(entry);
}

/// Size of the insert buffer's data of one leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferSize {
    /// Maximum number of entries of a leaf.
    capacity: usize,
    /// Number of lines of a filter.
    filter: usize,
    /// Maximum number of entries buffered for a leaf.
    buffered_max: usize,
}

impl BufferSize {
    pub(super) fn new(leaf_capacity: usize, buffered_max: usize) -> Self {
        let buffered_max = buffered_max.min(leaf_capacity / 4);
        Self {
            capacity: leaf_capacity,
            filter: leaf_capacity.div_ceil(HASHES_PER_LINE),
            buffered_max,
        }
    }

    const fn lines(&self) -> usize {
        self.filter + self.buffered_max.div_ceil(LINE_WORDS)
    }

    /// Returns the bytes of memory for one leaf.
    pub(super) const fn bytes(&self) -> usize {
        self.lines() * size_of::<Line>() + size_of::<BufferedLeaf>()
    }
}

/// A step to undo if the operation fails.
enum Undo {
    /// An entry was buffered for a leaf.
    Added(u32),
    /// The previous number of live entries of a leaf without buffered entries.
    Lived(u32, u16),
    /// The previous number of live entries of a leaf, and its previous buffered entries.
    Had(u32, u16, Box<BufferedEntries>),
    /// The buffer of a leaf was rebuilt; this is the previous one.
    Replaced(u32, BufferedLeaf),
}

/// Effect of inserting one more entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferRoom {
    /// It is buffered.
    Buffers,
    /// The buffer is full: all its entries and this one are merged into the leaf.
    Merges,
    /// The leaf must be split first.
    LeafFull,
}

/// The insert buffer of a directory.
pub(super) struct InsertBuffer {
    size: BufferSize,
    /// Indexed by leaf number.
    leaves: Vec<BufferedLeaf>,
    slab: Slab,
    /// Number of leaves with buffered entries.
    buffered_leaves: usize,
    /// Number of leaves with a buffer.
    kept: usize,
    undo: Vec<Undo>,
}

impl InsertBuffer {
    pub(super) fn new(size: BufferSize) -> Self {
        let slab = Slab::new(size.lines());
        Self { size, leaves: Vec::new(), slab, buffered_leaves: 0, kept: 0, undo: Vec::new() }
    }

    /// Returns the size of the data of one leaf.
    pub(super) const fn size(&self) -> BufferSize {
        self.size
    }

    /// Returns the number of leaves with buffered entries.
    pub(super) const fn buffered_leaves(&self) -> usize {
        self.buffered_leaves
    }

    /// Returns whether nothing is buffered.
    pub(super) const fn is_empty(&self) -> bool {
        self.buffered_leaves == 0
    }

    /// Returns the buffer of a leaf and its lines, if it has one.
    fn get(&self, leaf: u32) -> Option<(&BufferedLeaf, &[Line])> {
        let buffer = self.leaves.get(leaf as usize)?;
        Some((buffer, self.slab.get(buffer.slot?)))
    }

    /// Changes the buffer of a leaf, and updates the number of leaves with buffered entries.
    fn change_leaf(&mut self, leaf: u32, change: impl FnOnce(&mut BufferedLeaf)) {
        let buffer = &mut self.leaves[leaf as usize];
        let before = buffer.buffered > 0;
        change(buffer);
        match (before, buffer.buffered > 0) {
            (false, true) => self.buffered_leaves += 1,
            (true, false) => self.buffered_leaves -= 1,
            _ => {}
        }
    }

    /// Adds a hash to the filter of a leaf, if the leaf has a buffer.
    fn mark(&mut self, leaf: u32, hash: u32) {
        let buffer = &mut self.leaves[leaf as usize];
        if let Some(slot) = buffer.slot {
            mark(self.slab.get_mut(slot), hash, self.size.filter);
            buffer.marked = buffer.marked.saturating_add(1);
        }
    }

    /// Replaces the buffered entries of a leaf.
    fn set_entries(&mut self, leaf: u32, entries: &[LeafEntry]) {
        if let Some(slot) = self.leaves[leaf as usize].slot {
            let lines = self.slab.get_mut(slot);
            for (index, entry) in entries.iter().enumerate() {
                set_entry(lines, self.size.filter, index, *entry);
            }
        }
        self.change_leaf(leaf, |buffer| buffer.buffered = entries.len() as u16);
    }

    fn replace(&mut self, leaf: u32, new: BufferedLeaf) -> BufferedLeaf {
        if leaf as usize >= self.leaves.len() {
            self.leaves.resize_with(leaf as usize + 1, BufferedLeaf::default);
        }
        let is_kept = new.slot.is_some();
        self.buffered_leaves += usize::from(new.buffered > 0);
        let old = std::mem::replace(&mut self.leaves[leaf as usize], new);
        self.buffered_leaves -= usize::from(old.buffered > 0);
        self.kept += usize::from(is_kept);
        self.kept -= usize::from(old.slot.is_some());
        old
    }

    /// Returns whether a hash is known to be neither in a leaf nor buffered for it.
    pub(super) fn lacks(&self, leaf: u32, hash: u32) -> bool {
        self.get(leaf).is_some_and(|(_, lines)| !may_have(lines, hash, self.size.filter))
    }

    /// Returns the entries buffered for a leaf.
    pub(super) fn entries(&self, leaf: u32) -> impl Iterator<Item = LeafEntry> + '_ {
        let found = self.get(leaf).into_iter();
        found.flat_map(|(buffer, lines)| {
            let words = lines.iter().skip(self.size.filter).flat_map(|line| line.0);
            words.take(buffer.buffered.into()).map(unpack)
        })
    }

    /// Returns the addresses of the entries with a hash that are buffered for a leaf.
    pub(super) fn with_hash(&self, leaf: u32, hash: u32) -> BufferedAddresses {
        self.entries(leaf).filter(|entry| entry.hash == hash).map(|entry| entry.address).collect()
    }

    /// Returns the number of entries buffered for a leaf.
    pub(super) fn count(&self, leaf: u32) -> usize {
        self.get(leaf).map_or(0, |(buffer, _)| buffer.buffered.into())
    }

    /// Returns how one more entry of a leaf can be stored.
    pub(super) fn room(&self, leaf: u32) -> BufferRoom {
        let Some((buffer, _)) = self.get(leaf) else { return BufferRoom::LeafFull };
        let buffered = usize::from(buffer.buffered);
        if usize::from(buffer.live) + buffered + 1 >= self.size.capacity {
            BufferRoom::LeafFull
        } else if buffered >= self.size.buffered_max {
            BufferRoom::Merges
        } else {
            BufferRoom::Buffers
        }
    }

    /// Buffers an entry for a leaf. There must be room.
    pub(super) fn push(&mut self, leaf: u32, entry: LeafEntry) {
        self.undo.push(Undo::Added(leaf));
        self.mark(leaf, entry.hash);
        let buffer = &self.leaves[leaf as usize];
        if let Some(slot) = buffer.slot {
            let index = buffer.buffered.into();
            set_entry(self.slab.get_mut(slot), self.size.filter, index, entry);
        }
        self.change_leaf(leaf, |buffer| buffer.buffered += 1);
    }

    /// Removes a buffered entry. Returns false if it is not buffered.
    pub(super) fn take(&mut self, leaf: u32, entry: LeafEntry) -> bool {
        let mut entries: BufferedEntries = self.entries(leaf).collect();
        let Some(at) = entries.iter().position(|other| *other == entry) else { return false };
        self.note_old(leaf);
        entries.swap_remove(at);
        self.set_entries(leaf, &entries);
        true
    }

    /// Records a leaf's counts and entries, to be restored if the operation fails.
    fn note_old(&mut self, leaf: u32) {
        let Some((buffer, _)) = self.get(leaf) else { return };
        let step = if buffer.buffered == 0 {
            Undo::Lived(leaf, buffer.live)
        } else {
            Undo::Had(leaf, buffer.live, Box::new(self.entries(leaf).collect()))
        };
        self.undo.push(step);
    }

    /// Records that the buffered entries of a leaf and `more` were merged into it. The leaf now has `live` entries.
    pub(super) fn note_merged(&mut self, leaf: u32, more: Option<u32>, live: usize) {
        if self.get(leaf).is_none() {
            return;
        }
        self.note_old(leaf);
        if let Some(hash) = more {
            self.mark(leaf, hash);
        }
        self.change_leaf(leaf, |buffer| {
            buffer.live = live as u16;
            buffer.buffered = 0;
        });
    }

    /// Records that a leaf now has `live` entries, perhaps including the new hash `hash`.
    pub(super) fn note_live(&mut self, leaf: u32, hash: Option<u32>, live: usize) {
        if self.get(leaf).is_none() {
            return;
        }
        self.note_old(leaf);
        self.leaves[leaf as usize].live = live as u16;
        if let Some(hash) = hash {
            self.mark(leaf, hash);
        }
    }

    /// Returns whether a leaf has a buffer whose filter is not overfull.
    pub(super) fn is_useful(&self, leaf: u32) -> bool {
        self.get(leaf).is_some_and(|(buffer, _)| usize::from(buffer.marked) <= self.size.capacity)
    }

    /// Rebuilds the buffer of a leaf. Nothing may be buffered for it.
    pub(super) fn make(
        &mut self,
        leaf: u32,
        block: Block,
        entries: impl Iterator<Item = LeafEntry>,
    ) {
        let slot = self.slab.take();
        let lines = self.slab.get_mut(slot);
        let mut live = 0;
        for entry in entries {
            mark(lines, entry.hash, self.size.filter);
            live += 1;
        }
        let buffer =
            BufferedLeaf { slot: Some(slot), block: block.0, live, marked: live, buffered: 0 };
        let old = self.replace(leaf, buffer);
        debug_assert_eq!(old.buffered, 0, "buffered entries must be merged into the leaf first");
        self.undo.push(Undo::Replaced(leaf, old));
    }

    /// Drops the buffer of a leaf. Nothing may be buffered for it.
    pub(super) fn forget(&mut self, leaf: u32) {
        if self.get(leaf).is_some() {
            let old = self.replace(leaf, BufferedLeaf::default());
            debug_assert_eq!(
                old.buffered, 0,
                "buffered entries must be merged into the leaf first"
            );
            self.undo.push(Undo::Replaced(leaf, old));
        }
    }

    /// Keeps the changes of an operation that commits.
    pub(super) fn keep(&mut self) {
        while let Some(step) = self.undo.pop() {
            if let Undo::Replaced(_, BufferedLeaf { slot: Some(slot), .. }) = step {
                self.slab.give(slot);
            }
        }
    }

    /// Undoes the changes of a failed operation. Filters may contain additional hashes afterwards.
    pub(super) fn roll_back(&mut self) {
        while let Some(step) = self.undo.pop() {
            match step {
                Undo::Added(leaf) => self.change_leaf(leaf, |buffer| buffer.buffered -= 1),
                Undo::Lived(leaf, live) => self.change_leaf(leaf, |buffer| {
                    buffer.live = live;
                    buffer.buffered = 0;
                }),
                Undo::Had(leaf, live, entries) => {
                    self.leaves[leaf as usize].live = live;
                    self.set_entries(leaf, &entries);
                }
                Undo::Replaced(leaf, old) => {
                    if let Some(slot) = self.replace(leaf, old).slot {
                        self.slab.give(slot);
                    }
                }
            }
        }
    }

    /// Returns the first leaf from number `from` on with buffered entries, and its block.
    pub(super) fn next_leaf(&self, from: u32) -> Option<(u32, Block)> {
        let rest = self.leaves.get(from as usize..)?;
        let found = rest.iter().position(|buffer| buffer.buffered > 0)?;
        Some((from + found as u32, Block(rest[found].block)))
    }

    /// Records that the buffered entries of a leaf were merged into it permanently.
    pub(super) fn note_flushed(&mut self, leaf: u32) {
        self.change_leaf(leaf, |buffer| {
            buffer.live += buffer.buffered;
            buffer.buffered = 0;
        });
    }

    /// Drops the buffers of all leaves, if nothing is buffered.
    pub(super) fn clear(&mut self) {
        if self.buffered_leaves == 0 {
            *self = Self::new(self.size);
        }
    }

    /// Returns the bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.slab.bytes() + self.leaves.len() * size_of::<BufferedLeaf>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u32) -> LeafEntry {
        LeafEntry { hash, address: hash ^ 0x5555 }
    }

    fn buffer(buffered_max: usize) -> InsertBuffer {
        let mut buffer = InsertBuffer::new(BufferSize::new(504, buffered_max));
        buffer.make(3, Block(77), (0..400).map(|i| entry(i * 1000)));
        buffer.keep();
        buffer
    }

    #[test]
    fn filters_know_all_that_is_there_and_little_else() {
        let mut buffer = buffer(32);
        (0..32).for_each(|i| buffer.push(3, entry(i * 777 + 5)));
        assert!((0..400).all(|i| !buffer.lacks(3, i * 1000)));
        assert!((0..32).all(|i| !buffer.lacks(3, i * 777 + 5)));
        let wrong = (0..100_000).filter(|i| !buffer.lacks(3, 1_000_000 + i * 7)).count();
        assert!(wrong < 3_000, "{wrong} of 100000 hashes");
        assert!(!buffer.lacks(2, 1) && !buffer.lacks(4, 1), "nothing is known of these");
    }

    #[test]
    fn room_ends_with_the_buffer_or_with_the_leaf() {
        let mut few = buffer(3);
        assert_eq!(few.room(3), BufferRoom::Buffers);
        (0..3).for_each(|i| few.push(3, entry(i)));
        assert_eq!((few.room(3), few.count(3), few.buffered_leaves), (BufferRoom::Merges, 3, 1));
        few.note_merged(3, Some(9), 404);
        assert_eq!((few.room(3), few.count(3), few.buffered_leaves), (BufferRoom::Buffers, 0, 0));
        let mut many = buffer(126);
        (0..104).for_each(|i| many.push(3, entry(i)));
        assert_eq!(many.room(3), BufferRoom::LeafFull);
    }

    #[test]
    fn failed_operations_are_rolled_back() {
        let mut buffer = buffer(32);
        (0..10).for_each(|i| buffer.push(3, entry(i)));
        buffer.keep();
        let before: Vec<_> = buffer.entries(3).collect();
        buffer.push(3, entry(50));
        assert!(buffer.take(3, entry(4)) && !buffer.take(3, entry(4)));
        buffer.note_merged(3, None, 410);
        buffer.make(3, Block(77), std::iter::once(entry(1)));
        buffer.make(4, Block(78), std::iter::once(entry(2)));
        buffer.forget(3);
        assert_eq!((buffer.buffered_leaves, buffer.kept), (0, 1));
        buffer.roll_back();
        assert_eq!(buffer.entries(3).collect::<Vec<_>>(), before);
        assert_eq!(
            (buffer.buffered_leaves, buffer.kept, buffer.next_leaf(0)),
            (1, 1, Some((3, Block(77))))
        );
        assert!((0..400).all(|i| !buffer.lacks(3, i * 1000)));
        buffer.note_flushed(3);
        assert_eq!(
            (buffer.buffered_leaves, buffer.next_leaf(0), buffer.leaves[3].live),
            (0, None, 410)
        );
    }
}
