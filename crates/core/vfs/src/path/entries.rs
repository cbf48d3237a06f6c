//! Entries of one directory, read in batches.

use super::listing::NameBuffer;
use super::{NamedEntry, NamedRef, Order};
use crate::{FileSystem, Ino, Result};

/// Iterates over the entries of a directory, without `.` and `..`. Borrows the file system for each step only, so that
/// a caller can use the file system between steps.
///
/// The directory must stay in use during the iteration ([`FileSystem::open`]). Entries that are added or removed at the
/// same time may or may not be returned; every other entry is returned once.
pub struct Entries {
    dir: Ino,
    listing: NameBuffer,
}

impl Entries {
    /// Creates an iterator over the entries of `dir`.
    pub fn new(dir: Ino, order: Order) -> Self {
        Self { dir, listing: NameBuffer::new(order) }
    }

    /// Returns the next entry. After an error, the iteration continues behind the entry in error.
    ///
    /// # Errors
    /// If the directory cannot be read, or a name is invalid.
    pub fn next(&mut self, fs: &dyn FileSystem) -> Option<Result<NamedEntry>> {
        self.next_ref(fs).map(|entry| entry.map(|entry| entry.to_named()))
    }

    /// Like [`Self::next`], without a copy of the name.
    ///
    /// # Errors
    /// Returns the errors of [`Self::next`].
    pub fn next_ref(&mut self, fs: &dyn FileSystem) -> Option<Result<NamedRef<'_>>> {
        while !self.listing.is_ready() {
            if !self.listing.has_more() {
                return None;
            }
            if let Err(error) = self.listing.fill(fs, self.dir) {
                return Some(Err(error));
            }
        }
        self.listing.next().map(|entry| entry.sound(self.dir))
    }
}
