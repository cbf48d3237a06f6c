//! Inodes in use by a procedure.

use std::ops::Deref;

use vfs::{Attributes, Error, FileSystem, Ino};

use crate::NfsStatus;

/// Inode of a handle. While it is held, its number is not reused, even if its last name is removed.
pub(crate) struct Held<'a> {
    fs: &'a dyn FileSystem,
    attributes: Attributes,
}

impl<'a> Held<'a> {
    /// Holds an inode with this generation.
    ///
    /// # Errors
    /// `Err(Ok(Stale))` if the inode is not in use, or has another generation. `Err(Err(error))` if it is unreadable.
    pub(crate) fn new(
        fs: &'a dyn FileSystem,
        (ino, generation): (Ino, u32),
    ) -> Result<Self, Result<NfsStatus, Error>> {
        let stale = |error| match error {
            Error::NotFound => Ok(NfsStatus::Stale),
            error => Err(error),
        };
        fs.open(ino).map_err(stale)?;
        match fs.attributes(ino) {
            Ok(attributes) => {
                let held = Self { fs, attributes };
                // An inode without names is about to be freed, and its number may be reused soon.
                let is_same = attributes.generation == generation && attributes.links > 0;
                if is_same { Ok(held) } else { Err(Ok(NfsStatus::Stale)) }
            }
            Err(error) => {
                // The first error is more informative.
                let _ = fs.close(ino);
                Err(stale(error))
            }
        }
    }
}

impl Deref for Held<'_> {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.attributes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.fs.close(self.attributes.ino) {
            tracing::error!("inode {}: {error}", self.attributes.ino);
        }
    }
}
