//! The XFS part of operations on names: storage of entries, new inodes, link counts and parent pointers. The operations
//! themselves are in [`operations::names`].

mod directories;
mod links;
mod make;

#[cfg(test)]
mod tests;
