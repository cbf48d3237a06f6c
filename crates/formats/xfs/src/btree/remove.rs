//! Removing records. A block that is less than half full takes entries from a neighbour below the same parent, or is
//! merged with it. A root with one child is replaced by that child.

use engine::Corruption;
use operations::Outcome;

use super::{Cursor, Frame, Node, PathState, Supply, Tree};
use crate::format::btree::{NO_SIBLING, Side};

impl<'a, T: Tree, S: Supply<'a, T>> Cursor<'_, 'a, T, S> {
    /// Removes the cursor's record. The cursor has no position afterwards.
    pub(crate) fn remove(&mut self) -> Outcome<()> {
        if self.state != PathState::At {
            return Err(self.in_tree(Corruption::new(T::SHAPE.name, "no record to remove")).into());
        }
        self.state = PathState::Nowhere;
        let Frame { node, position } = self.path[0];
        let gone = T::OVERLAPS.then(|| T::high_key_of(&T::record(self.entry(node, position))));
        self.cut(node, position..position + 1);
        if self.count(node) > 0 {
            self.record_changed(position, gone, None);
        }
        self.rebalance()
    }

    /// Restores the minimum fill of the nodes on the path, from the leaf up.
    fn rebalance(&mut self) -> Outcome<()> {
        for level in 0..self.levels {
            let node = self.path[level].node;
            let Some(above) = self.frame_above(level) else { return self.shrink() };
            if self.count(node) >= self.area(node).min() {
                return Ok(());
            }
            if self.count(above.node) == 1 {
                // Only a root can have one child.
                return self.shrink();
            }
            if !self.merge(level, above)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Merges a node with a neighbour if the entries of both fit into one block; otherwise distributes them evenly.
    /// Returns whether they were merged.
    fn merge(&mut self, level: usize, above: Frame) -> Outcome<bool> {
        let node = self.path[level].node;
        let at = above.position.saturating_sub(1);
        let (left, right) = if above.position > 0 {
            (self.child(above.node, at)?, node)
        } else {
            (node, self.child(above.node, 1)?)
        };
        self.check_siblings(left, right)?;
        let (lefts, rights) = (self.count(left), self.count(right));
        let fits = lefts + rights <= self.area(left).max;
        if fits {
            let outer = self.sibling(right, Side::Right);
            self.carry(right, 0..rights, left, lefts);
            self.set_sibling(left, Side::Right, outer);
            self.follow(right.block, left.block, outer, level)?;
            self.cut(above.node, at + 1..at + 2);
            self.free_node(right)?;
        } else {
            self.even_out((left, lefts), (right, rights));
            self.refresh_in(above.node, at + 1, right);
        }
        self.path[level].node = left;
        self.path[level + 1].position = at;
        self.refresh_in(above.node, at, left);
        self.refresh(level + 1);
        Ok(fits)
    }

    fn even_out(&mut self, (left, lefts): (Node, usize), (right, rights): (Node, usize)) {
        let wanted = usize::midpoint(lefts, rights);
        if wanted < lefts {
            self.carry(left, wanted..lefts, right, 0);
        } else {
            self.carry(right, 0..wanted - lefts, left, lefts);
        }
    }

    /// Removes levels while the root has a single child that can replace it.
    fn shrink(&mut self) -> Outcome<()> {
        while self.levels > 1 {
            let top = self.path[self.levels - 1].node;
            if self.count(top) != 1 {
                return Ok(());
            }
            let gone = if top.buffer.is_some() {
                self.hand_over(top)?;
                top
            } else {
                match self.take_in(top)? {
                    Some(child) => child,
                    None => return Ok(()),
                }
            };
            self.levels -= 1;
            self.free_node(gone)?;
        }
        Ok(())
    }

    /// Makes the only child the root, for a root that is a block.
    fn hand_over(&mut self, top: Node) -> Outcome<()> {
        let child = self.child(top, 0)?;
        self.check_alone(child)?;
        self.anchor.set_root(child.block, self.levels as u8 - 1);
        self.path[self.levels - 2].node = child;
        Ok(())
    }

    /// Moves the entries of the only child of a root in a fork into the root, if they fit. Returns the child, which is
    /// unused then. Leaves stay where a root in a fork is never a leaf.
    fn take_in(&mut self, top: Node) -> Outcome<Option<Node>> {
        if top.level == 1 && !T::SHAPE.has_leaf_roots {
            return Ok(None);
        }
        let child = self.child(top, 0)?;
        self.check_alone(child)?;
        let count = self.count(child);
        let below = Node { level: top.level - 1, ..top };
        if count > self.area(below).max {
            return Ok(None);
        }
        self.cut(top, 0..1);
        self.set_root_level(top, below.level);
        self.carry(child, 0..count, below, 0);
        self.path[self.levels - 2].node = below;
        Ok(Some(child))
    }

    fn check_alone(&self, node: Node) -> Outcome<()> {
        for side in [Side::Left, Side::Right] {
            if self.sibling(node, side) != NO_SIBLING {
                return Err(self.damage(node, "siblings of the only block of its level").into());
            }
        }
        Ok(())
    }
}
