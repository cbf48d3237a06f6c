//! B+trees: one cursor engine, and a small trait for what differs from tree to tree.
//!
//! The trees of an allocation group start at a block that the group's state names; the map of a fork
//! starts at a root in the inode. Below the root all are alike.

pub(crate) mod records;

use std::fmt::Debug;
use std::marker::PhantomData;

use vfs::{Error, Result};

use crate::alloc::ags::AgTree;
use crate::format::btree::{RECORD_SIZE_MAX, Shape};
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

/// A place in a tree, held by an operation.
pub(crate) struct Cursor<'o, 'a, T: Tree> {
    pub(crate) op: &'o mut Op<'a>,
    tree: PhantomData<T>,
}

impl<'o, 'a, T: Tree> Cursor<'o, 'a, T> {
    /// A cursor over a tree of the group that the operation holds as `lease`.
    pub(crate) fn of_group(op: &'o mut Op<'a>, _lease: usize) -> Self {
        Self { op, tree: PhantomData }
    }

    /// A cursor over the map of a fork. Blocks that the tree takes and gives back are counted in
    /// `handle`'s nblocks.
    pub(crate) fn of_fork(op: &'o mut Op<'a>, _handle: &'o mut Handle, _fork: Fork) -> Self {
        Self { op, tree: PhantomData }
    }

    /// Goes to a record. Where there is none, the cursor is nowhere.
    pub(crate) fn seek(&mut self, _key: T::Key, _seek: Seek) -> Result<Option<T::Record>> {
        Err(Error::unsupported("btrees", ""))
    }

    /// Goes to the next record. At the end the cursor is nowhere.
    pub(crate) fn next(&mut self) -> Result<Option<T::Record>> {
        Err(Error::unsupported("btrees", ""))
    }

    /// Goes to the record before. At the start the cursor is nowhere.
    pub(crate) fn previous(&mut self) -> Result<Option<T::Record>> {
        Err(Error::unsupported("btrees", ""))
    }

    /// Replaces the record that the cursor is at by one that belongs to the same place.
    pub(crate) fn update(&mut self, _record: T::Record) -> Result<()> {
        Err(Error::unsupported("btrees", ""))
    }

    /// Puts a record in its place, where none with its key may be. The cursor is at it then.
    pub(crate) fn insert(&mut self, _record: T::Record) -> Result<()> {
        Err(Error::unsupported("btrees", ""))
    }

    /// Removes the record that the cursor is at. The cursor is nowhere then.
    pub(crate) fn remove(&mut self) -> Result<()> {
        Err(Error::unsupported("btrees", ""))
    }
}
