//! The reference model: a file system that is simple enough to be obviously correct.
//!
//! Everything is in sorted maps behind one lock, without optimisations: each operation makes all checks before it
//! changes anything. Sizes of directories, `blocks_512` and totals are specific to the model.
//!
//! Invariants:
//! - inode numbers and directory cookies are never reused;
//! - an inode is in the map exactly while it has a name (or is the root) or is open;
//! - a block is in a file's map only if it is allocated, and bytes past the size are zeros.

mod data;
mod interface;
mod load;
mod names;
mod state;

use std::sync::Arc;

use parking_lot::Mutex;
use vfs::{FileSystem, FileType, Ino};

use state::ModelState;

/// A path without a leading `/`, the inode it leads to, and its type.
pub type PathEntry = (Vec<u8>, Ino, FileType);

/// Default allocation unit in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// A file system in memory.
#[derive(Default)]
pub struct Model {
    state: Mutex<ModelState>,
}

impl Model {
    /// Creates an empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty file system with another allocation unit: a power of two, at least 512 bytes.
    pub fn with_block_bytes(block_bytes: u64) -> Self {
        let model = Self::default();
        model.state.lock().block_bytes = block_bytes;
        model
    }

    /// Creates an empty file system that compares names as `fs` does in its root directory: exactly, or ignoring the
    /// case of ASCII letters.
    ///
    /// # Errors
    /// Returns the errors of `fs`.
    pub fn comparing_as(fs: &dyn FileSystem, block_bytes: u64) -> vfs::Result<Self> {
        let model = Self::with_block_bytes(block_bytes);
        if fs.is_same_name(fs.root(), b"a", b"A")? {
            model.fold_case();
        }
        Ok(model)
    }

    /// Makes all directories fold the case of ASCII letters. There must be no names yet.
    pub fn fold_case(&self) {
        self.state.lock().fold_case();
    }

    /// Adds an entry to a directory without checks, as in a damaged image.
    ///
    /// # Panics
    /// If `dir` is not a directory.
    pub fn insert_unchecked(&self, dir: Ino, name: &[u8], ino: Ino) {
        let mut state = self.state.lock();
        state.directory_mut(dir).expect("a directory").insert(name, ino);
    }

    /// Returns the number of inodes in use, including those without a name.
    pub fn inode_count(&self) -> usize {
        self.state.lock().inodes.len()
    }

    /// Returns every entry below the root, parents before children.
    pub fn entries(&self) -> Arc<[PathEntry]> {
        self.state.lock().entries()
    }
}
