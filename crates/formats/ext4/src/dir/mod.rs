//! Directories: lookup, listing and changes of names and their inodes.
//!
//! A directory is changed with its inode locked. Entries found before an operation starts are therefore still there
//! when the operation runs, and also when it runs again.
//!
//! The engine delivers verified blocks. Readers rely on that for correct results but not for safety: they check
//! offsets, and they bound each loop by what the inode maps, not by a field on disk. A reader holds at most one block
//! at a time, and none while a callback runs.

pub(crate) mod casefold;
mod change;
pub(crate) mod compare;
pub(crate) mod encrypted;
mod find;
mod htree;
pub(crate) mod index;
mod insert;
pub(crate) mod listing;
mod unpack;

pub(crate) use find::{
    FoundDirent, INLINE_SHIFT, blocks_count, find, find_by_hash, find_in_block, for_each_leaf,
    inline_parent, inline_parts, is_empty, lookup, parent, stored_name,
};
