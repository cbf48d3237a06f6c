//! Directories: names and the inodes they stand for.

mod htree;
mod insert;

pub(crate) use insert::{Entry, check_name};
