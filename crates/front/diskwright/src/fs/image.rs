//! An open image.

use std::fmt;
use std::sync::Arc;

use vfs::path::first_paths;
use vfs::{Ino, StatFs};

use super::shared::Shared;
use crate::{Error, Result};

/// Open image with the functions of `std::fs` as methods.
///
/// Every method takes `&self` and may be called from any thread. Permissions are not checked: the caller has the rights
/// of root. Access times are not updated.
///
/// # Durability
/// All earlier changes are durable when [`Image::sync`], [`File::sync_all`](super::File::sync_all) or [`Image::close`]
/// returns. Dropping an image closes it too, but discards errors.
///
/// Changes become durable in their order. If the program ends otherwise (killed, or by a panic), the image is in the
/// state after a crash. It contains all changes up to some moment, which is not before the last of these calls. The
/// next program that opens the image for changes, this library or a kernel, recovers it first. Afterwards e2fsck and
/// xfs_repair find no errors.
///
/// [`OpenImage::defer_creates`](crate::OpenImage::defer_creates) weakens the order: regular files created in a large
/// directory since the last of these calls may then be missing in any order, each as a whole.
pub struct Image {
    pub(super) shared: Arc<Shared>,
}

impl Image {
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Makes all changes durable and marks the image clean. Waits for calls of other threads. Files that are still open
    /// are closed: later calls on them fail with [`Error::Closed`].
    ///
    /// # Errors
    /// If the image cannot be written. It is then in the state after a crash.
    pub fn close(self) -> Result<()> {
        self.shared.close()
    }

    /// Same as [`Self::close`], but for shared images: later calls of other owners fail with [`Error::Closed`]. Closing
    /// again has no effect.
    ///
    /// # Errors
    /// Same as [`Self::close`].
    pub fn close_for_all(&self) -> Result<()> {
        self.shared.close()
    }

    /// Returns whether the image was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.shared.is_writable()
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// If the image cannot be written.
    pub fn sync(&self) -> Result<()> {
        if !self.is_writable() {
            return Ok(());
        }
        self.shared.whole(|fs| fs.sync().map_err(root_error))
    }

    /// Returns totals of space and inodes.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn statfs(&self) -> Result<StatFs> {
        self.shared.whole(|fs| fs.statfs().map_err(root_error))
    }

    /// Returns a path of an inode, or `None` if no readable directory contains a name for it. Without parent pointers
    /// this may search all directories.
    ///
    /// # Errors
    /// [`Error::Closed`] if the image is closed.
    pub fn path_of(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        self.shared.whole(|fs| Ok(first_paths(fs, &[ino]).0.pop().flatten()))
    }

    /// Returns the label, as bytes.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn label(&self) -> Result<Vec<u8>> {
        self.shared.whole(|fs| fs.label().map_err(root_error))
    }

    /// Sets the label: at most 16 bytes for ext4 and 12 for XFS, without NUL.
    ///
    /// # Errors
    /// If the label does not fit, or the image cannot be written.
    pub fn set_label(&self, label: impl AsRef<[u8]>) -> Result<()> {
        self.shared.whole(|fs| fs.set_label(label.as_ref()).map_err(root_error))
    }
}

fn root_error(error: vfs::Error) -> Error {
    Error::file(b"/", error)
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("is_writable", &self.is_writable()).finish_non_exhaustive()
    }
}
