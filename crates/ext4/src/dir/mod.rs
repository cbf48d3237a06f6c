//! Directories: names and the inodes they stand for.
//!
//! A directory is changed with its inode locked. So what was found in it before an operation starts
//! is still there when the operation changes it, and each time the operation runs.

mod change;
mod htree;
mod inline;
mod insert;

pub(crate) use insert::Entry;
