//! Inodes: finding them in their tables, locking them, their attributes.

mod attributes;
pub(crate) mod locks;
mod table;
