//! Opening images.

use std::path::Path;
use std::sync::Arc;

use blockdev::BlockDevice;

use super::Image;
use super::shared::{Backing, Owner, Shared};
use crate::open_to_edit::OpenToEdit;
use crate::{Image as ReadOnly, OpenImage, Result};

/// What errors call an image that lies on a device without a name.
const UNNAMED: &str = "the image";

/// How to open an image.
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
    /// For reading, the whole file being the image.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it is opened to be changed.
    #[must_use]
    pub fn write(mut self, is_writable: bool) -> Self {
        self.is_writable = is_writable;
        self
    }

    /// The partition that the image is in, from 1 on, of a disk with a partition table (GPT or MBR).
    #[must_use]
    pub fn partition(mut self, number: u32) -> Self {
        self.image.partition = Some(number);
        self
    }

    /// The byte that the image begins at.
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.image.offset = bytes;
        self
    }

    /// Memory for metadata that was read, in bytes.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.image.cache_bytes = Some(bytes);
        self
    }

    /// Reads an image as it lies, without what its journal or log holds, and though somebody may be changing it. Not
    /// for changing it.
    #[must_use]
    pub fn norecovery(mut self, norecovery: bool) -> Self {
        self.image.norecovery = norecovery;
        self
    }

    /// Who owns new files: root, unless told. As in Linux, a directory with the set-group-id bit gives its group on
    /// instead.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Opens an image in a file of the host, or on a block device. It is locked against other programs: shared with
    /// those that only read, if it is opened for reading.
    ///
    /// # Errors
    /// If somebody else uses it, if it cannot be read or written, or if it is none that can be used; the error says
    /// why. Nothing has been written then.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        self.check()?;
        let path = path.as_ref();
        Ok(self.image_of(match self.is_writable {
            true => Backing::Write(ReadOnly::edit(path, &self.image)?),
            false => Backing::Read(ReadOnly::open(path, &self.image)?),
        }))
    }

    /// Opens an image on any device. Nobody else may change it meanwhile.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Image> {
        self.check()?;
        let name = Path::new(UNNAMED);
        Ok(self.image_of(match self.is_writable {
            true => Backing::Write(OpenToEdit::on(name, device, &self.image)?),
            false => Backing::Read(ReadOnly::open_on(name, device, &self.image)?),
        }))
    }

    fn check(&self) -> Result<()> {
        if self.is_writable && self.image.norecovery {
            let problem = "norecovery is for reading: leave it out to change the image";
            return Err(crate::Error::Usage(problem.into()));
        }
        Ok(())
    }

    fn image_of(&self, backing: Backing) -> Image {
        Image::of(Shared::new(backing, self.owner))
    }
}

/// An image that was opened for reading by another way, such as `repair::Repair::salvage`.
impl From<ReadOnly> for Image {
    fn from(image: ReadOnly) -> Self {
        Self::of(Shared::new(Backing::Read(image), Owner::default()))
    }
}

impl Image {
    /// Opens an image in a file, for reading. What its journal or log holds is replayed in memory.
    ///
    /// # Errors
    /// As [`ImageOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        ImageOptions::new().open(path)
    }

    /// Opens an image in a file, to change it. What its journal or log holds is replayed first.
    ///
    /// # Errors
    /// As [`ImageOptions::open`].
    pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
        ImageOptions::new().write(true).open(path)
    }

    /// How to open one, to be set.
    pub fn options() -> ImageOptions {
        ImageOptions::new()
    }
}
