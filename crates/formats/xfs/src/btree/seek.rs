//! Finding records: descending from the root, and moving between adjacent records.

use operations::Outcome;

use super::{Anchor, Cursor, Frame, Node, PathState, RecordPlace, Seek, Tree};
use crate::format::btree::{NO_SIBLING, Side};

/// Returns the first of `0..count` for which `before` is false. `before` must be true up to some index and false from
/// there on.
pub(super) fn first_not(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<'a, T: Tree, A: Anchor<'a, T>> Cursor<'_, 'a, T, A> {
    /// Moves to a record. If there is none, the cursor has no position.
    pub(crate) fn seek(&mut self, key: T::Key, seek: Seek) -> Outcome<Option<T::Record>> {
        self.descend(key)?;
        let Frame { node, position } = self.path[0];
        let is_here = position < self.count(node);
        let is_exact = is_here && T::key_in_record(self.entry(node, position)) == key;
        match seek {
            _ if is_exact => self.arrive(),
            Seek::Exactly => Ok(None),
            Seek::AtMost if position > 0 => {
                self.path[0].position -= 1;
                self.arrive()
            }
            Seek::AtMost => self.cross(Side::Left),
            Seek::AtLeast if is_here => self.arrive(),
            Seek::AtLeast => self.cross(Side::Right),
        }
    }

    /// Moves to the next record. At the end, the cursor has no position.
    pub(crate) fn next(&mut self) -> Outcome<Option<T::Record>> {
        if self.state != PathState::At {
            return Ok(None);
        }
        let Frame { node, position } = self.path[0];
        if position + 1 < self.count(node) {
            self.path[0].position += 1;
            return self.arrive();
        }
        self.cross(Side::Right)
    }

    /// Moves to the previous record. At the start, the cursor has no position.
    pub(crate) fn previous(&mut self) -> Outcome<Option<T::Record>> {
        if self.state != PathState::At {
            return Ok(None);
        }
        if self.path[0].position > 0 {
            self.path[0].position -= 1;
            return self.arrive();
        }
        self.cross(Side::Left)
    }

    /// Returns the next record without moving the cursor.
    pub(crate) fn peek_next(&mut self) -> Outcome<Option<T::Record>> {
        let Frame { node, position } = self.path[0];
        if self.state == PathState::At && position + 1 < self.count(node) {
            return Ok(Some(T::record(self.entry(node, position + 1))));
        }
        let (path, state) = (self.path, self.state);
        let next = self.next();
        (self.path, self.state) = (path, state);
        next
    }

    /// Returns the previous record without moving the cursor.
    pub(crate) fn peek_previous(&mut self) -> Outcome<Option<T::Record>> {
        let Frame { node, position } = self.path[0];
        if self.state == PathState::At && position > 0 {
            return Ok(Some(T::record(self.entry(node, position - 1))));
        }
        if self.levels == 1 {
            return Ok(None);
        }
        let (path, state) = (self.path, self.state);
        let previous = self.previous();
        (self.path, self.state) = (path, state);
        previous
    }

    /// Returns the location of the cursor's record. The leaf must be a block.
    pub(crate) fn place(&self) -> Option<RecordPlace> {
        let Frame { node, position } = self.path[0];
        (self.state == PathState::At).then_some(RecordPlace { leaf: node.block, position })
    }

    /// Makes the path lead to the position of a record with a key, which may not exist.
    pub(super) fn descend(&mut self, key: T::Key) -> Outcome<()> {
        self.state = PathState::Nowhere;
        let mut node = self.top()?;
        while node.level > 0 {
            let (area, bytes) = (self.area(node), self.bytes(node));
            let is_before = |at| T::key(area.entry(bytes, at)) <= key;
            let position = first_not(area.count(bytes), is_before).saturating_sub(1);
            let pointer = area.pointer(bytes, position);
            self.path[node.level] = Frame { node, position };
            node = self.enter(pointer, node.level - 1)?;
        }
        let (area, bytes) = (self.area(node), self.bytes(node));
        let is_before = |at| T::key_in_record(area.entry(bytes, at)) < key;
        let position = first_not(area.count(bytes), is_before);
        self.path[0] = Frame { node, position };
        self.state = PathState::For(key);
        Ok(())
    }

    /// Returns the record that the path leads to, and makes it the cursor's position.
    fn arrive(&mut self) -> Outcome<Option<T::Record>> {
        let Frame { node, position } = self.path[0];
        self.state = PathState::At;
        Ok(Some(T::record(self.entry(node, position))))
    }

    /// Moves to the nearest record of the next leaf on a side.
    fn cross(&mut self, side: Side) -> Outcome<Option<T::Record>> {
        let Some(turn) = (1..self.levels).find(|level| self.can_step(*level, side)) else {
            // After a search the path remains valid for an insertion.
            if self.state == PathState::At {
                self.state = PathState::Nowhere;
            }
            let leaf = self.path[0].node;
            if self.levels > 1 && self.sibling(leaf, side) != NO_SIBLING {
                return Err(self.damage(leaf, "a sibling past the end of its level").into());
            }
            return Ok(None);
        };
        self.state = PathState::Nowhere;
        let old = self.path[0].node;
        self.step(turn, side);
        for level in (0..turn).rev() {
            let above = self.path[level + 1];
            let node = self.child(above.node, above.position)?;
            let position = if side == Side::Left { self.count(node).saturating_sub(1) } else { 0 };
            self.path[level] = Frame { node, position };
        }
        let new = self.path[0].node;
        let (left, right) = if side == Side::Left { (new, old) } else { (old, new) };
        self.check_siblings(left, right)?;
        self.check_order(left, right)?;
        self.arrive()
    }

    fn can_step(&self, level: usize, side: Side) -> bool {
        let Frame { node, position } = self.path[level];
        match side {
            Side::Left => position > 0,
            Side::Right => position + 1 < self.count(node),
        }
    }

    fn step(&mut self, level: usize, side: Side) {
        match side {
            Side::Left => self.path[level].position -= 1,
            Side::Right => self.path[level].position += 1,
        }
    }

    /// Checks that the keys of two adjacent leaves ascend, so that every walk through the tree ends.
    fn check_order(&self, left: Node, right: Node) -> Outcome<()> {
        let count = self.count(left);
        if count == 0 || self.count(right) == 0 {
            return Ok(());
        }
        let last = T::key_in_record(self.entry(left, count - 1));
        if last < T::key_in_record(self.entry(right, 0)) {
            return Ok(());
        }
        Err(self
            .damage(right, "its records are not greater than those of the previous block")
            .into())
    }
}
