//! Names on their way into the hash index.
//!
//! The hash of a new name leads to any one of a large directory's leaves, which then comes from memory
//! that no processor has at hand, to take one entry and move half of the others. So for each leaf of a
//! large directory a *leaf buffer* is kept: a filter that says of most new hashes that the leaf does not
//! have them, and entries that *wait*: they are in the data blocks already, and go into the leaf together,
//! in one pass, when there are enough of them, when the leaf is changed for another reason, and when a
//! checkpoint is closed.
//!
//! Invariants:
//! - A leaf has room for what waits for it: `live` and `waiting` together are less than its capacity
//!   (one less, because a stale entry at the end keeps its place: the node above names its hash). So
//!   bringing entries into it never splits it: that takes no space, changes no other block and the inode
//!   neither, and fails only if the device does.
//! - The hash of what waits is below the highest one that the nodes above name for the leaf: it belongs
//!   into this leaf and no other, and the nodes need not change.
//! - A filter knows every hash of the leaf and of what waits for it. It may know more.
//! - What waits is nowhere else, so it is never dropped. All else can be read from the directory.

mod slab;

use smallvec::SmallVec;

use self::slab::{LINE_WORDS, Line, Slab, Slot};
use super::find::Waiting;
use crate::format::address::Block;
use crate::format::dir::leaf::LeafEntry;

/// Entries of a filter's line at most, so that it has 8 bits for each.
const HASHES_PER_LINE: usize = 64;
/// Bits that a hash sets in its line.
const BITS_PER_HASH: u32 = 4;

/// Entries of one leaf, or more where tests say so.
pub(super) type Entries = SmallVec<[LeafEntry; 36]>;

/// What is kept of a leaf.
#[derive(Default)]
struct LeafBuffer {
    /// The lines of the filter and behind them what waits. `None` if neither is kept.
    slot: Option<Slot>,
    block: u64,
    /// Entries of the leaf that are not stale.
    live: u16,
    waiting: u16,
    /// Hashes that were entered into the filter.
    marked: u16,
}

/// Where a hash is in a filter: its line and its bits there.
fn place_of(hash: u32, lines: usize) -> (usize, [(usize, u64); BITS_PER_HASH as usize]) {
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
    let (line, bits) = place_of(hash, filter);
    for (word, bit) in bits {
        lines[line].0[word] |= bit;
    }
}

fn may_have(lines: &[Line], hash: u32, filter: usize) -> bool {
    let (line, bits) = place_of(hash, filter);
    let line = &lines[line].0;
    bits.iter().all(|&(word, bit)| line[word] & bit != 0)
}

fn set_entry(lines: &mut [Line], filter: usize, index: usize, entry: LeafEntry) {
    lines[filter + index / LINE_WORDS].0[index % LINE_WORDS] = pack(entry);
}

/// How large leaf buffers are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Entries of a leaf.
    capacity: usize,
    /// Lines of a filter.
    filter: usize,
    /// Most entries that wait for a leaf.
    waiting_max: usize,
}

impl Shape {
    pub(super) fn new(leaf_capacity: usize, waiting_max: usize) -> Self {
        let waiting_max = waiting_max.min(leaf_capacity / 4);
        Self {
            capacity: leaf_capacity,
            filter: leaf_capacity.div_ceil(HASHES_PER_LINE),
            waiting_max,
        }
    }

    const fn lines(&self) -> usize {
        self.filter + self.waiting_max.div_ceil(LINE_WORDS)
    }

    /// Bytes that the buffer of a leaf takes.
    pub(super) const fn bytes(&self) -> usize {
        self.lines() * size_of::<Line>() + size_of::<LeafBuffer>()
    }
}

/// A step to take back.
enum Undo {
    /// An entry was added to those that wait for a leaf.
    Added(u32),
    /// Number of live entries of a leaf that nothing waited for.
    Lived(u32, u16),
    /// Number of live entries of a leaf, and what waited for it.
    Had(u32, u16, Box<Entries>),
    /// Another buffer took the place of this one.
    Replaced(u32, LeafBuffer),
}

/// What a leaf can do with one more entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The entry can wait.
    Waits,
    /// As many wait as may: all go into the leaf, and this one too.
    Merges,
    /// The leaf must be split first.
    Full,
}

/// The leaf buffers of a directory, by the numbers of the leaves.
pub(super) struct LeafBuffers {
    shape: Shape,
    leaves: Vec<LeafBuffer>,
    slab: Slab,
    /// Leaves that something waits for.
    pub(super) waiting: usize,
    /// Leaves with a buffer.
    pub(super) kept: usize,
    undo: Vec<Undo>,
}

impl LeafBuffers {
    pub(super) fn new(shape: Shape) -> Self {
        let slab = Slab::new(shape.lines());
        Self { shape, leaves: Vec::new(), slab, waiting: 0, kept: 0, undo: Vec::new() }
    }

    /// How large its buffers are.
    pub(super) const fn shape(&self) -> Shape {
        self.shape
    }

    /// The buffer of a leaf, if it has one, and its lines.
    fn get(&self, leaf: u32) -> Option<(&LeafBuffer, &[Line])> {
        let buffer = self.leaves.get(leaf as usize)?;
        Some((buffer, self.slab.get(buffer.slot?)))
    }

    /// Changes a buffer, and counts those that something waits for.
    fn set_waiting(&mut self, leaf: u32, change: impl FnOnce(&mut LeafBuffer)) {
        let buffer = &mut self.leaves[leaf as usize];
        let before = buffer.waiting > 0;
        change(buffer);
        match (before, buffer.waiting > 0) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            _ => {}
        }
    }

    /// Enters a hash into the filter of a leaf that has a buffer.
    fn mark(&mut self, leaf: u32, hash: u32) {
        let buffer = &mut self.leaves[leaf as usize];
        if let Some(slot) = buffer.slot {
            mark(self.slab.get_mut(slot), hash, self.shape.filter);
            buffer.marked = buffer.marked.saturating_add(1);
        }
    }

    /// Lets these entries wait and no others.
    fn set_entries(&mut self, leaf: u32, entries: &[LeafEntry]) {
        if let Some(slot) = self.leaves[leaf as usize].slot {
            let lines = self.slab.get_mut(slot);
            for (index, entry) in entries.iter().enumerate() {
                set_entry(lines, self.shape.filter, index, *entry);
            }
        }
        self.set_waiting(leaf, |buffer| buffer.waiting = entries.len() as u16);
    }

    fn replace(&mut self, leaf: u32, new: LeafBuffer) -> LeafBuffer {
        if leaf as usize >= self.leaves.len() {
            self.leaves.resize_with(leaf as usize + 1, LeafBuffer::default);
        }
        let is_kept = new.slot.is_some();
        self.waiting += usize::from(new.waiting > 0);
        let old = std::mem::replace(&mut self.leaves[leaf as usize], new);
        self.waiting -= usize::from(old.waiting > 0);
        self.kept += usize::from(is_kept);
        self.kept -= usize::from(old.slot.is_some());
        old
    }

    /// Whether neither a leaf nor what waits for it has a hash. False if that is not known.
    pub(super) fn lacks(&self, leaf: u32, hash: u32) -> bool {
        self.get(leaf).is_some_and(|(_, lines)| !may_have(lines, hash, self.shape.filter))
    }

    /// What waits for a leaf.
    pub(super) fn entries(&self, leaf: u32) -> impl Iterator<Item = LeafEntry> + '_ {
        let found = self.get(leaf).into_iter();
        found.flat_map(|(buffer, lines)| {
            let words = lines.iter().skip(self.shape.filter).flat_map(|line| line.0);
            words.take(buffer.waiting.into()).map(unpack)
        })
    }

    /// Addresses of what waits for a leaf with a hash.
    pub(super) fn with_hash(&self, leaf: u32, hash: u32) -> Waiting {
        self.entries(leaf).filter(|entry| entry.hash == hash).map(|entry| entry.address).collect()
    }

    /// How many entries wait for a leaf.
    pub(super) fn count(&self, leaf: u32) -> usize {
        self.get(leaf).map_or(0, |(buffer, _)| buffer.waiting.into())
    }

    /// What a leaf with a buffer can do with one more entry.
    pub(super) fn room(&self, leaf: u32) -> Room {
        let Some((buffer, _)) = self.get(leaf) else { return Room::Full };
        let waiting = usize::from(buffer.waiting);
        if usize::from(buffer.live) + waiting + 1 >= self.shape.capacity {
            Room::Full
        } else if waiting >= self.shape.waiting_max {
            Room::Merges
        } else {
            Room::Waits
        }
    }

    /// Lets an entry wait. There must be room.
    pub(super) fn push(&mut self, leaf: u32, entry: LeafEntry) {
        self.undo.push(Undo::Added(leaf));
        self.mark(leaf, entry.hash);
        let buffer = &self.leaves[leaf as usize];
        if let Some(slot) = buffer.slot {
            let index = buffer.waiting.into();
            set_entry(self.slab.get_mut(slot), self.shape.filter, index, entry);
        }
        self.set_waiting(leaf, |buffer| buffer.waiting += 1);
    }

    /// Takes out an entry that waits. False if it does not.
    pub(super) fn take(&mut self, leaf: u32, entry: LeafEntry) -> bool {
        let mut entries: Entries = self.entries(leaf).collect();
        let Some(at) = entries.iter().position(|other| *other == entry) else { return false };
        self.note_old(leaf);
        entries.swap_remove(at);
        self.set_entries(leaf, &entries);
        true
    }

    /// Notes what is to come back if the operation fails.
    fn note_old(&mut self, leaf: u32) {
        let Some((buffer, _)) = self.get(leaf) else { return };
        let step = if buffer.waiting == 0 {
            Undo::Lived(leaf, buffer.live)
        } else {
            Undo::Had(leaf, buffer.live, Box::new(self.entries(leaf).collect()))
        };
        self.undo.push(step);
    }

    /// What waited for a leaf is in it now, `more` beside, and it has `live` entries.
    pub(super) fn note_merged(&mut self, leaf: u32, more: Option<u32>, live: usize) {
        if self.get(leaf).is_none() {
            return;
        }
        self.note_old(leaf);
        if let Some(hash) = more {
            self.mark(leaf, hash);
        }
        self.set_waiting(leaf, |buffer| {
            buffer.live = live as u16;
            buffer.waiting = 0;
        });
    }

    /// A leaf has `live` entries now, and `hash` may be among them.
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
        self.get(leaf).is_some_and(|(buffer, _)| usize::from(buffer.marked) <= self.shape.capacity)
    }

    /// Makes the buffer of a leaf anew. Nothing may wait for it.
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
            mark(lines, entry.hash, self.shape.filter);
            live += 1;
        }
        let buffer =
            LeafBuffer { slot: Some(slot), block: block.0, live, marked: live, waiting: 0 };
        let old = self.replace(leaf, buffer);
        debug_assert_eq!(old.waiting, 0, "what waits goes into the leaf first");
        self.undo.push(Undo::Replaced(leaf, old));
    }

    /// Keeps nothing of a leaf any more. Nothing may wait for it.
    pub(super) fn forget(&mut self, leaf: u32) {
        if self.get(leaf).is_some() {
            let old = self.replace(leaf, LeafBuffer::default());
            debug_assert_eq!(old.waiting, 0, "what waits goes into the leaf first");
            self.undo.push(Undo::Replaced(leaf, old));
        }
    }

    /// The operation commits: nothing is taken back.
    pub(super) fn keep(&mut self) {
        while let Some(step) = self.undo.pop() {
            if let Undo::Replaced(_, LeafBuffer { slot: Some(slot), .. }) = step {
                self.slab.give(slot);
            }
        }
    }

    /// The operation failed: all is as it was, but that filters may know more hashes.
    pub(super) fn roll_back(&mut self) {
        while let Some(step) = self.undo.pop() {
            match step {
                Undo::Added(leaf) => self.set_waiting(leaf, |buffer| buffer.waiting -= 1),
                Undo::Lived(leaf, live) => self.set_waiting(leaf, |buffer| {
                    buffer.live = live;
                    buffer.waiting = 0;
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

    /// Leaves from `from` on that something waits for, with their blocks.
    pub(super) fn next_waiting(&self, from: u32) -> Option<(u32, Block)> {
        let rest = self.leaves.get(from as usize..)?;
        let found = rest.iter().position(|buffer| buffer.waiting > 0)?;
        Some((from + found as u32, Block(rest[found].block)))
    }

    /// What waited for a leaf is in it, for good.
    pub(super) fn settle(&mut self, leaf: u32) {
        self.set_waiting(leaf, |buffer| {
            buffer.live += buffer.waiting;
            buffer.waiting = 0;
        });
    }

    /// Gives all buffers up, if nothing waits.
    pub(super) fn clear(&mut self) {
        if self.waiting == 0 {
            *self = Self::new(self.shape);
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.slab.bytes() + self.leaves.len() * size_of::<LeafBuffer>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u32) -> LeafEntry {
        LeafEntry { hash, address: hash ^ 0x5555 }
    }

    fn buffers(waiting_max: usize) -> LeafBuffers {
        let mut buffers = LeafBuffers::new(Shape::new(504, waiting_max));
        buffers.make(3, Block(77), (0..400).map(|i| entry(i * 1000)));
        buffers.keep();
        buffers
    }

    #[test]
    fn filters_know_all_that_is_there_and_little_else() {
        let mut buffers = buffers(32);
        (0..32).for_each(|i| buffers.push(3, entry(i * 777 + 5)));
        assert!((0..400).all(|i| !buffers.lacks(3, i * 1000)));
        assert!((0..32).all(|i| !buffers.lacks(3, i * 777 + 5)));
        let wrong = (0..100_000).filter(|i| !buffers.lacks(3, 1_000_000 + i * 7)).count();
        assert!(wrong < 3_000, "{wrong} of 100000 hashes");
        assert!(!buffers.lacks(2, 1) && !buffers.lacks(4, 1), "nothing is known of these");
    }

    #[test]
    fn room_ends_with_what_may_wait_or_with_the_leaf() {
        let mut few = buffers(3);
        assert_eq!(few.room(3), Room::Waits);
        (0..3).for_each(|i| few.push(3, entry(i)));
        assert_eq!((few.room(3), few.count(3), few.waiting), (Room::Merges, 3, 1));
        few.note_merged(3, Some(9), 404);
        assert_eq!((few.room(3), few.count(3), few.waiting), (Room::Waits, 0, 0));
        let mut many = buffers(126);
        (0..104).for_each(|i| many.push(3, entry(i)));
        assert_eq!(many.room(3), Room::Full);
    }

    #[test]
    fn what_failed_is_taken_back() {
        let mut buffers = buffers(32);
        (0..10).for_each(|i| buffers.push(3, entry(i)));
        buffers.keep();
        let before: Vec<_> = buffers.entries(3).collect();
        buffers.push(3, entry(50));
        assert!(buffers.take(3, entry(4)) && !buffers.take(3, entry(4)));
        buffers.note_merged(3, None, 410);
        buffers.make(3, Block(77), std::iter::once(entry(1)));
        buffers.make(4, Block(78), std::iter::once(entry(2)));
        buffers.forget(3);
        assert_eq!((buffers.waiting, buffers.kept), (0, 1));
        buffers.roll_back();
        assert_eq!(buffers.entries(3).collect::<Vec<_>>(), before);
        assert_eq!(
            (buffers.waiting, buffers.kept, buffers.next_waiting(0)),
            (1, 1, Some((3, Block(77))))
        );
        assert!((0..400).all(|i| !buffers.lacks(3, i * 1000)));
        buffers.settle(3);
        assert_eq!(
            (buffers.waiting, buffers.next_waiting(0), buffers.leaves[3].live),
            (0, None, 410)
        );
    }
}
