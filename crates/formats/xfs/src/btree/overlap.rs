//! Searching trees with overlapping records: a record that covers a key may start long before it.

use engine::Corruption;
use operations::Outcome;

use super::{Anchor, Cursor, Frame, Node, PathState, Tree};

/// Maximum number of nodes that a search visits: more than any tree of a group has.
const VISITS_MAX: u32 = 1 << 24;

impl<'a, T: Tree, A: Anchor<'a, T>> Cursor<'_, 'a, T, A> {
    /// Moves to the first record accepted by `wanted` among those that cover keys from `low` to `high`. `wanted` may be
    /// called for a few more. Without a match the cursor has no position.
    pub(crate) fn find(
        &mut self,
        low: T::Key,
        high: T::Key,
        wanted: impl Fn(&T::Record) -> bool,
    ) -> Outcome<Option<T::Record>> {
        self.state = PathState::Nowhere;
        let top = self.top()?;
        self.path[top.level] = Frame { node: top, position: 0 };
        let mut level = top.level;
        // In a damaged tree several parents may point to one node, so the number of visits is limited.
        for _ in 0..VISITS_MAX {
            let Frame { node, position } = self.path[level];
            if level == 0
                && let Some((at, record)) = self.find_in_leaf(node, high, &wanted)
            {
                self.path[0].position = at;
                self.state = PathState::At;
                return Ok(Some(record));
            }
            let next = if level > 0 { self.find_child(node, position, low, high) } else { None };
            if let Some(at) = next {
                self.path[level].position = at;
                level -= 1;
                self.path[level] = Frame { node: self.child(node, at)?, position: 0 };
                continue;
            }
            level += 1;
            if level >= self.levels {
                return Ok(None);
            }
            self.path[level].position += 1;
        }
        Err(self.in_tree(Corruption::new(T::SHAPE.name, "an endless search")).into())
    }

    fn find_in_leaf(
        &self,
        leaf: Node,
        high: T::Key,
        wanted: impl Fn(&T::Record) -> bool,
    ) -> Option<(usize, T::Record)> {
        let (area, bytes) = (self.area(leaf), self.bytes(leaf));
        (0..area.count(bytes))
            .map(|at| (at, T::record(area.entry(bytes, at))))
            .take_while(|(_, record)| T::key_of(record) <= high)
            .find(|(_, record)| wanted(record))
    }

    /// Returns the first child from index `from` on that can have records between `low` and `high`.
    fn find_child(&self, node: Node, from: usize, low: T::Key, high: T::Key) -> Option<usize> {
        let (area, bytes) = (self.area(node), self.bytes(node));
        (from..area.count(bytes))
            .take_while(|at| T::key(area.entry(bytes, *at)) <= high)
            .find(|at| T::key(&area.entry(bytes, *at)[Self::LOW_SIZE..]) >= low)
    }
}
