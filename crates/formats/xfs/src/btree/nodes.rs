//! Nodes and leaves as seen by a cursor: holding and checking them, and moving entries.

use operations::Outcome;
use std::ops::Range;

use engine::{Corruption, Tag};
use smallvec::SmallVec;
use vfs::Error;

use super::{Anchor, Cursor, Frame, Node, Tree, TreeOwner, TreeRoot};
use crate::format::address::{AgBlock, Block, FsBlock};
use crate::format::btree::{Area, LEVELS_MAX, NO_SIBLING, Side, pointer_bytes};

/// Entries being moved from one node to another.
struct CarriedEntries {
    entries: SmallVec<[u8; 2048]>,
    pointers: SmallVec<[u8; 1024]>,
    count: usize,
}

impl<'a, T: Tree, A: Anchor<'a, T>> Cursor<'_, 'a, T, A> {
    pub(super) fn tag(&self) -> Tag {
        match self.anchor.owner() {
            TreeOwner::Group(ag) => T::KIND.of_group(ag),
            TreeOwner::Inode(ino) => T::KIND.of_inode(ino, 0),
        }
    }

    /// Returns an error about the tree, with the location of `node` if that is a block.
    pub(super) fn fault(&self, node: Node, damage: Corruption) -> Error {
        let damage = match node.buffer {
            Some(id) => self.anchor.txn().corrupt(id, damage),
            None => damage,
        };
        self.in_tree(damage).into()
    }

    /// Adds the tree's owner to a corruption.
    pub(crate) fn in_tree(&self, damage: Corruption) -> Corruption {
        match self.anchor.owner() {
            TreeOwner::Group(ag) => damage.in_group(ag.0.into()),
            TreeOwner::Inode(ino) => damage.of_inode(ino.0),
        }
    }

    /// Returns an error about `node`.
    pub(super) fn damage(&self, node: Node, problem: &'static str) -> Error {
        self.fault(node, Corruption::new(T::SHAPE.name, problem))
    }

    /// Returns the device block of a pointer.
    pub(super) fn place_of(&self, pointer: u64) -> Outcome<Block> {
        let geometry = self.anchor.geometry();
        let place = match self.anchor.owner() {
            TreeOwner::Group(ag) if (1..geometry.ag_len(ag).into()).contains(&pointer) => {
                Some(geometry.block_of(ag, AgBlock(pointer as u32)))
            }
            TreeOwner::Inode(_) if geometry.contains(FsBlock(pointer), 1) => {
                Some(geometry.device_block(FsBlock(pointer)))
            }
            _ => None,
        };
        place.ok_or_else(|| {
            let damage = Corruption::new(T::SHAPE.name, "a null pointer");
            self.in_tree(damage.mismatch("a block of a group", pointer)).into()
        })
    }

    pub(super) fn area(&self, node: Node) -> &Area {
        match node {
            Node { buffer: None, level: 0, .. } => &self.root_leaf,
            Node { buffer: None, .. } => &self.root,
            Node { level: 0, .. } => &self.leaf,
            Node { .. } => &self.node,
        }
    }

    pub(super) fn bytes(&self, node: Node) -> &[u8] {
        match (node.buffer, self.anchor.root()) {
            (Some(id), _) => self.anchor.txn().data(id),
            (None, TreeRoot::Fork(bytes)) => bytes,
            (None, TreeRoot::Block { .. }) => &[],
        }
    }

    pub(super) fn edit(&mut self, node: Node, range: Range<usize>) -> &mut [u8] {
        match node.buffer {
            Some(id) => self.anchor.txn_mut().edit(id, range),
            None => self.anchor.fork_mut().get_mut(range).unwrap_or_default(),
        }
    }

    pub(super) fn count(&self, node: Node) -> usize {
        self.area(node).count(self.bytes(node))
    }

    pub(super) fn set_count(&mut self, node: Node, count: usize) {
        let range = self.area(node).count_range();
        self.edit(node, range).copy_from_slice(&(count as u16).to_be_bytes());
    }

    pub(super) fn entry(&self, node: Node, at: usize) -> &[u8] {
        self.area(node).entry(self.bytes(node), at)
    }

    pub(super) fn pointer(&self, node: Node, at: usize) -> u64 {
        self.area(node).pointer(self.bytes(node), at)
    }

    /// Holds the root of the tree, and sets the number of levels.
    pub(super) fn top(&mut self) -> Outcome<Node> {
        let (block, levels) = match self.anchor.root() {
            TreeRoot::Block { block, levels } => (block, levels),
            TreeRoot::Fork(_) if self.root.max == 0 => {
                let damage = Corruption::new(T::SHAPE.name, "the fork has no space for a root");
                return Err(self.in_tree(damage).into());
            }
            TreeRoot::Fork(bytes) => {
                let (level, count) = (self.root.level(bytes), self.root.count(bytes));
                return self.top_in_fork(level.into(), count);
            }
        };
        self.levels = levels.into();
        if !(1..=LEVELS_MAX).contains(&self.levels) {
            let damage = Corruption::new(T::SHAPE.name, "levels");
            let bounds = format_args!("1 to {LEVELS_MAX}");
            return Err(self.in_tree(damage.mismatch(bounds, levels)).into());
        }
        self.hold(block, self.levels - 1, usize::from(self.levels > 1))
    }

    fn top_in_fork(&mut self, level: usize, count: usize) -> Outcome<Node> {
        let node = Node { block: 0, buffer: None, level };
        let least = usize::from(!T::SHAPE.has_leaf_roots);
        if !(least..LEVELS_MAX).contains(&level) {
            let damage = Corruption::new(T::SHAPE.name, "level of the root");
            return Err(self.fault(node, damage.mismatch("at least 1", level)).into());
        }
        self.check_count(node, count, usize::from(level > 0))?;
        self.levels = level + 1;
        Ok(node)
    }

    /// Holds the block that a pointer leads to, which must have level `level`.
    pub(super) fn enter(&mut self, pointer: u64, level: usize) -> Outcome<Node> {
        self.hold(pointer, level, usize::from(!self.may_be_empty(level)))
    }

    /// Returns whether a block of `level` is the only leaf of a fork. Such a leaf is temporarily empty while all its
    /// records are replaced.
    fn may_be_empty(&self, level: usize) -> bool {
        let TreeRoot::Fork(bytes) = self.anchor.root() else { return false };
        level == 0 && self.levels == 2 && self.root.count(bytes) == 1
    }

    fn hold(&mut self, pointer: u64, level: usize, count_min: usize) -> Outcome<Node> {
        let place = self.place_of(pointer)?;
        let tag = self.tag();
        let id = self.anchor.txn_mut().buffer(place.0, tag)?;
        let node = Node { block: pointer, buffer: Some(id), level };
        let (area, bytes) = (self.area(node), self.bytes(node));
        let (found, count) = (usize::from(area.level(bytes)), area.count(bytes));
        if found != level {
            let damage = Corruption::new(T::SHAPE.name, "level").mismatch(level, found);
            return Err(self.fault(node, damage).into());
        }
        self.check_count(node, count, count_min)?;
        Ok(node)
    }

    fn check_count(&self, node: Node, count: usize, min: usize) -> Outcome<()> {
        let max = self.area(node).max;
        if (min..=max).contains(&count) {
            return Ok(());
        }
        let damage = Corruption::new(T::SHAPE.name, "numrecs");
        Err(self.fault(node, damage.mismatch(format_args!("{min} to {max}"), count)).into())
    }

    pub(super) fn sibling(&self, node: Node, side: Side) -> u64 {
        T::SHAPE.sibling(self.bytes(node), side)
    }

    pub(super) fn set_sibling(&mut self, node: Node, side: Side, pointer: u64) {
        let range = T::SHAPE.sibling_range(side);
        let bytes = pointer_bytes(pointer);
        let skip = bytes.len() - range.len();
        self.edit(node, range).copy_from_slice(&bytes[skip..]);
    }

    /// Checks that the sibling pointers of two blocks that are adjacent in their parents agree.
    pub(super) fn check_siblings(&self, left: Node, right: Node) -> Outcome<()> {
        let (after, before) = (self.sibling(left, Side::Right), self.sibling(right, Side::Left));
        if after != right.block {
            let damage = Corruption::new(T::SHAPE.name, "right sibling");
            return Err(self.fault(left, damage.mismatch(right.block, after)).into());
        }
        if before != left.block {
            let damage = Corruption::new(T::SHAPE.name, "left sibling");
            return Err(self.fault(right, damage.mismatch(left.block, before)).into());
        }
        Ok(())
    }

    /// Makes `right` the right sibling of `left`. `outer` is the block after both.
    pub(super) fn join(&mut self, left: Node, right: Node, outer: u64) -> Outcome<()> {
        self.set_sibling(left, Side::Right, right.block);
        self.set_sibling(right, Side::Left, left.block);
        self.set_sibling(right, Side::Right, outer);
        self.follow(left.block, right.block, outer, left.level)
    }

    /// Updates the left sibling of the block `outer`, if there is one, from `was` to `now`.
    pub(super) fn follow(&mut self, was: u64, now: u64, outer: u64, level: usize) -> Outcome<()> {
        if outer == NO_SIBLING {
            return Ok(());
        }
        let outer = self.enter(outer, level)?;
        let before = self.sibling(outer, Side::Left);
        if before != was {
            let damage = Corruption::new(T::SHAPE.name, "left sibling");
            return Err(self.fault(outer, damage.mismatch(was, before)).into());
        }
        self.set_sibling(outer, Side::Left, now);
        Ok(())
    }

    /// Inserts entries into a node with room for them.
    pub(super) fn put_in(&mut self, node: Node, at: usize, entries: &[u8], pointers: &[u8]) {
        let area = *self.area(node);
        let count = self.count(node);
        let added = entries.len() / area.entry_size;
        let bytes = self.edit(node, area.entry_range(at, count + added));
        open(bytes, entries);
        if !pointers.is_empty() {
            let bytes = self.edit(node, area.pointer_range(at, count + added));
            open(bytes, pointers);
        }
        self.set_count(node, count + added);
    }

    /// Removes entries from a node.
    pub(super) fn cut(&mut self, node: Node, gone: Range<usize>) {
        let area = *self.area(node);
        let count = self.count(node);
        if gone.end < count {
            let bytes = self.edit(node, area.entry_range(gone.start, count));
            bytes.copy_within(gone.len() * area.entry_size.., 0);
            let bytes = self.edit(node, area.pointer_range(gone.start, count));
            bytes.copy_within(gone.len() * area.pointer_size.., 0);
        }
        self.set_count(node, count - gone.len());
    }

    /// Moves entries to a node of the same level with room for them.
    pub(super) fn carry(&mut self, from: Node, range: Range<usize>, to: Node, at: usize) {
        let moved = self.copy_out(from, range.clone());
        debug_assert_eq!(moved.count, range.len());
        self.put_in(to, at, &moved.entries, &moved.pointers);
        self.cut(from, range);
    }

    fn copy_out(&self, node: Node, range: Range<usize>) -> CarriedEntries {
        let (area, bytes) = (self.area(node), self.bytes(node));
        let entries = &bytes[area.entry_range(range.start, range.end)];
        let pointers = &bytes[area.pointer_range(range.start, range.end)];
        let (entries, pointers) = (SmallVec::from_slice(entries), SmallVec::from_slice(pointers));
        CarriedEntries { entries, pointers, count: range.len() }
    }

    /// Returns a child of a node on the path by its index.
    pub(super) fn child(&mut self, parent: Node, at: usize) -> Outcome<Node> {
        self.enter(self.pointer(parent, at), parent.level - 1)
    }

    pub(super) fn frame_above(&self, level: usize) -> Option<Frame> {
        (level + 1 < self.levels).then(|| self.path[level + 1])
    }
}

/// Shifts the contents of `bytes` towards the end, and copies `new` to the start.
fn open(bytes: &mut [u8], new: &[u8]) {
    let kept = bytes.len() - new.len();
    bytes.copy_within(..kept, new.len());
    bytes[..new.len()].copy_from_slice(new);
}
