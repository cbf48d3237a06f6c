//! An open image.

use std::fmt;
use std::sync::Arc;

use vfs::path::first_paths;
use vfs::{Ino, StatFs};

use super::shared::Shared;
use crate::{Error, Result};

/// An open image, with the calls of `std::fs` as methods.
///
/// Every method takes `&self` and may be called from any thread. Nothing checks permissions: who may open the image may
/// do everything in it, as root may. Times of access stay as they are.
///
/// # What is durable when
/// [`Image::sync`], [`File::sync_all`](super::File::sync_all) and [`Image::close`] return when all earlier changes are
/// durable. An image that is dropped is closed too, but its errors are not reported.
///
/// If the program ends otherwise (killed, or while a thread panics), the image is as after a crash. It has all changes up
/// to some moment, at least to the last of these calls, with one exception. Regular files created in a large directory
/// (1024 blocks or more) since the last of these calls may be missing in any order, each as a whole. The next program
/// that opens the image to change it recovers it first: this library, or a kernel. Then e2fsck and xfs_repair find nothing
/// wrong.
pub struct Image {
    pub(super) shared: Arc<Shared>,
}

impl Image {
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Makes all changes durable and leaves the image clean. It waits for calls of other threads. Files that are still
    /// open are closed with it: what is then asked of them fails with [`Error::Closed`].
    ///
    /// # Errors
    /// If the image cannot be written; it is then as after a crash.
    pub fn close(self) -> Result<()> {
        self.shared.close()
    }

    /// The same while others hold it, too: from there on their calls fail with [`Error::Closed`]. Closing it again does
    /// nothing.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub fn close_for_all(&self) -> Result<()> {
        self.shared.close()
    }

    /// Whether it was opened to be changed.
    pub fn is_writable(&self) -> bool {
        self.shared.is_writable()
    }

    /// Makes all changes so far durable.
    ///
    /// # Errors
    /// If the image cannot be written.
    pub fn sync(&self) -> Result<()> {
        if !self.is_writable() {
            return Ok(());
        }
        self.shared.whole(|fs| fs.sync().map_err(root_error))
    }

    /// Totals of space and inodes.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn statfs(&self) -> Result<StatFs> {
        self.shared.whole(|fs| fs.statfs().map_err(root_error))
    }

    /// Returns a path of an inode, or `None` if no readable directory has a name for it. Without parent pointers all
    /// directories may be searched.
    ///
    /// # Errors
    /// [`Error::Closed`] if the image is closed.
    pub fn path_of(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        self.shared.whole(|fs| Ok(first_paths(fs, &[ino]).0.pop().flatten()))
    }

    /// The label, as bytes.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn label(&self) -> Result<Vec<u8>> {
        self.shared.whole(|fs| fs.label().map_err(root_error))
    }

    /// Gives it another label: at most 16 bytes for ext4 and 12 for XFS, without NUL.
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
