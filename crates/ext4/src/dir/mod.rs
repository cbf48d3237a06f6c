//! Directories: names and the inodes they stand for, looked up, listed and changed.
//!
//! A directory is changed with its inode locked. So what was found in it before an operation starts
//! is still there when the operation changes it, and each time the operation runs.
//!
//! Blocks come verified from the engine. Code that reads relies on that for its results but not for its
//! safety: offsets are still checked, and every loop is bounded by what the inode maps, never by what a
//! field claims. A reader holds at most one block at a time, and none while a callback runs.

pub(crate) mod casefold;
mod change;
pub(crate) mod compare;
mod find;
mod htree;
pub(crate) mod index;
mod insert;
pub(crate) mod listing;
mod unpack;

pub(crate) use find::{
    Found, INLINE_SHIFT, blocks_count, find, find_by_hash, find_in_block, for_each_leaf,
    inline_parent, inline_parts, is_empty, lookup, parent, stored_name,
};
