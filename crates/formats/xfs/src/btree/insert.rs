//! Changing and adding records. If a leaf is full, entries move to a neighbour below the same parent that has room, or
//! to a new block.

use engine::{BufferId, Corruption, Txn};
use operations::Outcome;

use super::{Cursor, Frame, Node, PathState, Supply, Tree};
use crate::format::btree::{LEVELS_MAX, NO_SIBLING, RECORD_SIZE_MAX, Side};

/// Maximum number of structural changes until a leaf has room, with a margin.
const ROUNDS_MAX: usize = 4 * LEVELS_MAX;

/// Entries move to a neighbour only if this fraction of its capacity is free: moving few entries costs as much as
/// moving many.
const ROOM_PART: usize = 8;

impl<'a, T: Tree, S: Supply<'a, T>> Cursor<'_, 'a, T, S> {
    /// Replaces the cursor's record. The new record must sort at the same position.
    pub(crate) fn update(&mut self, record: T::Record) -> Outcome<()> {
        if self.replace_here(&record)? {
            return Ok(());
        }
        Err(self.damage(self.path[0].node, "records that overlap").into())
    }

    /// Replaces the cursor's record. The new record may sort at another position.
    pub(crate) fn replace(&mut self, record: T::Record) -> Outcome<()> {
        if self.replace_here(&record)? {
            return Ok(());
        }
        self.remove()?;
        self.insert(record)
    }

    /// Replaces the cursor's record if the new one has the same position in the order. Returns whether it did.
    fn replace_here(&mut self, record: &T::Record) -> Outcome<bool> {
        let Frame { node, position } = self.path[0];
        if self.state != PathState::At {
            return Err(self.in_tree(Corruption::new(T::SHAPE.name, "no record to change")).into());
        }
        let mut new = [0; RECORD_SIZE_MAX];
        T::put_record(record, &mut new);
        let old = self.entry(node, position);
        let Some((first, last)) = difference(old, &new) else { return Ok(true) };
        if !self.fits(record)? {
            return Ok(false);
        }
        let gone = T::OVERLAPS.then(|| T::high_key_of(&T::record(self.entry(node, position))));
        let start = self.area(node).entry_range(position, position).start;
        let place = start + first..start + last + 1;
        self.edit(node, place).copy_from_slice(&new[first..=last]);
        self.record_changed(position, gone, gone.map(|_| T::high_key_of(record)));
        Ok(true)
    }

    /// Returns whether a record belongs between the neighbours of the cursor's record.
    fn fits(&mut self, record: &T::Record) -> Outcome<bool> {
        let Frame { node, position } = self.path[0];
        let key = T::key_of(record);
        let old = T::key_in_record(self.entry(node, position));
        if key < old {
            return Ok(self.key_before()?.is_none_or(|before| before < key));
        }
        Ok(key == old || self.key_after().is_none_or(|after| key < after))
    }

    /// Returns the key of the record before the cursor's.
    fn key_before(&mut self) -> Outcome<Option<T::Key>> {
        let Frame { node, position } = self.path[0];
        if position > 0 {
            return Ok(Some(T::key_in_record(self.entry(node, position - 1))));
        }
        let before = self.sibling(node, Side::Left);
        if self.levels == 1 || before == NO_SIBLING {
            return Ok(None);
        }
        let before = self.enter(before, 0)?;
        self.check_siblings(before, node)?;
        let last = self.count(before).checked_sub(1);
        Ok(last.map(|last| T::key_in_record(self.entry(before, last))))
    }

    /// Returns the key of the record after the cursor's. Parents store the keys of their children's first records.
    fn key_after(&self) -> Option<T::Key> {
        let after = |level| {
            let Frame { node, position } = self.path[level];
            (position + 1 < self.count(node)).then(|| (node, self.entry(node, position + 1)))
        };
        let (node, entry) = (0..self.levels).find_map(after)?;
        Some(if node.level == 0 { T::key_in_record(entry) } else { T::key(entry) })
    }

    /// Inserts a record, and moves the cursor to it. There must be no record with the same key.
    pub(crate) fn insert(&mut self, record: T::Record) -> Outcome<()> {
        let key = T::key_of(&record);
        for _ in 0..ROUNDS_MAX {
            self.aim(key)?;
            let Frame { node, position } = self.path[0];
            let count = self.count(node);
            if position < count && T::key_in_record(self.entry(node, position)) == key {
                return Err(self.damage(node, "an unexpected record").into());
            }
            if count < self.area(node).max {
                let mut bytes = [0; RECORD_SIZE_MAX];
                T::put_record(&record, &mut bytes);
                self.put_in(node, position, &bytes[..T::SHAPE.record_size], &[]);
                let high = T::OVERLAPS.then(|| T::high_key_of(&record));
                self.record_changed(position, None, high);
                self.state = PathState::At;
                return Ok(());
            }
            self.state = PathState::Nowhere;
            self.make_room()?;
        }
        Err(self.in_tree(Corruption::new(T::SHAPE.name, "no space after splitting")).into())
    }

    /// Makes the path lead to the position of a record with `key`. In most cases that is next to the cursor's record.
    fn aim(&mut self, key: T::Key) -> Outcome<()> {
        if self.state == PathState::For(key) {
            return Ok(());
        }
        if self.state == PathState::At {
            let Frame { node, position } = self.path[0];
            let key_at = |at| T::key_in_record(self.entry(node, at));
            let is_behind =
                key_at(position) < key && self.key_after().is_none_or(|after| key < after);
            let is_before = position > 0 && key_at(position - 1) < key && key < key_at(position);
            if is_behind || is_before {
                self.path[0].position += usize::from(is_behind);
                self.state = PathState::For(key);
                return Ok(());
            }
        }
        self.descend(key)
    }

    /// Makes one structural change towards room in the leaf on the path.
    fn make_room(&mut self) -> Outcome<()> {
        for level in 0..self.levels {
            let Some(above) = self.frame_above(level) else { return self.grow() };
            if self.relieve(level, above)? {
                return Ok(());
            }
            if self.count(above.node) < self.area(above.node).max {
                return self.split(level, above);
            }
        }
        Ok(())
    }

    /// Moves entries of a full node to a neighbour below the same parent. Returns false if no neighbour has room.
    ///
    /// With ascending keys, entries are inserted at the end of the node. Then as many as fit move to the left
    /// neighbour, so that the blocks of a tree that grows at its end are full. Otherwise the entries are distributed
    /// evenly.
    fn relieve(&mut self, level: usize, above: Frame) -> Outcome<bool> {
        let Frame { node, position } = self.path[level];
        let count = self.count(node);
        let children = self.count(above.node);
        let has = [above.position > 0, above.position + 1 < children];
        for (side, _) in [Side::Left, Side::Right].into_iter().zip(has).filter(|(_, has)| *has) {
            let (beside, at_edge) = match side {
                Side::Left => (above.position - 1, position + usize::from(level > 0) >= count),
                Side::Right => (above.position + 1, position == 0),
            };
            let neighbour = self.child(above.node, beside)?;
            let taken = self.count(neighbour);
            let room = self.area(neighbour).max - taken;
            if room < 2 || room * ROOM_PART < self.area(neighbour).max {
                continue;
            }
            let moved = if at_edge { room } else { room / 2 };
            let moved = moved.min(count - self.area(node).min());
            match side {
                Side::Left => {
                    self.check_siblings(neighbour, node)?;
                    self.carry(node, 0..moved, neighbour, taken);
                }
                Side::Right => {
                    self.check_siblings(node, neighbour)?;
                    self.carry(node, count - moved..count, neighbour, 0);
                }
            }
            self.refresh_in(above.node, above.position, node);
            self.refresh_in(above.node, beside, neighbour);
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves half the entries of a full node to a new one. The parent must have room.
    fn split(&mut self, level: usize, above: Frame) -> Outcome<()> {
        let left = self.path[level].node;
        let outer = self.sibling(left, Side::Right);
        let right = self.new_node(level, left.block)?;
        let count = self.count(left);
        self.carry(left, count - count / 2..count, right, 0);
        self.join(left, right, outer)?;
        self.refresh_in(above.node, above.position, left);
        self.put_child(above.node, above.position + 1, right);
        Ok(())
    }

    /// Adds a level to the tree: the only entry of the new root leads to the old one.
    fn grow(&mut self) -> Outcome<()> {
        if self.levels >= LEVELS_MAX {
            return Err(self.in_tree(Corruption::new(T::SHAPE.name, "too many levels")).into());
        }
        let top = self.path[self.levels - 1].node;
        if top.buffer.is_none() {
            return self.grow_in_fork(top);
        }
        let root = self.new_node(self.levels, top.block)?;
        self.put_child(root, 0, top);
        self.anchor.set_root(root.block, self.levels as u8 + 1);
        Ok(())
    }

    /// Moves the entries of a root in a fork to a new block.
    fn grow_in_fork(&mut self, top: Node) -> Outcome<()> {
        // A leaf has no pointers. The owner knows a place for the first block of its tree.
        let near = if top.level > 0 { self.pointer(top, 0) } else { 0 };
        let child = self.new_node(top.level, near)?;
        let count = self.count(top);
        self.carry(top, 0..count, child, 0);
        self.set_root_level(top, top.level + 1);
        self.put_child(Node { level: top.level + 1, ..top }, 0, child);
        Ok(())
    }

    pub(super) fn set_root_level(&mut self, root: Node, level: usize) {
        let range = self.root.level_range();
        self.edit(root, range).copy_from_slice(&(level as u16).to_be_bytes());
    }
}

/// Replaces the record at byte offset `at` of a leaf by one with the same key. For trees without overlapping records,
/// so no keys in nodes change.
pub(crate) fn replace_record<T: Tree>(
    txn: &mut Txn<'_>,
    (leaf, at): (BufferId, usize),
    record: &T::Record,
) {
    const { assert!(!T::OVERLAPS, "nodes lack the highest key") };
    let mut new = [0; RECORD_SIZE_MAX];
    T::put_record(record, &mut new);
    let old = &txn.data(leaf)[at..at + T::SHAPE.record_size];
    if let Some((first, last)) = difference(old, &new) {
        txn.edit(leaf, at + first..at + last + 1).copy_from_slice(&new[first..=last]);
    }
}

/// Returns the first and the last byte of `old` that differ from `new`, which may be longer.
fn difference(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let mut pairs = old.iter().zip(&new[..old.len()]);
    let first = pairs.clone().position(|(old, new)| old != new)?;
    let last = pairs.rposition(|(old, new)| old != new)?;
    Some((first, last))
}
