//! Inodes: locking them, changing their attributes.

mod attributes;
pub(crate) mod locks;
