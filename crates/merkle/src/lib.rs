//! Hash trees over blocks, as dm-verity and fs-verity keep them.
//!
//! The data is cut into blocks, and each block has a SHA-256 digest. The digests fill blocks, which have digests
//! themselves, until one block holds them all: its digest is the root hash. Both users store the level with that
//! one block first and the digests of the data last. What differs is where a tree lies and what goes into each
//! digest before the block, which is up to the caller.
#![forbid(unsafe_code)]

mod build;
mod shape;

pub use build::{Ground, build, digest};
pub use shape::{DIGEST_BYTES, Digest, Level, Shape};
