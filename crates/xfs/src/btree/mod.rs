//! B+trees: one cursor for all of them, and three small traits.
//!
//! - [`Tree`] says what one kind of tree has of its own: its records, its keys and their sizes.
//! - [`Anchor`] says where a tree starts and who owns it. A tree of an allocation group starts at a
//!   block that the group's state names, the map of a fork at a root in the inode. Below the root all
//!   trees are alike.
//! - [`Supply`] gives blocks to a tree that grows and takes them back from one that shrinks. The
//!   cursor itself allocates nothing.

mod blocks;
mod insert;
mod keys;
mod nodes;
mod overlap;
pub(crate) mod records;
mod remove;
mod seek;
mod supply;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::marker::PhantomData;

use transaction::BufferId;

pub(crate) use self::insert::replace_record;
pub(crate) use self::supply::{Anchor, Supply, TreeOwner, TreeRoot};
use crate::format::btree::{Area, LEVELS_MAX, RECORD_SIZE_MAX, Shape};
use crate::kind::Kind;

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
    /// Whether records overlap, as in the reverse map. Nodes then have the lowest and the highest key
    /// below each child.
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

/// Which record a search goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek {
    /// The last record whose key is at most the one given.
    AtMost,
    /// The first record whose key is at least the one given.
    AtLeast,
    /// The record with exactly the key given.
    Exactly,
}

/// Where a record is: its leaf, as pointers name it, and its place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordPlace {
    pub(crate) leaf: u64,
    pub(crate) position: usize,
}

/// A position in a tree. The transaction holds all blocks on the way there.
pub(crate) struct Cursor<'c, 'a, T: Tree, A: Anchor<'a, T>> {
    pub(crate) anchor: &'c mut A,
    leaf: Area,
    node: Area,
    /// The root in a fork.
    root: Area,
    /// From the leaf at 0 up to the root.
    path: [Frame; LEVELS_MAX],
    /// Levels of the tree, which are how much of `path` counts.
    levels: usize,
    state: PathState<T::Key>,
    txn: PhantomData<&'a ()>,
}

/// What the path of a cursor leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState<K> {
    /// Nothing.
    Nowhere,
    /// The place where a record with this key is or would be.
    For(K),
    /// A record.
    At,
}

/// A block of a tree, or the root in a fork. A node that is held has been verified, and its level and
/// its number of entries are within bounds.
#[derive(Clone, Copy)]
struct Node {
    /// The block as pointers name it; 0 for the root in a fork.
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

impl<'c, 'a, T: Tree, A: Anchor<'a, T>> Cursor<'c, 'a, T, A> {
    /// A cursor over a tree. The size of a fork with a root must stay as long as the cursor lives.
    pub(crate) fn new(anchor: &'c mut A) -> Self {
        let fork_size = match anchor.root() {
            TreeRoot::Block { .. } => 0,
            TreeRoot::Fork(bytes) => bytes.len(),
        };
        let root = T::SHAPE.root_area(fork_size);
        let geometry = anchor.geometry();
        let (leaf, node) = (T::SHAPE.leaf_area(geometry), T::SHAPE.node_area(geometry));
        let path = [NO_FRAME; LEVELS_MAX];
        let state = PathState::Nowhere;
        Self { anchor, leaf, node, root, path, levels: 0, state, txn: PhantomData }
    }
}
