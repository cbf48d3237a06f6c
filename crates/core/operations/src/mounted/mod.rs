//! The one implementation of `vfs::FileSystem`, for all formats.
//!
//! [`Mounted`] is the type that programs open. It contains a format below the layer of deferred creates (`Layer`).
//! Its methods reach inodes only through that layer, so none can miss a deferred file. A format implements small traits
//! for what differs ([`MountFormat`]).
//!
//! The wrapper is a type of this crate because Rust's orphan rule forbids an implementation of a `vfs` trait for every
//! type. It dereferences to the format, for methods that only one format has.

mod file_system;
mod format;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use disk::BlockDevice;
use vfs::Result;

use crate::deferred_create::Layer;
pub use format::{
    KeepAttributes, MountFormat, OpenImages, ReadDirectories, ReadInodes, ShareContents,
    WholeVolume,
};

/// An open file system of a format.
pub struct Mounted<F> {
    layer: Layer<F>,
}

impl<F> Mounted<F> {
    /// Wraps an open format.
    pub fn new(format: F) -> Self {
        Self { layer: Layer::new(format) }
    }
}

impl<F: MountFormat> Mounted<F> {
    /// Opens an image for reading. Its journal or log is replayed in memory, so the image is not modified.
    ///
    /// # Errors
    /// Returns the errors of [`OpenImages::open`].
    pub fn open(device: Arc<dyn BlockDevice>, options: &F::Options) -> Result<Self> {
        F::open(device, options).map(Self::new)
    }

    /// Opens an image for changes in place. [`Self::close`] must follow, otherwise the image is left as after a crash.
    ///
    /// # Errors
    /// Returns the errors of [`OpenImages::open_writable`].
    pub fn open_writable(device: Arc<dyn BlockDevice>, options: &F::Options) -> Result<Self> {
        F::open_writable(device, options).map(Self::new)
    }

    /// Opens an image that mkfs has just created, to fill it. It is valid only after [`Self::finish`].
    ///
    /// # Errors
    /// Returns the errors of [`OpenImages::open_in_progress`].
    pub fn open_in_progress(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        F::open_in_progress(device, cache_bytes).map(Self::new)
    }

    /// Frees open inodes without names, writes everything and marks the image as clean.
    ///
    /// # Errors
    /// If the device fails, or if an inode to be freed is damaged. The image is then left as after a crash.
    pub fn close(self) -> Result<()> {
        self.layer.sync(|_| Ok(()))?;
        self.layer.into_format().close()
    }

    /// Finishes an image in progress, and sets a new UUID if one is given.
    ///
    /// # Errors
    /// Returns the errors of [`OpenImages::finish`].
    pub fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.layer.format().finish(uuid)
    }

    /// Returns the number of deferred files. See the option `defer_creates` of the formats.
    pub fn files_deferred(&self) -> usize {
        self.layer.files()
    }

    /// Checks that the root directory can be read, and returns the format. No file may be deferred yet.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::path::check_root`].
    pub fn check_root(format: F) -> Result<F> {
        let mounted = Self::new(format);
        vfs::path::check_root(&mounted)?;
        Ok(mounted.layer.into_format())
    }
}

impl<F> Deref for Mounted<F> {
    type Target = F;

    fn deref(&self) -> &F {
        self.layer.format()
    }
}

impl<F> DerefMut for Mounted<F> {
    fn deref_mut(&mut self) -> &mut F {
        self.layer.format_mut()
    }
}
