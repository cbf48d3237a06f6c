//! What names mean in ext4: how entries are stored, what a new inode is like, and how links are counted.
//! The operations themselves are in [`operation::names`].

mod directories;
mod links;
mod make;
