//! Opening an image, whatever format it has.

mod ext4;
mod xfs;

use std::io;
use std::path::Path;
use std::sync::Arc;

use ::ext4::Ext4;
use ::xfs::Xfs;
use blockdev::{BlockDevice, FileDevice, WindowDevice};
use operation::profile::{ListingProfile, MeasuresListings};
use vfs::{Error as FsError, FileSystem, Paths};

use crate::format::Format;
use crate::partition::{self, Partition, PartitionError, Signature};
use crate::{Error, Result, SuperblockPlace, anywhere, lock};

/// Where in a file the image is, and how to read it.
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
    /// First byte of the image in the file.
    pub offset: u64,
    /// Number of the partition the image is in, instead of `offset`.
    pub partition: Option<u32>,
    /// Read an image as it lies, though its journal or log needs recovery or somebody changes it.
    pub norecovery: bool,
    /// Memory for cached metadata, in bytes, instead of what is usual for the format.
    pub cache_bytes: Option<usize>,
    /// The copy of an ext2, ext3 or ext4 superblock that a check or a repair reads the image with.
    pub superblock: Option<SuperblockPlace>,
}

/// An open image.
pub struct Image {
    fs: Box<dyn MeasuresListings>,
    info: ImageInfo,
    remarks: Vec<String>,
}

/// What an image says about itself: as it lies, whatever its journal or log would change, but for what is
/// free. That is counted as it will be once the image is recovered, because what lies in place is of
/// any moment before (with [`OpenImage::norecovery`], as it lies).
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
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// All inodes (XFS: as many as there are now).
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// `clean`, or what is the matter, in the format's own terms.
    pub state: String,
    /// Whether the journal or log needs recovery before the image is what it should be, as far as can
    /// be told: a log that cannot be read may hold changes.
    pub needs_recovery: bool,
    /// Features by kind.
    pub features: Vec<FeatureGroup>,
    /// Whatever else the format tells.
    pub sections: Vec<Section>,
}

/// Features of one kind.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct FeatureGroup {
    /// `compatible`, `incompatible` or `read-only compatible`; for XFS also `version` and
    /// `log incompatible`.
    pub kind: String,
    /// Names, in the format's own terms.
    pub names: Vec<String>,
}

/// A titled list of values.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "build", derive(serde::Serialize))]
pub struct Section {
    /// What they are about.
    pub title: String,
    /// Names and values.
    pub values: Vec<(String, String)>,
}

setters!(OpenImage {
    offset: u64,
    partition: u32 = Some(partition),
    norecovery: bool,
    cache_bytes: usize = Some(cache_bytes),
});

impl OpenImage {
    pub(crate) fn ext4(&self) -> ::ext4::OpenOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(::ext4::CACHE_BYTES_DEFAULT);
        ::ext4::OpenOptions { cache_bytes, norecovery: self.norecovery, ..Default::default() }
    }

    pub(crate) fn xfs(&self) -> ::xfs::OpenOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(::xfs::CACHE_BYTES_DEFAULT);
        ::xfs::OpenOptions { cache_bytes, norecovery: self.norecovery, ..Default::default() }
    }
}

impl Image {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// If the file cannot be read, or is no image that can be used; the error says what it seems
    /// to be and what to do about it. Without a root directory, an image is damaged.
    pub fn open(path: &Path, options: &OpenImage) -> Result<Self> {
        let image = Self::open_rootless(path, options)?;
        let at = |source| Error::Image { image: path.to_owned(), source };
        vfs::path::check_root(&*image.fs).map_err(at)?;
        Ok(image)
    }

    /// Opens an image for reading that may have no root directory: enough to ask for
    /// [`Self::info`].
    ///
    /// # Errors
    /// As [`Self::open`], but for the root directory.
    pub fn open_rootless(path: &Path, options: &OpenImage) -> Result<Self> {
        Self::of_window(path, open_device(path, options)?, options)
    }

    /// Opens what lies on a device, or in a part of it, for reading. Errors call it `name`.
    ///
    /// # Errors
    /// As [`Self::open`], but for those of a file.
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

    /// Opens an image to take its files. `is_locked` says that this process has locked the file to replace it.
    ///
    /// # Errors
    /// As [`Self::open`], and if the kernel has it attached to change it.
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

    /// An image that is open already.
    pub fn new(fs: Box<dyn MeasuresListings>, info: ImageInfo) -> Self {
        Self { fs, info, remarks: Vec::new() }
    }

    /// Its file system.
    pub fn file_system(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Its files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(&*self.fs)
    }

    /// Damage that does not keep the image from being read.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What tells where the time of its listings goes.
    pub fn listing_profile(&self) -> &ListingProfile {
        self.fs.listing_profile()
    }

    /// What it says about itself.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Whether it was cleanly closed. To be asked of one that was opened as it lies.
    #[cfg(all(feature = "mount", target_os = "linux"))]
    pub(crate) fn is_clean(&self) -> bool {
        !self.info.needs_recovery && self.info.state == "clean"
    }
}

/// Opens what the options name for reading. Nobody can change it meanwhile, unless they allow it.
pub(crate) fn open_device(path: &Path, options: &OpenImage) -> Result<Arc<dyn BlockDevice>> {
    if let Some(device) = anywhere::open(path, options.norecovery)? {
        return window(path, device, options);
    }
    let file = lock::open_to_read(path, options.norecovery)?;
    let device = FileDevice::new(file).map_err(|e| Error::host("read", path, e))?;
    window(path, Arc::new(device), options)
}

/// A format that can be told by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// ext2, ext3 or ext4.
    Ext,
    Xfs,
}

impl Kind {
    /// Which of its features makes that an image cannot be changed, if one does.
    pub(crate) fn read_only_because(self, device: &dyn BlockDevice) -> vfs::Result<Option<String>> {
        match self {
            Self::Ext => ext4::read_only_because(device),
            Self::Xfs => xfs::read_only_because(device),
        }
    }
}

/// The format of an image, if its magic number tells.
pub(crate) fn format_of(path: &Path, device: &dyn BlockDevice) -> Result<Option<Kind>> {
    let signature = Signature::of(device).map_err(|e| Error::host("read", path, e))?;
    Ok(kind_of(&signature))
}

/// The format of an image that is being made.
pub(crate) fn kind_of_device(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    Ok(kind_of(&Signature::of(device)?))
}

/// The format of an image. An error says what it seems to be instead.
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

/// The part of the file that the options name.
pub(crate) fn window(
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
                let past = format!("--offset lies past the end of the image ({len} bytes)");
                return Err(Error::Usage(past));
            }
        },
    };
    let window = WindowDevice::new(device, start, len).map_err(|e| Error::host("read", path, e))?;
    Ok(Arc::new(window))
}

/// Describes an image without the partition that was asked for: another format explains why.
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

/// Describes an image that is of no format.
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
                "an {} file system whose superblock is lost; another of its structures is at byte {}",
                lost.format, lost.at
            );
            return FsError::unsupported(what, LOST);
        }
        Signature::Zeros => "an image that starts with nothing but zeros",
        _ => "neither an ext2/3/4 nor an XFS image",
    };
    FsError::unsupported(what, if is_whole { WHOLE } else { DAMAGED })
}

const LOST: &str =
    "diskwright check names the damage, diskwright extract --salvage reads the files";
const DAMAGED: &str =
    "if it is damaged, diskwright check and extract --salvage look for copies of the superblock";
const WHOLE: &str = "if it lies inside a disk image, use --partition or --offset; if it is damaged, diskwright check and \
                     extract --salvage look for copies of the superblock";

fn whole_disk(partitions: &[Partition]) -> FsError {
    let what = format!("a disk with partitions; {}", partition::overview(partitions));
    FsError::unsupported(what, "choose one with --partition N")
}

/// Opens the file system of a known format: the only place that knows the formats' crates.
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
            // The device's: what was replayed was replayed in memory.
            let info = xfs::info(&fs, xfs::LogState::of(&*device, fs.superblock_found())?)?;
            let remarks = fs.remarks().to_vec();
            Ok(Image { fs: Box::new(fs), info, remarks })
        }
    }
}

/// Opens an image for reading as one that tells what lies where, beside what it says about itself.
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

/// Opens for reading what a repair made of an image in memory; as it lies, if that was not enough.
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
