//! The insert buffer: names of a large directory that are not in its hash index yet.
//!
//! The hash of a new name leads to any one of a large directory's leaves, which then comes from memory
//! that no processor has at hand, to take one entry and move half of the others. So for each leaf of a
//! large directory the insert buffer keeps a filter, which says of most new hashes that the leaf does not
//! have them, and *buffered* entries: they are in the data blocks already, and go into the leaf together,
//! in one pass, when there are enough of them, when the leaf is changed for another reason, and when a
//! checkpoint is closed.
//!
//! Invariants:
//! - A leaf has room for what is buffered for it: `live` and `buffered` together are less than its capacity
//!   (one less, because a stale entry at the end keeps its place: the node above names its hash). So
//!   merging entries into it never splits it: that takes no space, changes no other block and no inode, and
//!   fails only if the device does.
//! - The hash of a buffered entry is below the highest one that the nodes above name for the leaf: it
//!   belongs into this leaf and no other, and the nodes need not change.
//! - A filter knows every hash of the leaf and of what is buffered for it. It may know more.
//! - Buffered entries are nowhere else, so they are never dropped. All else can be read from the directory.

mod slab;

use smallvec::SmallVec;

use self::slab::{LINE_WORDS, Line, Slab, Slot};
use crate::format::address::Block;
use crate::format::dir::leaf::LeafEntry;

/// Addresses of entries whose hash is in the insert buffer.
pub(crate) type BufferedAddresses = SmallVec<[u32; 4]>;

/// Entries of a filter's line at most, so that it has 8 bits for each.
const HASHES_PER_LINE: usize = 64;
/// Bits that a hash sets in its line.
const BITS_PER_HASH: u32 = 4;

/// The buffered entries of one leaf, and one more. Tests may buffer more.
pub(super) type BufferedEntries = SmallVec<[LeafEntry; 36]>;

/// What the buffer keeps of a leaf.
#[derive(Default)]
struct BufferedLeaf {
    /// The lines of the filter, and behind them the buffered entries. `None` if neither is kept.
    slot: Option<Slot>,
    block: u64,
    /// Entries of the leaf that are not stale.
    live: u16,
    /// Buffered entries.
    buffered: u16,
    /// Hashes that were entered into the filter.
    marked: u16,
}

/// The line of a filter that a hash belongs to, and its bits there.
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

/// How much the insert buffer takes for each leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferSize {
    /// Entries of a leaf.
    capacity: usize,
    /// Lines of a filter.
    filter: usize,
    /// Most entries that are buffered for a leaf.
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

    /// Bytes for one leaf.
    pub(super) const fn bytes(&self) -> usize {
        self.lines() * size_of::<Line>() + size_of::<BufferedLeaf>()
    }
}

/// A step to take back.
enum Undo {
    /// An entry was buffered for a leaf.
    Added(u32),
    /// Number of live entries of a leaf that nothing was buffered for.
    Lived(u32, u16),
    /// Number of live entries of a leaf, and what was buffered for it.
    Had(u32, u16, Box<BufferedEntries>),
    /// The buffer of a leaf was made anew; this is the old one.
    Replaced(u32, BufferedLeaf),
}

/// What becomes of one more entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferRoom {
    /// It is buffered.
    Buffers,
    /// The buffer is full: all go into the leaf, and this one too.
    Merges,
    /// The leaf must be split first.
    LeafFull,
}

/// The insert buffer of a directory.
pub(super) struct InsertBuffer {
    size: BufferSize,
    /// By the numbers of the leaves.
    leaves: Vec<BufferedLeaf>,
    slab: Slab,
    /// Leaves that something is buffered for.
    buffered_leaves: usize,
    /// Leaves with a buffer.
    kept: usize,
    undo: Vec<Undo>,
}

impl InsertBuffer {
    pub(super) fn new(size: BufferSize) -> Self {
        let slab = Slab::new(size.lines());
        Self { size, leaves: Vec::new(), slab, buffered_leaves: 0, kept: 0, undo: Vec::new() }
    }

    /// How much it takes for each leaf.
    pub(super) const fn size(&self) -> BufferSize {
        self.size
    }

    /// The number of leaves that something is buffered for.
    pub(super) const fn buffered_leaves(&self) -> usize {
        self.buffered_leaves
    }

    /// Whether nothing is buffered.
    pub(super) const fn is_empty(&self) -> bool {
        self.buffered_leaves == 0
    }

    /// The buffer of a leaf, if it has one, and its lines.
    fn get(&self, leaf: u32) -> Option<(&BufferedLeaf, &[Line])> {
        let buffer = self.leaves.get(leaf as usize)?;
        Some((buffer, self.slab.get(buffer.slot?)))
    }

    /// Changes the buffer of a leaf, and counts the leaves that something is buffered for.
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

    /// Enters a hash into the filter of a leaf that has a buffer.
    fn mark(&mut self, leaf: u32, hash: u32) {
        let buffer = &mut self.leaves[leaf as usize];
        if let Some(slot) = buffer.slot {
            mark(self.slab.get_mut(slot), hash, self.size.filter);
            buffer.marked = buffer.marked.saturating_add(1);
        }
    }

    /// Buffers these entries for a leaf and no others.
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

    /// Whether neither a leaf nor what is buffered for it has a hash. False if that is not known.
    pub(super) fn lacks(&self, leaf: u32, hash: u32) -> bool {
        self.get(leaf).is_some_and(|(_, lines)| !may_have(lines, hash, self.size.filter))
    }

    /// What is buffered for a leaf.
    pub(super) fn entries(&self, leaf: u32) -> impl Iterator<Item = LeafEntry> + '_ {
        let found = self.get(leaf).into_iter();
        found.flat_map(|(buffer, lines)| {
            let words = lines.iter().skip(self.size.filter).flat_map(|line| line.0);
            words.take(buffer.buffered.into()).map(unpack)
        })
    }

    /// Addresses of entries with a hash that are buffered for a leaf.
    pub(super) fn with_hash(&self, leaf: u32, hash: u32) -> BufferedAddresses {
        self.entries(leaf).filter(|entry| entry.hash == hash).map(|entry| entry.address).collect()
    }

    /// The number of entries that are buffered for a leaf.
    pub(super) fn count(&self, leaf: u32) -> usize {
        self.get(leaf).map_or(0, |(buffer, _)| buffer.buffered.into())
    }

    /// What becomes of one more entry of a leaf.
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

    /// Takes a buffered entry out. False if there is none.
    pub(super) fn take(&mut self, leaf: u32, entry: LeafEntry) -> bool {
        let mut entries: BufferedEntries = self.entries(leaf).collect();
        let Some(at) = entries.iter().position(|other| *other == entry) else { return false };
        self.note_old(leaf);
        entries.swap_remove(at);
        self.set_entries(leaf, &entries);
        true
    }

    /// Notes what is to come back if the operation fails.
    fn note_old(&mut self, leaf: u32) {
        let Some((buffer, _)) = self.get(leaf) else { return };
        let step = if buffer.buffered == 0 {
            Undo::Lived(leaf, buffer.live)
        } else {
            Undo::Had(leaf, buffer.live, Box::new(self.entries(leaf).collect()))
        };
        self.undo.push(step);
    }

    /// Notes that what was buffered for a leaf is in it now, and `more`; and that it has `live` entries.
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

    /// Notes that a leaf has `live` entries now, and `hash` perhaps among them.
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

    /// Whether a leaf has a buffer whose filter is good for something.
    pub(super) fn is_useful(&self, leaf: u32) -> bool {
        self.get(leaf).is_some_and(|(buffer, _)| usize::from(buffer.marked) <= self.size.capacity)
    }

    /// Makes the buffer of a leaf anew. Nothing may be buffered for it.
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
        debug_assert_eq!(old.buffered, 0, "what is buffered goes into the leaf first");
        self.undo.push(Undo::Replaced(leaf, old));
    }

    /// Gives the buffer of a leaf up. Nothing may be buffered for it.
    pub(super) fn forget(&mut self, leaf: u32) {
        if self.get(leaf).is_some() {
            let old = self.replace(leaf, BufferedLeaf::default());
            debug_assert_eq!(old.buffered, 0, "what is buffered goes into the leaf first");
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

    /// Takes back the changes of an operation that failed. Filters may know more hashes afterwards.
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

    /// The first leaf from `from` on that something is buffered for, and its block.
    pub(super) fn next_leaf(&self, from: u32) -> Option<(u32, Block)> {
        let rest = self.leaves.get(from as usize..)?;
        let found = rest.iter().position(|buffer| buffer.buffered > 0)?;
        Some((from + found as u32, Block(rest[found].block)))
    }

    /// Notes that what was buffered for a leaf is in it for good.
    pub(super) fn note_flushed(&mut self, leaf: u32) {
        self.change_leaf(leaf, |buffer| {
            buffer.live += buffer.buffered;
            buffer.buffered = 0;
        });
    }

    /// Gives the buffers of all leaves up, if nothing is buffered.
    pub(super) fn clear(&mut self) {
        if self.buffered_leaves == 0 {
            *self = Self::new(self.size);
        }
    }

    /// Bytes of memory.
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
    fn what_failed_is_taken_back() {
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
