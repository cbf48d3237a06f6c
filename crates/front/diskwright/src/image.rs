//! Opening images of any format.

pub(crate) mod devices;
mod info;
mod options;
mod text;

pub use devices::{OtherDevices, device_number, open_other_device};
pub use info::{
    Details, ExtDetails, ExtVersion, ImageInfo, ImageState, XfsDetails, XfsLog, XfsRealtime,
};
pub use options::OpenImage;
pub use text::{FeatureGroup, Section};

use std::io;
use std::path::Path;
use std::sync::Arc;

use devices::Access;
use disk::{BlockDevice, FileDevice, WindowDevice};
use operations::profile::ListingProfile;
use vfs::{Error as FsError, FileSystem, Paths};

use crate::dispatch::{self, OpenFs};
use crate::format::Format;
use crate::partition::{self, Partition, PartitionError, Signature};
use crate::recovery::RecoverReport;
use crate::{Error, Result, anywhere, lock};

/// An open image.
pub struct Image {
    fs: Box<dyn OpenFs>,
    info: ImageInfo,
}

impl Image {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// If the file cannot be read or is not a usable image. The error names the detected contents and gives advice. An
    /// image without a root directory is damaged.
    pub fn open(path: &Path, options: &OpenImage) -> Result<Self> {
        let image = Self::open_rootless(path, options)?;
        let at = |source| Error::Image { image: path.to_owned(), source };
        vfs::path::check_root(image.file_system()).map_err(at)?;
        Ok(image)
    }

    /// Opens an image for reading even if it has no root directory. This suffices for [`Self::info`].
    ///
    /// # Errors
    /// Same as [`Self::open`], except for a missing root directory.
    pub fn open_rootless(path: &Path, options: &OpenImage) -> Result<Self> {
        Self::of_window(path, open_device(path, options)?, options)
    }

    /// Opens the image on a device, or on part of it, for reading. Errors call it `name`. No other program may change
    /// the device meanwhile.
    ///
    /// # Errors
    /// Same as [`Self::open`], except for file errors.
    pub fn open_device(
        name: &Path,
        device: Arc<dyn BlockDevice>,
        options: &OpenImage,
    ) -> Result<Self> {
        let image = Self::of_window(name, window(name, device, options)?, options)?;
        let at = |source| Error::Image { image: name.to_owned(), source };
        vfs::path::check_root(image.file_system()).map_err(at)?;
        Ok(image)
    }

    fn of_window(path: &Path, device: Arc<dyn BlockDevice>, options: &OpenImage) -> Result<Self> {
        let format = probe(path, &device, options)?;
        open_format(format, device, options)
            .map_err(|source| Error::Image { image: path.to_owned(), source })
    }

    /// Opens an image as the source of a copy. `is_locked` is true if this process has locked the file in order to
    /// replace it.
    ///
    /// # Errors
    /// Same as [`Self::open`], and if the kernel has the image attached for writing.
    pub(crate) fn open_as_source(
        path: &Path,
        options: &OpenImage,
        is_locked: bool,
    ) -> Result<Self> {
        let device = match anywhere::open(path, is_locked)? {
            Some(device) => device,
            None => {
                let file = lock::open_to_read(path, is_locked)?;
                lock::refuse_attached(path, &file)?;
                Arc::new(FileDevice::new(file).map_err(|e| Error::host("read", path, e))?)
            }
        };
        let device = window(path, device, options)?;
        let format = probe(path, &device, options)?;
        let at = |source| Error::Image { image: path.to_owned(), source };
        let image = open_format(format, device, options).map_err(at)?;
        vfs::path::check_root(image.file_system()).map_err(at)?;
        Ok(image)
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.fs.file_system()
    }

    /// Returns access to the files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(self.file_system())
    }

    /// Returns damage that does not prevent reading.
    pub fn remarks(&self) -> &[String] {
        self.fs.remarks()
    }

    /// Returns the profile of the time spent in listings.
    pub fn listing_profile(&self) -> &ListingProfile {
        self.fs.file_system().listing_profile()
    }

    /// Returns the result of the recovery in memory.
    pub fn recovery(&self) -> RecoverReport {
        self.fs.recovery()
    }

    /// Returns the use of the blocks.
    pub fn layout(&self) -> &dyn vfs::survey::TellsLayout {
        self.fs.layout()
    }

    /// Returns the properties of the image.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Returns whether the image was cleanly closed. Valid only if it was opened with [`OpenImage::norecovery`].
    #[cfg(all(feature = "mount", target_os = "linux"))]
    pub(crate) fn is_clean(&self) -> bool {
        !self.info.needs_recovery && self.info.state == ImageState::Clean
    }
}

/// Opens the device selected by the options for reading. Other programs cannot change it meanwhile, unless the options
/// allow that.
pub(crate) fn open_device(path: &Path, options: &OpenImage) -> Result<Arc<dyn BlockDevice>> {
    if let Some(device) = anywhere::open(path, options.norecovery)? {
        return window(path, device, options);
    }
    let file = lock::open_to_read(path, options.norecovery)?;
    let device = FileDevice::new(file).map_err(|e| Error::host("read", path, e))?;
    window(path, Arc::new(device), options)
}

/// Returns the format of an image, if its magic number is known.
pub(crate) fn format_of(path: &Path, device: &dyn BlockDevice) -> Result<Option<Format>> {
    let signature = Signature::of(device).map_err(|e| Error::host("read", path, e))?;
    Ok(Format::of(&signature))
}

/// Returns the format of an image under construction.
pub(crate) fn format_of_device(device: &dyn BlockDevice) -> io::Result<Option<Format>> {
    Ok(Format::of(&Signature::of(device)?))
}

/// Returns the format of an image. The error describes the detected contents instead.
pub(crate) fn probe(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Format> {
    let signature = Signature::of(&**device).map_err(|e| Error::host("read", path, e))?;
    Format::of(&signature).ok_or_else(|| {
        let source = no_format(&**device, signature, options);
        Error::Image { image: path.to_owned(), source }
    })
}

/// Returns the part of the device selected by the options, for reading, together with the other devices of the image.
pub(crate) fn window(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Arc<dyn BlockDevice>> {
    join(path, device, options, Access::Read)
}

/// Like [`window`], for writing.
pub(crate) fn window_to_write(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Arc<dyn BlockDevice>> {
    join(path, device, options, Access::Write)
}

fn join(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
    access: Access,
) -> Result<Arc<dyn BlockDevice>> {
    let device = window_alone(path, device, options)?;
    devices::join(path, device, &options.devices, options.norecovery, access)
}

/// Returns the part of the device selected by the options, without other devices.
fn window_alone(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Arc<dyn BlockDevice>> {
    let device = part(path, device, options)?;
    Ok(match &options.undo {
        Some(undo) => Arc::new(::ext4::e2undo::UndoneDevice::new(device, Arc::clone(undo))),
        None => device,
    })
}

fn part(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Arc<dyn BlockDevice>> {
    let (start, len) = match options.partition {
        Some(number) => {
            let found = partition::find(&*device, number)
                .map_err(|error| no_partition(path, &*device, error))?;
            (found.offset, found.len)
        }
        None if options.offset == 0 => return Ok(device),
        None => match device.len().checked_sub(options.offset) {
            Some(len) if len > 0 => (options.offset, len),
            _ => {
                let len = device.len();
                let past = format!("--offset is past the end of the image ({len} bytes)");
                return Err(Error::Usage(past));
            }
        },
    };
    let window = WindowDevice::new(device, start, len).map_err(|e| Error::host("read", path, e))?;
    Ok(Arc::new(window))
}

/// Creates the error for a missing partition. If the file has another format, the error says so.
fn no_partition(path: &Path, device: &dyn BlockDevice, error: PartitionError) -> Error {
    if let (PartitionError::NoTable, Ok(Signature::Other(found))) = (&error, Signature::of(device))
    {
        let source = FsError::unsupported(found.description(), found.advice);
        return Error::Image { image: path.to_owned(), source };
    }
    Error::Partition { image: path.to_owned(), source: error }
}

/// Creates the error for an image of unknown format.
fn no_format(device: &dyn BlockDevice, signature: Signature, options: &OpenImage) -> FsError {
    let is_whole = options.partition.is_none() && options.offset == 0;
    let partitions = if is_whole { partition::read(device).ok().flatten() } else { None };
    if let Some(partitions) = partitions.filter(|partitions| !partitions.is_empty()) {
        return whole_disk(&partitions);
    }
    let what = match signature {
        Signature::Other(found) => return FsError::unsupported(found.description(), found.advice),
        Signature::Lost(lost) => {
            let what = format!(
                "an {} file system without a valid superblock; another structure of it is at byte \
                 {}",
                lost.format, lost.at
            );
            return FsError::unsupported(what, LOST);
        }
        Signature::Zeros => "an image that starts with zeros only",
        _ => "neither an ext2/3/4 nor an XFS image",
    };
    FsError::unsupported(what, if is_whole { WHOLE } else { DAMAGED })
}

const LOST: &str =
    "run diskwright check for the damage, or diskwright extract --salvage to read the files";
const DAMAGED: &str =
    "if it is damaged, diskwright check and extract --salvage search for superblock copies";
const WHOLE: &str = "if it is inside a disk image, use --partition or --offset; if it is damaged, \
                     diskwright check and extract --salvage search for superblock copies";

fn whole_disk(partitions: &[Partition]) -> FsError {
    let what = format!("a disk with partitions; {}", partition::overview(partitions));
    FsError::unsupported(what, "choose one with --partition N")
}

/// Opens an image of a known format for reading.
fn open_format(
    format: Format,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> vfs::Result<Image> {
    let fs = dispatch::open(format, Arc::clone(&device), options)?;
    // Read the log state from the device: `fs` has replayed the log in memory only.
    let info = fs.info(Some(&*device))?;
    Ok(Image { fs, info })
}

/// Opens the result of a repair in memory for reading. If recovery fails, opens it without recovery.
pub(crate) fn open_repaired(format: Format, device: Arc<dyn BlockDevice>) -> vfs::Result<Image> {
    let options = OpenImage::default();
    open_format(format, Arc::clone(&device), &options).or_else(|error| {
        let as_it_lies = OpenImage { norecovery: true, ..OpenImage::default() };
        open_format(format, device, &as_it_lies).map_err(|_| error)
    })
}
