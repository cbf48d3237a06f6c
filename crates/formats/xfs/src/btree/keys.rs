//! Updating the keys that nodes store for their children.

use super::{Anchor, Cursor, Node, Tree};
use crate::format::btree::{KEY_SIZE_MAX, pointer_bytes};

/// The keys of a node as stored in its parent.
type KeyBytes = [u8; KEY_SIZE_MAX];

impl<'a, T: Tree, A: Anchor<'a, T>> Cursor<'_, 'a, T, A> {
    /// Size of the lower key.
    pub(super) const LOW_SIZE: usize =
        if T::OVERLAPS { T::SHAPE.key_size / 2 } else { T::SHAPE.key_size };

    /// Updates the nodes above after a record of the path's leaf was added, changed or removed: its position, and the
    /// highest keys covered by the removed and the new record.
    pub(super) fn record_changed(
        &mut self,
        position: usize,
        gone: Option<T::Key>,
        new: Option<T::Key>,
    ) {
        let (mut at_start, mut gone, mut new) = (position == 0, gone, new);
        for level in 0..self.levels.saturating_sub(1) {
            if !at_start && !T::OVERLAPS {
                return;
            }
            let (child, above) = (self.path[level].node, self.path[level + 1]);
            let old = self.keys_in(above.node, above.position);
            let mut keys = old;
            if at_start {
                self.put_low(child, &mut keys);
            }
            if T::OVERLAPS {
                let was = T::key(&old[Self::LOW_SIZE..]);
                let highest = match new {
                    _ if gone == Some(was) => self.highest(child),
                    Some(new) => Some(new.max(was)),
                    None => Some(was),
                };
                let now = highest.unwrap_or(was);
                T::put_key(&now, &mut keys[Self::LOW_SIZE..T::SHAPE.key_size]);
                (gone, new) = (Some(was), Some(now));
            }
            if !self.set_keys(above.node, above.position, &keys) {
                return;
            }
            at_start &= above.position == 0;
        }
    }

    /// Updates the keys of the path's nodes in their parents, from `level` up as long as they change.
    pub(super) fn refresh(&mut self, level: usize) {
        for level in level..self.levels.saturating_sub(1) {
            let above = self.path[level + 1];
            if !self.refresh_in(above.node, above.position, self.path[level].node) {
                return;
            }
        }
    }

    /// Updates the keys of one child. Returns whether they changed.
    pub(super) fn refresh_in(&mut self, parent: Node, at: usize, child: Node) -> bool {
        let keys = self.keys_of(child);
        self.set_keys(parent, at, &keys)
    }

    /// Adds the keys and the pointer of a child.
    pub(super) fn put_child(&mut self, parent: Node, at: usize, child: Node) {
        let keys = self.keys_of(child);
        let pointer = pointer_bytes(child.block);
        let skip = pointer.len() - T::SHAPE.pointer_size();
        self.put_in(parent, at, &keys[..T::SHAPE.key_size], &pointer[skip..]);
    }

    fn keys_of(&self, child: Node) -> KeyBytes {
        let mut keys = [0; KEY_SIZE_MAX];
        self.put_low(child, &mut keys);
        if T::OVERLAPS
            && let Some(high) = self.highest(child)
        {
            T::put_key(&high, &mut keys[Self::LOW_SIZE..T::SHAPE.key_size]);
        }
        keys
    }

    fn put_low(&self, child: Node, keys: &mut KeyBytes) {
        if self.count(child) == 0 {
            return;
        }
        let (first, low) = (self.entry(child, 0), &mut keys[..Self::LOW_SIZE]);
        if child.level == 0 {
            T::put_low_key(first, low);
        } else {
            low.copy_from_slice(&first[..Self::LOW_SIZE]);
        }
    }

    /// Returns the highest key that the records below a node cover.
    fn highest(&self, node: Node) -> Option<T::Key> {
        let (area, bytes) = (self.area(node), self.bytes(node));
        let high = |at| {
            let entry = area.entry(bytes, at);
            if node.level == 0 {
                T::high_key_of(&T::record(entry))
            } else {
                T::key(&entry[Self::LOW_SIZE..])
            }
        };
        (0..area.count(bytes)).map(high).max()
    }

    fn keys_in(&self, node: Node, at: usize) -> KeyBytes {
        let mut keys = [0; KEY_SIZE_MAX];
        keys[..T::SHAPE.key_size].copy_from_slice(self.entry(node, at));
        keys
    }

    fn set_keys(&mut self, node: Node, at: usize, keys: &KeyBytes) -> bool {
        let keys = &keys[..T::SHAPE.key_size];
        if self.entry(node, at) == keys {
            return false;
        }
        let range = self.area(node).entry_range(at, at + 1);
        self.edit(node, range).copy_from_slice(keys);
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Anchor, Cursor, Node, Tree};

    /// Returns the keys that a parent must have for a child.
    pub(in crate::btree) fn keys_of<'a, T: Tree, A: Anchor<'a, T>>(
        cursor: &Cursor<'_, 'a, T, A>,
        child: Node,
    ) -> Vec<u8> {
        cursor.keys_of(child)[..T::SHAPE.key_size].to_vec()
    }
}
