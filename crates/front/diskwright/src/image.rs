//! Opening images of any format.

mod ext4;
mod xfs;

use std::io;
use std::path::Path;
use std::sync::Arc;

use ::ext4::Ext4;
use ::xfs::Xfs;
use disk::{BlockDevice, FileDevice, WindowDevice};
use operations::profile::{ListingProfile, MeasuresListings};
use vfs::{Error as FsError, FileSystem, Paths};

use crate::format::Format;
use crate::partition::{self, Partition, PartitionError, Signature};
use crate::{Error, Result, SuperblockPlace, anywhere, lock};

/// Location of an image in a file, and options for reading it.
///
/// ```
/// use diskwright::OpenImage;
///
/// let options = OpenImage::default().partition(2).norecovery(true);
/// assert_eq!(options.partition, Some(2));
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct OpenImage {
    /// Byte offset of the image in the file.
    pub offset: u64,
    /// Number of the partition that contains the image, instead of `offset`.
    pub partition: Option<u32>,
    /// Read the image without recovery, even if its journal or log needs it or another program changes the image.
    pub norecovery: bool,
    /// Metadata cache size in bytes. `None` selects the default of the format.
    pub cache_bytes: Option<usize>,
    /// Defer creates in large directories, which makes them faster. The order of changes is then weaker: after a crash,
    /// files created there since the last sync may be missing in any order, each as a whole. All other changes are
    /// those up to some moment, as without this option.
    pub defer_creates: bool,
    /// Copy of the ext2, ext3 or ext4 superblock for checks and repairs.
    pub superblock: Option<SuperblockPlace>,
    /// Undo file that gets the old contents of all changed blocks. It serves one run of a program, so it is never
    /// freed.
    pub undo: Option<&'static ::ext4::e2undo::UndoFile>,
}

/// An open image.
pub struct Image {
    fs: Box<dyn MeasuresListings>,
    info: ImageInfo,
    remarks: Vec<String>,
}

/// Properties of an image. They are read as stored, without the changes in its journal or log. The free counts are the
/// exception: they are those after recovery, because the stored ones may be outdated. With [`OpenImage::norecovery`]
/// the free counts are also read as stored.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct ImageInfo {
    /// `ext2`, `ext3`, `ext4` or `xfs`.
    pub format: String,
    /// Label, as text.
    pub label: String,
    /// UUID with dashes.
    pub uuid: String,
    /// Block size in bytes.
    pub block_size: u32,
    /// Total number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Total number of inodes (XFS: allocated inodes).
    pub inodes: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// `clean`, or the problem in the format's own terms.
    pub state: String,
    /// Whether the journal or log needs recovery. An unreadable log counts as one that does.
    pub needs_recovery: bool,
    /// Features by kind.
    pub features: Vec<FeatureGroup>,
    /// Other properties, specific to the format.
    pub sections: Vec<Section>,
}

/// Features of one kind.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct FeatureGroup {
    /// `compatible`, `incompatible` or `read-only compatible`; for XFS also `version` and
    /// `log incompatible`.
    pub kind: String,
    /// Feature names in the format's own terms.
    pub names: Vec<String>,
}

/// A titled list of values.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct Section {
    /// Title of the list.
    pub title: String,
    /// Names and values.
    pub values: Vec<(String, String)>,
}

setters!(OpenImage {
    offset: u64,
    partition: u32 = Some(partition),
    norecovery: bool,
    cache_bytes: usize = Some(cache_bytes),
    defer_creates: bool,
});

impl OpenImage {
    pub(crate) fn ext4(&self) -> ::ext4::OpenOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(::ext4::CACHE_BYTES_DEFAULT);
        let defer_creates = self.defer_creates.then_some(::ext4::OpenOptions::DEFER_LARGE);
        let norecovery = self.norecovery;
        ::ext4::OpenOptions { cache_bytes, norecovery, defer_creates, ..Default::default() }
    }

    pub(crate) fn xfs(&self) -> ::xfs::OpenOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(::xfs::CACHE_BYTES_DEFAULT);
        let defer_creates = self.defer_creates.then_some(::xfs::OpenOptions::DEFER_LARGE);
        ::xfs::OpenOptions { cache_bytes, norecovery: self.norecovery, defer_creates }
    }
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
        vfs::path::check_root(&*image.fs).map_err(at)?;
        Ok(image)
    }

    /// Opens an image for reading even if it has no root directory. This suffices for [`Self::info`].
    ///
    /// # Errors
    /// Same as [`Self::open`], except for a missing root directory.
    pub fn open_rootless(path: &Path, options: &OpenImage) -> Result<Self> {
        Self::of_window(path, open_device(path, options)?, options)
    }

    /// Opens the image on a device, or on part of it, for reading. Errors call it `name`.
    ///
    /// # Errors
    /// Same as [`Self::open`], except for file errors.
    pub(crate) fn open_on(
        name: &Path,
        device: Arc<dyn BlockDevice>,
        options: &OpenImage,
    ) -> Result<Self> {
        let image = Self::of_window(name, window(name, device, options)?, options)?;
        let at = |source| Error::Image { image: name.to_owned(), source };
        vfs::path::check_root(&*image.fs).map_err(at)?;
        Ok(image)
    }

    fn of_window(path: &Path, device: Arc<dyn BlockDevice>, options: &OpenImage) -> Result<Self> {
        let kind = probe_kind(path, &device, options)?;
        open_format(kind, device, options)
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
        let kind = probe_kind(path, &device, options)?;
        let at = |source| Error::Image { image: path.to_owned(), source };
        let image = open_format(kind, device, options).map_err(at)?;
        vfs::path::check_root(&*image.fs).map_err(at)?;
        Ok(image)
    }

    /// Wraps a file system that is already open.
    pub fn new(fs: Box<dyn MeasuresListings>, info: ImageInfo) -> Self {
        Self { fs, info, remarks: Vec::new() }
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Returns access to the files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(&*self.fs)
    }

    /// Returns damage that does not prevent reading.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the profile of the time spent in listings.
    pub fn listing_profile(&self) -> &ListingProfile {
        self.fs.listing_profile()
    }

    /// Returns the properties of the image.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Returns whether the image was cleanly closed. Valid only if it was opened with [`OpenImage::norecovery`].
    #[cfg(all(feature = "mount", target_os = "linux"))]
    pub(crate) fn is_clean(&self) -> bool {
        !self.info.needs_recovery && self.info.state == "clean"
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

/// Format detected by its magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// ext2, ext3 or ext4.
    Ext,
    Xfs,
}

impl Kind {
    /// Returns the feature that makes the image read-only, if there is one.
    pub(crate) fn read_only_because(self, device: &dyn BlockDevice) -> vfs::Result<Option<String>> {
        match self {
            Self::Ext => ext4::read_only_because(device),
            Self::Xfs => xfs::read_only_because(device),
        }
    }
}

/// Returns the format of an image, if its magic number is known.
pub(crate) fn format_of(path: &Path, device: &dyn BlockDevice) -> Result<Option<Kind>> {
    let signature = Signature::of(device).map_err(|e| Error::host("read", path, e))?;
    Ok(kind_of(&signature))
}

/// Returns the format of an image under construction.
pub(crate) fn kind_of_device(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    Ok(kind_of(&Signature::of(device)?))
}

/// Returns the format of an image. The error describes the detected contents instead.
pub(crate) fn probe_kind(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Kind> {
    let signature = Signature::of(&**device).map_err(|e| Error::host("read", path, e))?;
    kind_of(&signature).ok_or_else(|| {
        let source = no_format(&**device, signature, options);
        Error::Image { image: path.to_owned(), source }
    })
}

/// Returns the part of the device selected by the options.
pub(crate) fn window(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Arc<dyn BlockDevice>> {
    let device = part(path, device, options)?;
    Ok(match options.undo {
        Some(undo) => Arc::new(::ext4::e2undo::UndoneDevice::new(device, undo)),
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

fn kind_of(signature: &Signature) -> Option<Kind> {
    match signature {
        Signature::Ext => Some(Kind::Ext),
        Signature::Xfs => Some(Kind::Xfs),
        _ => None,
    }
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

/// Opens a file system of a known format. Only this function uses the open functions of the formats' crates.
fn open_format(
    kind: Kind,
    device: Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> vfs::Result<Image> {
    match kind {
        Kind::Ext => {
            let fs = Ext4::open(device, &options.ext4())?;
            let (info, remarks) = (ext4::info(&fs)?, fs.remarks().to_vec());
            Ok(Image { fs: Box::new(fs), info, remarks })
        }
        Kind::Xfs => {
            let fs = Xfs::open(Arc::clone(&device), &options.xfs())?;
            // Read the log state from the device: `fs` has replayed the log in memory only.
            let info = xfs::info(&fs, xfs::LogState::of(&*device, fs.superblock_found())?)?;
            let remarks = fs.remarks().to_vec();
            Ok(Image { fs: Box::new(fs), info, remarks })
        }
    }
}

/// Opens an image for reading its layout. Also returns its properties and remarks.
#[cfg(feature = "build")]
pub(crate) fn open_layout(
    path: &Path,
    options: &OpenImage,
) -> Result<(Box<dyn vfs::survey::TellsLayout>, ImageInfo, Vec<String>)> {
    let device = open_device(path, options)?;
    let at = |source| Error::Image { image: path.to_owned(), source };
    match probe_kind(path, &device, options)? {
        Kind::Ext => {
            let fs = Ext4::open(device, &options.ext4()).map_err(at)?;
            let (info, remarks) = (ext4::info(&fs).map_err(at)?, fs.remarks().to_vec());
            Ok((Box::new(fs), info, remarks))
        }
        Kind::Xfs => {
            let fs = Xfs::open(Arc::clone(&device), &options.xfs()).map_err(at)?;
            let log = xfs::LogState::of(&*device, fs.superblock_found()).map_err(at)?;
            let (info, remarks) = (xfs::info(&fs, log).map_err(at)?, fs.remarks().to_vec());
            Ok((Box::new(fs), info, remarks))
        }
    }
}

/// Opens the result of a repair in memory for reading. If recovery fails, opens it without recovery.
pub(crate) fn open_repaired(format: Format, device: Arc<dyn BlockDevice>) -> vfs::Result<Image> {
    let kind = match format {
        Format::Ext4 => Kind::Ext,
        Format::Xfs => Kind::Xfs,
    };
    let options = OpenImage::default();
    open_format(kind, Arc::clone(&device), &options).or_else(|error| {
        let as_it_lies = OpenImage { norecovery: true, ..options };
        open_format(kind, device, &as_it_lies).map_err(|_| error)
    })
}

pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*uuid).to_string()
}
