//! Inodes: locking them, changing their attributes and flags.

mod attributes;
pub(crate) mod file_attributes;
