//! B+trees: one cursor engine, and a small trait for what differs from tree to tree.
//!
//! The trees of an allocation group start at a block that the group's state names; the map of a fork
//! starts at a root in the inode. Below the root all are alike.

mod blocks;
mod insert;
mod keys;
mod nodes;
mod overlap;
pub(crate) mod records;
mod remove;
mod seek;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use transaction::BufferId;

use crate::alloc::ags::AgTree;
use crate::format::address::AgNumber;
use crate::format::btree::{Area, LEVELS_MAX, RECORD_SIZE_MAX, Shape};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;

/// What one tree has of its own.
pub(crate) trait Tree {
    /// A record of a leaf.
    type Record: Copy + PartialEq + Debug;
    /// What records are ordered by.
    type Key: Copy + Ord + Debug;

    /// Name, magic numbers and sizes.
    const SHAPE: Shape;
    /// Kind of its blocks.
    const KIND: Kind;
    /// Which tree of a group it is; `None` for the map of a fork.
    const AG_TREE: Option<AgTree>;
    /// Whether records overlap, so that nodes have the highest key below each child beside the
    /// lowest one (reverse map).
    const OVERLAPS: bool = false;

    fn record(bytes: &[u8]) -> Self::Record;
    fn put_record(record: &Self::Record, bytes: &mut [u8]);

    /// The key that a node has.
    fn key(bytes: &[u8]) -> Self::Key;

    /// The key of a record that lies on disk. Most records start with their key.
    fn key_in_record(bytes: &[u8]) -> Self::Key {
        Self::key(bytes)
    }

    /// The key of a record.
    fn key_of(record: &Self::Record) -> Self::Key {
        let mut bytes = [0; RECORD_SIZE_MAX];
        Self::put_record(record, &mut bytes);
        Self::key_in_record(&bytes)
    }

    /// Writes the key that a node has for a record that lies on disk.
    fn put_low_key(record: &[u8], bytes: &mut [u8]) {
        bytes.copy_from_slice(&record[..bytes.len()]);
    }

    /// Writes a key. Asked for where the tree overlaps.
    fn put_key(_key: &Self::Key, _bytes: &mut [u8]) {}

    /// The last key that a record covers, where the tree overlaps.
    fn high_key_of(record: &Self::Record) -> Self::Key {
        Self::key_of(record)
    }
}

/// Which record a search is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek {
    /// The last one whose key is not above the one given.
    AtMost,
    /// The first one whose key is not below the one given.
    AtLeast,
    /// The one whose key is the one given.
    Exactly,
}

/// A place in a tree, held by an operation. All blocks on the way there are held by its transaction.
pub(crate) struct Cursor<'o, 'a, T: Tree> {
    pub(crate) op: &'o mut Op<'a>,
    home: Home<'o>,
    leaf: Area,
    node: Area,
    /// The root in a fork.
    root: Area,
    /// From the leaf at 0 up to the root.
    path: [Frame; LEVELS_MAX],
    /// Levels of the tree; what of `path` counts.
    levels: usize,
    state: State<T::Key>,
}

/// Where a tree starts, and whose it is.
enum Home<'o> {
    Group { lease: usize, ag: AgNumber, tree: AgTree },
    Fork { handle: &'o mut Handle, fork: Fork },
}

/// What the path of a cursor leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State<K> {
    /// Nothing.
    Nowhere,
    /// The place where a record with this key is or would be.
    For(K),
    /// A record.
    At,
}

/// A block of a tree, or the root in a fork. Where it is held it is verified, and its level and
/// number of entries are what they can be.
#[derive(Clone, Copy)]
struct Node {
    /// As pointers name it; nothing for the root in a fork.
    block: u64,
    /// `None` for the root in a fork.
    buffer: Option<BufferId>,
    /// 0 for leaves.
    level: usize,
}

/// A node on the way down, and the entry taken in it.
#[derive(Clone, Copy)]
struct Frame {
    node: Node,
    position: usize,
}

const NO_FRAME: Frame = Frame { node: Node { block: 0, buffer: None, level: 0 }, position: 0 };

impl<'o, 'a, T: Tree> Cursor<'o, 'a, T> {
    /// A cursor over a tree of the group that the operation holds as `lease`.
    pub(crate) fn of_group(op: &'o mut Op<'a>, lease: usize) -> Self {
        let tree = const { T::AG_TREE.expect("a tree of a group") };
        let ag = op.leases[lease].number();
        Self::new(op, Home::Group { lease, ag, tree }, T::SHAPE.root_area(0))
    }

    /// A cursor over the map of a fork that is kept as a tree. Blocks that the tree takes and gives
    /// back are counted in `handle`'s nblocks. The size of the fork must stay as long as the cursor
    /// is there.
    pub(crate) fn of_fork(op: &'o mut Op<'a>, handle: &'o mut Handle, fork: Fork) -> Self {
        let root = T::SHAPE.root_area(handle.inode.fork(fork).len());
        Self::new(op, Home::Fork { handle, fork }, root)
    }

    fn new(op: &'o mut Op<'a>, home: Home<'o>, root: Area) -> Self {
        let geometry = &op.fs.volume.geometry;
        let (leaf, node) = (T::SHAPE.leaf_area(geometry), T::SHAPE.node_area(geometry));
        let path = [NO_FRAME; LEVELS_MAX];
        Self { op, home, leaf, node, root, path, levels: 0, state: State::Nowhere }
    }
}
