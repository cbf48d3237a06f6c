//! Nodes and leaves as a cursor sees them: holding them, their checks, and moving entries about.

use std::ops::Range;

use smallvec::SmallVec;
use transaction::{Corruption, Tag};
use vfs::{Error, Result};

use super::{Cursor, Frame, Home, Node, Tree};
use crate::format::address::{AgBlock, Block, FsBlock};
use crate::format::btree::{Area, LEVELS_MAX, NO_SIBLING, Side, pointer_bytes};
use crate::format::inode::Format;

/// Entries on their way from one node to another.
struct Moved {
    entries: SmallVec<[u8; 2048]>,
    pointers: SmallVec<[u8; 1024]>,
    count: usize,
}

impl<T: Tree> Cursor<'_, '_, T> {
    pub(super) fn tag(&self) -> Tag {
        match &self.home {
            Home::Group { ag, .. } => T::KIND.of_group(*ag),
            Home::Fork { handle, .. } => T::KIND.of_inode(handle.ino(), 0),
        }
    }

    /// Damage to the tree: in `node`, as far as that is a block.
    pub(super) fn fault(&self, node: Node, damage: Corruption) -> Error {
        let damage = match node.buffer {
            Some(id) => self.op.txn.corrupt(id, damage),
            None => damage,
        };
        self.in_tree(damage).into()
    }

    /// Damage to the tree.
    pub(crate) fn in_tree(&self, damage: Corruption) -> Corruption {
        match &self.home {
            Home::Group { ag, .. } => damage.in_group(ag.0.into()),
            Home::Fork { handle, .. } => damage.of_inode(handle.ino().0),
        }
    }

    /// Damage to the tree, in a few words.
    pub(super) fn damage(&self, node: Node, problem: &'static str) -> Error {
        self.fault(node, Corruption::new(T::SHAPE.name, problem))
    }

    /// The block of the device that a pointer names.
    pub(super) fn place_of(&self, pointer: u64) -> Result<Block> {
        let geometry = &self.op.fs.volume.geometry;
        let place = match &self.home {
            Home::Group { ag, .. } if (1..geometry.ag_len(*ag).into()).contains(&pointer) => {
                Some(geometry.block_of(*ag, AgBlock(pointer as u32)))
            }
            Home::Fork { .. } if geometry.contains(FsBlock(pointer), 1) => {
                Some(geometry.device_block(FsBlock(pointer)))
            }
            _ => None,
        };
        place.ok_or_else(|| {
            let damage = Corruption::new(T::SHAPE.name, "a pointer to no block");
            self.in_tree(damage.mismatch("a block of a group", pointer)).into()
        })
    }

    pub(super) fn area(&self, node: Node) -> &Area {
        match node {
            Node { buffer: None, .. } => &self.root,
            Node { level: 0, .. } => &self.leaf,
            Node { .. } => &self.node,
        }
    }

    pub(super) fn bytes(&self, node: Node) -> &[u8] {
        match (node.buffer, &self.home) {
            (Some(id), _) => self.op.txn.data(id),
            (None, Home::Fork { handle, fork }) => handle.inode.fork(*fork),
            (None, Home::Group { .. }) => &[],
        }
    }

    pub(super) fn edit(&mut self, node: Node, range: Range<usize>) -> &mut [u8] {
        match (node.buffer, &mut self.home) {
            (Some(id), _) => self.op.txn.edit(id, range),
            (None, Home::Fork { handle, fork }) => &mut handle.inode.fork_mut(*fork)[range],
            (None, Home::Group { .. }) => &mut [],
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

    /// The top of the tree; notes how many levels it has.
    pub(super) fn top(&mut self) -> Result<Node> {
        let (lease, tree) = match &self.home {
            Home::Fork { .. } => return self.top_in_fork(),
            Home::Group { lease, tree, .. } => (*lease, *tree),
        };
        let root = self.op.leases[lease].root(tree);
        self.levels = root.levels.into();
        if !(1..=LEVELS_MAX).contains(&self.levels) {
            let damage = Corruption::new(T::SHAPE.name, "levels");
            let bounds = format_args!("1 to {LEVELS_MAX}");
            return Err(self.in_tree(damage.mismatch(bounds, root.levels)).into());
        }
        self.hold(root.block.0.into(), self.levels - 1, usize::from(self.levels > 1))
    }

    fn top_in_fork(&mut self) -> Result<Node> {
        let Home::Fork { handle, fork } = &self.home else {
            return Err(Error::Invalid("a tree of no fork"));
        };
        if handle.inode.fork_format(*fork) != Format::Btree {
            return Err(handle.corrupt(T::SHAPE.name, "the fork is none"));
        }
        let bytes = handle.inode.fork(*fork);
        if self.root.max == 0 {
            return Err(handle.corrupt(T::SHAPE.name, "the fork has no room for a root"));
        }
        let (level, count) = (usize::from(self.root.level(bytes)), self.root.count(bytes));
        let node = Node { block: 0, buffer: None, level };
        if !(1..LEVELS_MAX).contains(&level) {
            let damage = Corruption::new(T::SHAPE.name, "level of the root");
            return Err(self.fault(node, damage.mismatch("at least 1", level)));
        }
        self.check_count(node, count, 1)?;
        self.levels = level + 1;
        Ok(node)
    }

    /// Holds the block that a pointer names, which must be of `level`.
    pub(super) fn enter(&mut self, pointer: u64, level: usize) -> Result<Node> {
        self.hold(pointer, level, usize::from(!self.may_be_empty(level)))
    }

    /// Whether a block of `level` is the only leaf of a fork: it has no records while all of them are
    /// being replaced.
    fn may_be_empty(&self, level: usize) -> bool {
        let Home::Fork { handle, fork } = &self.home else { return false };
        level == 0 && self.levels == 2 && self.root.count(handle.inode.fork(*fork)) == 1
    }

    fn hold(&mut self, pointer: u64, level: usize, count_min: usize) -> Result<Node> {
        let place = self.place_of(pointer)?;
        let id = self.op.buffer(place, self.tag())?;
        let node = Node { block: pointer, buffer: Some(id), level };
        let (area, bytes) = (self.area(node), self.bytes(node));
        let (found, count) = (usize::from(area.level(bytes)), area.count(bytes));
        if found != level {
            let damage = Corruption::new(T::SHAPE.name, "level").mismatch(level, found);
            return Err(self.fault(node, damage));
        }
        self.check_count(node, count, count_min)?;
        Ok(node)
    }

    fn check_count(&self, node: Node, count: usize, min: usize) -> Result<()> {
        let max = self.area(node).max;
        if (min..=max).contains(&count) {
            return Ok(());
        }
        let damage = Corruption::new(T::SHAPE.name, "numrecs");
        Err(self.fault(node, damage.mismatch(format_args!("{min} to {max}"), count)))
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

    /// Checks that two blocks that their parents name one after the other know each other.
    pub(super) fn check_siblings(&self, left: Node, right: Node) -> Result<()> {
        let (after, before) = (self.sibling(left, Side::Right), self.sibling(right, Side::Left));
        if after != right.block {
            let damage = Corruption::new(T::SHAPE.name, "right sibling");
            return Err(self.fault(left, damage.mismatch(right.block, after)));
        }
        if before != left.block {
            let damage = Corruption::new(T::SHAPE.name, "left sibling");
            return Err(self.fault(right, damage.mismatch(left.block, before)));
        }
        Ok(())
    }

    /// Makes `right` the right sibling of `left`, where `outer` was or is to be the one after both.
    pub(super) fn join(&mut self, left: Node, right: Node, outer: u64) -> Result<()> {
        self.set_sibling(left, Side::Right, right.block);
        self.set_sibling(right, Side::Left, left.block);
        self.set_sibling(right, Side::Right, outer);
        self.follow(left.block, right.block, outer, left.level)
    }

    /// Makes the block `outer`, if there is one, the right sibling of `now` instead of `was`.
    pub(super) fn follow(&mut self, was: u64, now: u64, outer: u64, level: usize) -> Result<()> {
        if outer == NO_SIBLING {
            return Ok(());
        }
        let outer = self.enter(outer, level)?;
        let before = self.sibling(outer, Side::Left);
        if before != was {
            let damage = Corruption::new(T::SHAPE.name, "left sibling");
            return Err(self.fault(outer, damage.mismatch(was, before)));
        }
        self.set_sibling(outer, Side::Left, now);
        Ok(())
    }

    /// Puts entries into a node that has room for them.
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

    /// Takes entries out of a node.
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

    /// Moves entries to a node of the same level that has room for them.
    pub(super) fn carry(&mut self, from: Node, range: Range<usize>, to: Node, at: usize) {
        let moved = self.copy_out(from, range.clone());
        debug_assert_eq!(moved.count, range.len());
        self.put_in(to, at, &moved.entries, &moved.pointers);
        self.cut(from, range);
    }

    fn copy_out(&self, node: Node, range: Range<usize>) -> Moved {
        let (area, bytes) = (self.area(node), self.bytes(node));
        let entries = &bytes[area.entry_range(range.start, range.end)];
        let pointers = &bytes[area.pointer_range(range.start, range.end)];
        let (entries, pointers) = (SmallVec::from_slice(entries), SmallVec::from_slice(pointers));
        Moved { entries, pointers, count: range.len() }
    }

    /// A child of a node on the path, by its place there.
    pub(super) fn child(&mut self, parent: Node, at: usize) -> Result<Node> {
        self.enter(self.pointer(parent, at), parent.level - 1)
    }

    pub(super) fn frame_above(&self, level: usize) -> Option<Frame> {
        (level + 1 < self.levels).then(|| self.path[level + 1])
    }
}

/// Moves what `bytes` hold towards their end, and puts `new` before it.
fn open(bytes: &mut [u8], new: &[u8]) {
    let kept = bytes.len() - new.len();
    bytes.copy_within(..kept, new.len());
    bytes[..new.len()].copy_from_slice(new);
}
