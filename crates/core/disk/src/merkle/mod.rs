//! Hash trees over blocks, as used by dm-verity and fs-verity.
//!
//! The data is divided into blocks, and each block has a SHA-256 digest. The digests are packed into blocks, which have
//! digests themselves, until a single block is left: its digest is the root hash. Both users store the level with that
//! block first and the digests of the data last. The location of the tree and the prefix of each digest differ and are
//! chosen by the caller.

mod build;
mod shape;

pub use build::{Ground, build, digest};
pub(crate) use shape::DIGEST_BYTES;
pub use shape::{Digest, TreeLevel, TreeShape};
