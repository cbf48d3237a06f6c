//! Image that is open for writing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use operations::profile::ListingProfile;
use vfs::survey::TellsLayout;
use vfs::{FileSystem, Paths};

use crate::dispatch::{self, OpenFs};
use crate::image::{open_device, probe, window_to_write};
use crate::recovery::RecoverReport;
use crate::{Error, Image, ImageInfo, OpenImage, Result, anywhere, lock};

/// Image that is open for writing and exclusively locked.
///
/// If dropped without [`OpenToEdit::close`], it is in the state after a crash: changes that are not durable are lost,
/// and the journal or log must be replayed.
pub struct OpenToEdit {
    fs: Box<dyn OpenFs>,
    image: PathBuf,
}

impl Image {
    /// Returns the feature that makes the image read-only, or `None`. The image may still be damaged or in use, which
    /// [`Image::edit`] reports.
    ///
    /// # Errors
    /// If the image cannot be read or has no known format.
    pub fn read_only_because(path: &Path, options: &OpenImage) -> Result<Option<String>> {
        let device = open_device(path, &OpenImage { norecovery: true, ..options.clone() })?;
        let format = probe(path, &device, options)?;
        let reason = dispatch::read_only_because(format, &*device);
        reason.map_err(|source| Error::Image { image: path.to_owned(), source })
    }

    /// Opens an image for writing. Its journal or log is replayed first.
    ///
    /// # Errors
    /// If the image is in use, cannot be read or written, or cannot be changed; the error contains the reason. Nothing
    /// has been written then.
    pub fn edit(path: &Path, options: &OpenImage) -> Result<OpenToEdit> {
        if let Some(device) = anywhere::open_to_write(path)? {
            return OpenToEdit::on_device(path, device, options);
        }
        OpenToEdit::in_file(path, &lock::open_to_write(path)?, options)
    }

    /// Opens an image like [`Image::edit`]. If the kernel can mount it as a block device, the claim of the device is
    /// returned separately.
    #[cfg(all(feature = "mount", target_os = "linux"))]
    pub(crate) fn edit_to_mount(
        path: &Path,
        options: &OpenImage,
    ) -> Result<(OpenToEdit, Option<lock::DeviceClaim>)> {
        if let Some(device) = anywhere::open_to_write(path)? {
            return Ok((OpenToEdit::on_device(path, device, options)?, None));
        }
        let (file, claim) = lock::open_to_mount(path)?;
        Ok((OpenToEdit::in_file(path, &file, options)?, claim))
    }

    /// Replays the journal or log of an image, completes operations interrupted by a crash, and marks it clean.
    ///
    /// # Errors
    /// Same as [`Image::edit`] and [`OpenToEdit::close`].
    pub fn recover(path: &Path, options: &OpenImage) -> Result<RecoverReport> {
        let open = Self::edit(path, options)?;
        let report = open.fs.recovery();
        open.close().map(|()| report)
    }
}

impl OpenToEdit {
    /// Opens an image in a file that is open and locked.
    fn in_file(path: &Path, file: &File, options: &OpenImage) -> Result<Self> {
        let open = || {
            let device = file.try_clone().and_then(FileDevice::new);
            let device = device.map_err(|e| Error::host("read", path, e))?;
            Self::on_device(path, Arc::new(device), options)
        };
        match open() {
            // The error may belong to an earlier writer: the kernel reports write-back errors once. Only recovery has
            // run so far, which can be interrupted and repeated.
            Err(Error::Image { source: vfs::Error::Device(_), .. })
                if lock::forget_earlier_error(file).is_ok() =>
            {
                open()
            }
            opened => opened,
        }
    }

    /// Opens the image on a device, or on part of it, for writing. Errors call it `name`. No other program may change
    /// the device meanwhile.
    ///
    /// # Errors
    /// Same as [`Image::edit`], except for file errors.
    pub fn on_device(
        name: &Path,
        device: Arc<dyn BlockDevice>,
        options: &OpenImage,
    ) -> Result<Self> {
        let device = window_to_write(name, device, options)?;
        let format = probe(name, &device, options)?;
        match dispatch::open_writable(format, device, options, name) {
            Ok(fs) => Ok(Self { fs, image: name.to_owned() }),
            Err(source) => Err(Error::Image { image: name.to_owned(), source }),
        }
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.fs.file_system()
    }

    /// Returns the profile of the time spent in listings.
    #[doc(hidden)]
    pub fn listing_profile(&self) -> &ListingProfile {
        self.fs.file_system().listing_profile()
    }

    /// Returns access to the files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(self.file_system())
    }

    /// Returns the properties of the image. The log of an XFS image counts as dirty if transactions were replayed.
    ///
    /// # Errors
    /// If the free space cannot be determined.
    pub fn info(&self) -> vfs::Result<ImageInfo> {
        self.fs.info(None)
    }

    /// Returns damage that does not prevent changes.
    pub fn remarks(&self) -> &[String] {
        self.fs.remarks()
    }

    /// Returns the result of the recovery at opening.
    pub fn recovery(&self) -> RecoverReport {
        self.fs.recovery()
    }

    /// Returns the use of the blocks.
    pub fn layout(&self) -> &dyn TellsLayout {
        self.fs.layout()
    }

    /// Returns the path of the image, as passed by the caller.
    pub fn path(&self) -> &Path {
        &self.image
    }

    /// Returns the number of checkpoints closed since opening, or `None` without a journal or log. Changes are atomic
    /// if no checkpoint was closed between them: all become durable or none, and none if this is dropped.
    pub(crate) fn checkpoints_closed(&self) -> Option<u64> {
        self.fs.checkpoints_closed()
    }

    /// Makes all changes durable and marks the image clean.
    ///
    /// # Errors
    /// If the image cannot be written. It is then in the state after a crash.
    pub fn close(self) -> Result<()> {
        let Self { fs, image } = self;
        fs.close().map_err(|source| Error::Image { image, source })
    }
}
