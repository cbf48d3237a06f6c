//! Inodes: locking them, changing their attributes.

mod attributes;
