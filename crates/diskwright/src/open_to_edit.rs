//! An image that is open to be changed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::{BlockDevice, FileDevice};
#[cfg(feature = "workload")]
use operation::profile::ListingProfile;
use vfs::{FileSystem, Paths};

use crate::image::{open_device, probe_kind, window};
use crate::writable::{self, RecoverReport, Writable};
use crate::{Error, Image, OpenImage, Result, anywhere, lock};

/// An image that is open to be changed, and locked against everybody else.
///
/// Dropped without [`OpenToEdit::close`], it is left as after a crash: what is not durable yet is
/// gone, and the journal or log has to be replayed.
pub struct OpenToEdit {
    fs: Box<dyn Writable>,
    image: PathBuf,
}

impl Image {
    /// Which of its features makes that an image cannot be changed, but read; `None` if there is none. This
    /// one may still be damaged, or somebody may be using it: [`Image::edit`] tells.
    ///
    /// # Errors
    /// If it cannot be read, or has no format that is known.
    pub fn read_only_because(path: &Path, options: &OpenImage) -> Result<Option<String>> {
        let device = open_device(path, &OpenImage { norecovery: true, ..*options })?;
        let reason = probe_kind(path, &device, options)?.read_only_because(&*device);
        reason.map_err(|source| Error::Image { image: path.to_owned(), source })
    }

    /// Opens an image to change it. What its journal or log holds is replayed first.
    ///
    /// # Errors
    /// If somebody else uses the image, if it cannot be read or written, or if it is no image that
    /// can be changed; the error says why. Nothing has been written then.
    pub fn edit(path: &Path, options: &OpenImage) -> Result<OpenToEdit> {
        if let Some(device) = anywhere::open_to_write(path)? {
            return OpenToEdit::on(path, device, options);
        }
        OpenToEdit::in_file(path, &lock::open_to_write(path)?, options)
    }

    /// Opens an image as [`Image::edit`] does. If the kernel can mount it as a block device, the claim of the device is
    /// apart.
    #[cfg(all(feature = "mount", target_os = "linux"))]
    pub(crate) fn edit_to_mount(
        path: &Path,
        options: &OpenImage,
    ) -> Result<(OpenToEdit, Option<lock::DeviceClaim>)> {
        if let Some(device) = anywhere::open_to_write(path)? {
            return Ok((OpenToEdit::on(path, device, options)?, None));
        }
        let (file, claim) = lock::open_to_mount(path)?;
        Ok((OpenToEdit::in_file(path, &file, options)?, claim))
    }

    /// Replays the journal or log of an image, ends what a crash left unfinished, and leaves it clean.
    ///
    /// # Errors
    /// As [`Image::edit`] and [`OpenToEdit::close`].
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
            Self::on(path, Arc::new(device), options)
        };
        match open() {
            // It may be the error of an earlier writer, which the kernel reports once. Until then only recovery ran,
            // and it may be stopped and repeated at any moment.
            Err(Error::Image { source: vfs::Error::Device(_), .. })
                if lock::forget_earlier_error(file).is_ok() =>
            {
                open()
            }
            opened => opened,
        }
    }

    /// Opens what lies on a device, or in a part of it, to change it. Errors call it `name`.
    ///
    /// # Errors
    /// As [`Image::edit`], but for those of a file.
    pub(crate) fn on(
        name: &Path,
        device: Arc<dyn BlockDevice>,
        options: &OpenImage,
    ) -> Result<Self> {
        let device = window(name, device, options)?;
        let kind = probe_kind(name, &device, options)?;
        match writable::open(kind, device, options) {
            Ok(fs) => Ok(Self { fs, image: name.to_owned() }),
            Err(source) => Err(Error::Image { image: name.to_owned(), source }),
        }
    }

    /// Its file system.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.fs.file_system()
    }

    /// What tells where the time of its listings goes.
    #[cfg(feature = "workload")]
    pub(crate) fn listing_profile(&self) -> &ListingProfile {
        self.fs.file_system().listing_profile()
    }

    /// Its files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(self.file_system())
    }

    /// The image file, as it was named.
    pub fn path(&self) -> &Path {
        &self.image
    }

    /// Checkpoints that were closed since it was opened; `None` if it has no journal or log. Changes between which
    /// none was closed are one: all of them become durable, or none, and none if this is dropped.
    pub(crate) fn checkpoints_closed(&self) -> Option<u64> {
        self.fs.checkpoints_closed()
    }

    /// Makes all changes durable and leaves the image clean.
    ///
    /// # Errors
    /// If the image cannot be written; it is then as after a crash.
    pub fn close(self) -> Result<()> {
        let Self { fs, image } = self;
        fs.close().map_err(|source| Error::Image { image, source })
    }
}
