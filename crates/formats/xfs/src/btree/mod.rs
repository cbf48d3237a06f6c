//! B+trees: one cursor for all of them, and three small traits.
//!
//! - [`Tree`] describes one kind of tree: its records, its keys and their sizes.
//! - [`Anchor`] gives the root and the owner of a tree. The root of an allocation group's tree is a block named in the
//!   group's state; the root of a fork's map is in the inode. Below the root all trees are alike.
//! - [`Supply`] provides blocks to a growing tree and frees those of a shrinking one. The cursor itself allocates
//!   nothing.

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

use engine::BufferId;

pub(crate) use self::insert::replace_record;
pub(crate) use self::supply::{Anchor, Supply, TreeOwner, TreeRoot};
use crate::format::btree::{Area, LEVELS_MAX, RECORD_SIZE_MAX, TreeShape};
use crate::kind::BlockKind;

/// The properties of one kind of tree.
pub(crate) trait Tree {
    /// A record of a leaf.
    type Record: Copy + PartialEq + Debug;
    /// The sort key of records.
    type Key: Copy + Ord + Debug;

    /// Name, magic numbers and sizes.
    const SHAPE: TreeShape;
    /// Kind of its blocks.
    const KIND: BlockKind;
    /// True if records overlap, as in the reverse map. Nodes then store the lowest and the highest key below each
    /// child.
    const OVERLAPS: bool = false;

    fn record(bytes: &[u8]) -> Self::Record;
    fn put_record(record: &Self::Record, bytes: &mut [u8]);

    /// Parses the key of a node entry.
    fn key(bytes: &[u8]) -> Self::Key;

    /// Parses the key of a record on disk. Most records start with their key.
    fn key_in_record(bytes: &[u8]) -> Self::Key {
        Self::key(bytes)
    }

    /// Returns the key of a record.
    fn key_of(record: &Self::Record) -> Self::Key {
        let mut bytes = [0; RECORD_SIZE_MAX];
        Self::put_record(record, &mut bytes);
        Self::key_in_record(&bytes)
    }

    /// Writes the node key of a record on disk.
    fn put_low_key(record: &[u8], bytes: &mut [u8]) {
        bytes.copy_from_slice(&record[..bytes.len()]);
    }

    /// Writes a key. Only used in trees with overlapping records.
    fn put_key(_key: &Self::Key, _bytes: &mut [u8]) {}

    /// Returns the last key that a record covers, in trees with overlapping records.
    fn high_key_of(record: &Self::Record) -> Self::Key {
        Self::key_of(record)
    }
}

/// The record that a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek {
    /// The last record whose key is at most the given one.
    AtMost,
    /// The first record whose key is at least the given one.
    AtLeast,
    /// The record with exactly the given key.
    Exactly,
}

/// The location of a record: its leaf, as in pointers, and its index there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordPlace {
    pub(crate) leaf: u64,
    pub(crate) position: usize,
}

/// A position in a tree. The transaction holds all blocks on the path.
pub(crate) struct Cursor<'c, 'a, T: Tree, A: Anchor<'a, T>> {
    pub(crate) anchor: &'c mut A,
    leaf: Area,
    node: Area,
    /// The root in a fork, as a node and as a leaf.
    root: Area,
    root_leaf: Area,
    /// From the leaf at index 0 up to the root.
    path: [Frame; LEVELS_MAX],
    /// Number of levels of the tree, and of valid entries of `path`.
    levels: usize,
    state: PathState<T::Key>,
    txn: PhantomData<&'a ()>,
}

/// The target of a cursor's path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState<K> {
    /// The path is unset.
    Nowhere,
    /// The position of a record with this key, which may not exist.
    For(K),
    /// A record.
    At,
}

/// A block of a tree, or the root in a fork. Its block is held and verified; its level and number of entries are within
/// bounds.
#[derive(Clone, Copy)]
struct Node {
    /// The block as in pointers; 0 for the root in a fork.
    block: u64,
    /// `None` for the root in a fork.
    buffer: Option<BufferId>,
    /// 0 for leaves.
    level: usize,
}

/// A node on the path, and the index of the entry followed.
#[derive(Clone, Copy)]
struct Frame {
    node: Node,
    position: usize,
}

const NO_FRAME: Frame = Frame { node: Node { block: 0, buffer: None, level: 0 }, position: 0 };

impl<'c, 'a, T: Tree, A: Anchor<'a, T>> Cursor<'c, 'a, T, A> {
    /// Returns a cursor over a tree. The size of a fork with a root must not change while the cursor exists.
    pub(crate) fn new(anchor: &'c mut A) -> Self {
        let fork_size = match anchor.root() {
            TreeRoot::Block { .. } => 0,
            TreeRoot::Fork(bytes) => bytes.len(),
        };
        let root = T::SHAPE.root_area(fork_size);
        let root_leaf = T::SHAPE.root_leaf_area(fork_size);
        let geometry = anchor.geometry();
        let (leaf, node) = (T::SHAPE.leaf_area(geometry), T::SHAPE.node_area(geometry));
        let path = [NO_FRAME; LEVELS_MAX];
        let state = PathState::Nowhere;
        Self { anchor, leaf, node, root, root_leaf, path, levels: 0, state, txn: PhantomData }
    }
}
