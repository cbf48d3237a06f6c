//! Open images.

mod cache_share;
pub(crate) mod devices;
mod file_system;
mod info;
#[cfg(feature = "layers")]
mod layers;
#[cfg(all(feature = "mount", unix))]
mod mounting;
mod opening;
mod options;
mod part;
mod places;
pub(crate) mod shared;
mod text;

pub use devices::{OtherDevices, device_number, open_other_device};
pub use file_system::FileSystemRef;
pub use info::{
    Details, ExtDetails, ExtVersion, ImageInfo, ImageState, XfsDetails, XfsLog, XfsRealtime,
};
#[cfg(feature = "layers")]
pub use layers::ImageLayers;
#[cfg_attr(not(feature = "build"), allow(unused_imports))]
pub(crate) use opening::{
    UNNAMED, format_of, format_of_device, open_device, open_device_to_write, probe, window,
    window_to_write,
};
pub use options::ImageOptions;
#[cfg(feature = "anywhere")]
pub(crate) use part::range;
#[cfg_attr(not(feature = "build"), allow(unused_imports))]
pub(crate) use places::open_place_to_write;
pub use text::{FeatureGroup, Section};

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use vfs::path::first_paths;
use vfs::{FileSystem, Ino, StatFs};

use crate::recovery::RecoverReport;
use crate::{Error, Result};
use shared::Shared;

/// Open image with the functions of `std::fs` as methods.
///
/// Every method takes `&self` and may be called from any thread. Permissions are not checked: the caller has the rights
/// of root. Access times are not updated. [`Image::file_system`] gives access to the file system below for the
/// operations of other modules, such as [`edit`](crate::edit) and [`copy`](crate::copy).
///
/// # Durability
/// All earlier changes are durable when [`Image::sync`], [`File::sync_all`](crate::fs::File::sync_all) or
/// [`Image::close`] returns. Dropping an image closes it too, but discards errors. [`Image::abandon`] leaves it in the
/// state after a crash.
///
/// Changes become durable in their order. If the program ends otherwise (killed, or by a panic), the image is in the
/// state after a crash. It contains all changes up to some moment, which is not before the last of these calls. The
/// next program that opens the image for changes, this library or a kernel, recovers it first. Afterwards e2fsck and
/// xfs_repair find no errors.
///
/// [`ImageOptions::defer_creates`] weakens the order: regular files created in a large directory since the last of
/// these calls may then be missing in any order, each as a whole.
pub struct Image {
    pub(crate) shared: Arc<Shared>,
    pub(crate) remarks: Vec<String>,
    recovery: RecoverReport,
    /// Properties at opening, if opened for reading.
    info: Option<ImageInfo>,
    /// Parts for a mount.
    #[cfg(all(feature = "mount", unix))]
    pub(crate) mounting: mounting::Mounting,
}

impl Image {
    /// Makes all changes durable and marks the image clean. Waits for calls of other threads. Files that are still open
    /// are closed: later calls on them fail with [`Error::Closed`].
    ///
    /// # Errors
    /// If the image cannot be written. It is then in the state after a crash.
    pub fn close(self) -> Result<()> {
        self.shared.close()?;
        #[cfg(all(feature = "mount", unix))]
        self.mounting.finish()?;
        Ok(())
    }

    /// Same as [`Self::close`], but for shared images: later calls of other owners fail with [`Error::Closed`]. Closing
    /// again has no effect. Waits for other threads' [`FileSystemRef`]s; this thread must not have any.
    ///
    /// # Errors
    /// Same as [`Self::close`].
    pub fn close_for_all(&self) -> Result<()> {
        self.shared.close()
    }

    /// Ends the use of the image without writing anything. It is in the state after a crash: changes that are not
    /// durable are lost, and the journal or log must be replayed. Otherwise same as [`Self::close`].
    pub fn abandon(self) {
        drop(self.shared.take());
    }

    /// Returns the file system, for the operations of other modules. Closing waits until it is dropped.
    ///
    /// # Errors
    /// [`Error::Closed`] if the image is closed.
    pub fn file_system(&self) -> Result<FileSystemRef<'_>> {
        FileSystemRef::new(&self.shared)
    }

    /// Converts the image to its file system, which then owns the image: dropping it closes the image.
    ///
    /// # Errors
    /// [`Error::Closed`] if the image is closed.
    pub fn into_file_system(self) -> Result<FileSystemRef<'static>> {
        FileSystemRef::new(&self.shared)
    }

    /// Returns whether the image was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.shared.is_writable()
    }

    /// Returns the path of the image, as passed by the caller.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Returns damage that does not prevent reading, and other remarks for the user.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the result of the recovery at opening: in memory, if the image was opened for reading.
    pub fn recovery(&self) -> RecoverReport {
        self.recovery
    }

    /// Returns the properties of the image: at the time of opening if it was opened for reading, otherwise the current
    /// ones. The log of an XFS image that is open for writing counts as dirty if transactions were replayed.
    ///
    /// # Errors
    /// If the free space cannot be determined, or the image is closed.
    pub fn info(&self) -> Result<ImageInfo> {
        match &self.info {
            Some(info) => Ok(info.clone()),
            None => self.file_system()?.info().map_err(|source| self.shared.error(source)),
        }
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// If the image cannot be written.
    pub fn sync(&self) -> Result<()> {
        if !self.is_writable() {
            return Ok(());
        }
        self.on_root(|fs| fs.sync())
    }

    /// Returns totals of space and inodes.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn statfs(&self) -> Result<StatFs> {
        self.on_root(|fs| fs.statfs())
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
        self.on_root(|fs| fs.label())
    }

    /// Sets the label: at most 16 bytes for ext4 and 12 for XFS, without NUL.
    ///
    /// # Errors
    /// If the label does not fit, or the image cannot be written.
    pub fn set_label(&self, label: impl AsRef<[u8]>) -> Result<()> {
        self.on_root(|fs| fs.set_label(label.as_ref()))
    }

    /// Calls `act` with the file system. Errors name the root.
    fn on_root<R>(&self, act: impl FnOnce(&dyn FileSystem) -> vfs::Result<R>) -> Result<R> {
        self.shared.whole(|fs| act(fs).map_err(|error| Error::file(b"/", error)))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("is_writable", &self.is_writable()).finish_non_exhaustive()
    }
}
