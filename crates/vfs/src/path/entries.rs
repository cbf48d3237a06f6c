//! The entries of one directory, taken a few at a time.

use super::listing::Listing;
use super::{Named, NamedRef, Order};
use crate::{FileSystem, Ino, Result};

/// Goes through the entries of a directory, without `.` and `..`. It borrows the file system for each step
/// only, so that whoever holds it may do other things between two of them, or keep it.
///
/// The directory must stay in use meanwhile ([`FileSystem::open`]). Entries that come or go at the same time may
/// be among what it gives or not; every other one is, once.
pub struct Entries {
    dir: Ino,
    listing: Listing,
}

impl Entries {
    /// Those of `dir`.
    pub fn new(dir: Ino, order: Order) -> Self {
        Self { dir, listing: Listing::new(order) }
    }

    /// The next entry. After an error, the entries behind what it concerns follow.
    ///
    /// # Errors
    /// If the directory cannot be read, or the name is none that a directory can hold.
    pub fn next(&mut self, fs: &dyn FileSystem) -> Option<Result<Named>> {
        self.next_ref(fs).map(|entry| entry.map(|entry| entry.to_named()))
    }

    /// As [`Self::next`], without a copy of the name.
    ///
    /// # Errors
    /// As there.
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
