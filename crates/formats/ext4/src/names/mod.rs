//! Names in ext4: storing entries, initialising new inodes and counting links. The operations themselves are in
//! [`operations::names`].

mod directories;
mod links;
mod make;
