//! Names in ext4: storing entries, initialising new inodes and counting links. The operations themselves are in
//! [`operation::names`].

mod directories;
mod links;
mod make;
