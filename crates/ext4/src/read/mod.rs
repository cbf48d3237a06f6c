//! Reading: inodes, file data, directories, symbolic links and extended attributes.
//!
//! Blocks come verified from the engine. Code here relies on that for its results but not for its
//! safety: offsets are still checked, and every loop is bounded by what the inode maps, never by
//! what a field claims.
//!
//! At most one block is held at a time, and none while a callback runs.

pub(crate) mod casefold;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod index;
pub(crate) mod inline;
pub(crate) mod inode;
pub(crate) mod listing;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod source;
pub(crate) mod xattr;

#[cfg(test)]
mod tests;
