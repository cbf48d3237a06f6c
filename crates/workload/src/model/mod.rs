//! The reference model: a file system so simple that it is obviously right.
//!
//! Everything is in sorted maps behind one lock, and no operation is clever: each one checks all that
//! can stop it and only then changes anything. Sizes of directories, `blocks_512` and totals are the
//! model's own and mean nothing for other file systems.
//!
//! Invariants:
//! - inode numbers and directory cookies are never used twice;
//! - an inode is in the map exactly while it has a name (or is the root) or is open;
//! - a file's block is in its map only if it was allocated, and bytes past the size are zeros.

mod data;
mod interface;
mod load;
mod names;
mod state;

use std::sync::Arc;

use parking_lot::Mutex;
use vfs::{FileSystem, FileType, Ino};

use state::State;

/// A path without a leading `/`, the inode it leads to, and its type.
pub type Entry = (Vec<u8>, Ino, FileType);

/// Unit of allocation unless told otherwise, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// A file system in memory.
#[derive(Default)]
pub struct Model {
    state: Mutex<State>,
}

impl Model {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty file system with another unit of allocation: a power of two from 512 bytes on.
    pub fn with_block_bytes(block_bytes: u64) -> Self {
        let model = Self::default();
        model.state.lock().block_bytes = block_bytes;
        model
    }

    /// An empty file system that compares names as `fs` does in its root directory: byte by byte, or without regard to
    /// the case of ASCII letters.
    ///
    /// # Errors
    /// Those of `fs`.
    pub fn comparing_as(fs: &dyn FileSystem, block_bytes: u64) -> vfs::Result<Self> {
        let model = Self::with_block_bytes(block_bytes);
        if fs.is_same_name(fs.root(), b"a", b"A")? {
            model.fold_case();
        }
        Ok(model)
    }

    /// Lets all directories fold the case of ASCII letters. There may be no names yet.
    pub fn fold_case(&self) {
        self.state.lock().fold_case();
    }

    /// Puts an entry into a directory without any check, as a damaged image may have it.
    ///
    /// # Panics
    /// If `dir` is not a directory.
    pub fn insert_unchecked(&self, dir: Ino, name: &[u8], ino: Ino) {
        let mut state = self.state.lock();
        state.directory_mut(dir).expect("a directory").insert(name, ino);
    }

    /// Number of inodes in use, those without a name included.
    pub fn inode_count(&self) -> usize {
        self.state.lock().inodes.len()
    }

    /// Every entry below the root, parents before children.
    pub fn entries(&self) -> Arc<[Entry]> {
        self.state.lock().entries()
    }
}
