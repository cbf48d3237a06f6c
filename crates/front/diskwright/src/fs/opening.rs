//! Opening images.

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;

use super::Image;
use super::shared::{Backing, Owner, Shared};
use crate::open_to_edit::OpenToEdit;
use crate::{Image as ReadOnly, OpenImage, OtherDevices, Result};

/// Name in errors for an image on a device without a name.
const UNNAMED: &str = "the image";

/// Options for opening an image.
///
/// ```no_run
/// use diskwright::fs::ImageOptions;
///
/// # fn main() -> diskwright::Result<()> {
/// let image = ImageOptions::new().write(true).partition(2).open("disk.img")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImageOptions {
    is_writable: bool,
    owner: Owner,
    image: OpenImage,
}

impl ImageOptions {
    /// Creates options for reading an image that fills the whole file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the image is opened for writing.
    #[must_use]
    pub fn write(mut self, is_writable: bool) -> Self {
        self.is_writable = is_writable;
        self
    }

    /// Sets the partition number, from 1 on, of the image on a disk with a partition table (GPT or MBR).
    #[must_use]
    pub fn partition(mut self, number: u32) -> Self {
        self.image.partition = Some(number);
        self
    }

    /// Sets the byte offset of the image.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.image.offset = bytes;
        self
    }

    /// Sets the other devices of the image, such as the one with its log.
    #[must_use]
    pub fn devices(mut self, devices: OtherDevices) -> Self {
        self.image.devices = devices;
        self
    }

    /// Sets the metadata cache size in bytes.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.image.cache_bytes = Some(bytes);
        self
    }

    /// Reads an image without recovering its journal or log, even while other programs change it. Not valid for
    /// writing.
    #[must_use]
    pub fn norecovery(mut self, norecovery: bool) -> Self {
        self.image.norecovery = norecovery;
        self
    }

    /// Sets the owner of new files. The default is root. As on Linux, files created in a set-group-ID directory inherit
    /// its group instead.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Opens an image in a host file or on a block device. The image is locked against other programs. The lock is
    /// shared with other readers if it is opened for reading.
    ///
    /// # Errors
    /// If another program uses the image, it cannot be read or written, or it is not a usable image. Nothing has been
    /// written then.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        self.check()?;
        let path = path.as_ref();
        Ok(self.image_of(match self.is_writable {
            true => Backing::Write(ReadOnly::edit(path, &self.image)?),
            false => Backing::Read(ReadOnly::open(path, &self.image)?),
        }))
    }

    /// Opens an image on any device. No other program may change the device meanwhile.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Image> {
        self.check()?;
        let name = Path::new(UNNAMED);
        Ok(self.image_of(match self.is_writable {
            true => Backing::Write(OpenToEdit::on_device(name, device, &self.image)?),
            false => Backing::Read(ReadOnly::open_device(name, device, &self.image)?),
        }))
    }

    fn check(&self) -> Result<()> {
        if self.is_writable && self.image.norecovery {
            let problem = "norecovery is read-only; leave it out to change the image";
            return Err(crate::Error::Usage(problem.into()));
        }
        Ok(())
    }

    fn image_of(&self, backing: Backing) -> Image {
        Image::of(Shared::new(backing, self.owner))
    }
}

/// Converts an image that was opened for reading by other means, such as `operations::repair::Repair::salvage`.
impl From<ReadOnly> for Image {
    fn from(image: ReadOnly) -> Self {
        Self::of(Shared::new(Backing::Read(image), Owner::default()))
    }
}

impl Image {
    /// Opens an image file for reading. Its journal or log is replayed in memory.
    ///
    /// # Errors
    /// Same as [`ImageOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        ImageOptions::new().open(path)
    }

    /// Opens an image file for writing. Its journal or log is replayed first.
    ///
    /// # Errors
    /// Same as [`ImageOptions::open`].
    pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
        ImageOptions::new().write(true).open(path)
    }

    /// Returns new [`ImageOptions`].
    pub fn options() -> ImageOptions {
        ImageOptions::new()
    }
}
