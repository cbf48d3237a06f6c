//! Creating images.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::mkfs as of_ext4;
use vfs::Timestamp;
use xfs::mkfs as of_xfs;

use crate::image::shared::now;
use crate::image::{Image, ImageOptions, UNNAMED};
use crate::{Error, Result, lock};

/// Size of the area at the start of a device that may contain magic numbers of other formats and partition tables.
const MARKS_BYTES: u64 = 64 << 10;

/// Format of a new image and its options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FormatOptions {
    /// ext4; also ext2 and ext3, depending on the features.
    Ext4(Ext4Options),
    /// XFS.
    Xfs(XfsOptions),
}

impl From<Ext4Options> for FormatOptions {
    fn from(options: Ext4Options) -> Self {
        Self::Ext4(options)
    }
}

impl From<XfsOptions> for FormatOptions {
    fn from(options: XfsOptions) -> Self {
        Self::Xfs(options)
    }
}

/// Options of a new ext4 image: the common ones of [`NewImage`] and those specific to ext4. The defaults are those of
/// mke2fs, except that images of 8 MiB and more use 4 KiB blocks.
///
/// ```
/// use std::sync::Arc;
/// use diskwright::fs::{Ext4Options, Image, MemoryDevice};
///
/// # fn main() -> diskwright::Result<()> {
/// let options = Ext4Options::new().label("data").features("-has_journal").inodes(5000);
/// let image = Image::format(Arc::new(MemoryDevice::new(16 << 20)), options)?;
/// assert_eq!(image.label()?, b"data");
/// # image.close() }
/// ```
pub type Ext4Options = NewImage<OfExt4>;

/// Options of a new XFS image: the common ones of [`NewImage`] and those specific to XFS. The defaults are those of
/// mkfs.xfs.
///
/// ```
/// use std::sync::Arc;
/// use diskwright::fs::{Image, MemoryDevice, XfsOptions};
///
/// # fn main() -> diskwright::Result<()> {
/// let options = XfsOptions::new().label("scratch").allow_small(true);
/// let image = Image::format(Arc::new(MemoryDevice::new(64 << 20)), options)?;
/// assert_eq!(image.label()?, b"scratch");
/// # image.close() }
/// ```
pub type XfsOptions = NewImage<OfXfs>;

/// Options of a new image: common options and those of the format `F` ([`Ext4Options`], [`XfsOptions`]).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NewImage<F> {
    label: Vec<u8>,
    features: String,
    block_size: Option<u32>,
    inode_size: Option<u16>,
    root_owner: (u32, u32),
    uuid: Option<[u8; 16]>,
    time: Option<Timestamp>,
    own: F,
}

/// Options of [`Ext4Options`] that are specific to ext4.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct OfExt4 {
    inodes: Option<u32>,
    journal_bytes: Option<u64>,
    reserved_percent: Option<u8>,
    hash_seed: Option<[u8; 16]>,
}

/// Options of [`XfsOptions`] that are specific to XFS.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct OfXfs {
    ag_count: Option<u32>,
    log_bytes: Option<u64>,
    allow_small: bool,
}

impl<F: Default> NewImage<F> {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<F> NewImage<F> {
    /// Sets the label: at most 16 bytes for ext4, 12 for XFS.
    #[must_use]
    pub fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets changes to the default features in the syntax of the format's mkfs: `"-has_journal,casefold"` of mke2fs,
    /// `"-rmapbt,ascii-ci"` of mkfs.xfs.
    #[must_use]
    pub fn features(mut self, list: &str) -> Self {
        list.clone_into(&mut self.features);
        self
    }

    /// Sets the block size in bytes, a power of two: 1 KiB to 4 KiB for ext4, up to 64 KiB for XFS.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// Sets the inode size in bytes.
    #[must_use]
    pub fn inode_size(mut self, bytes: u16) -> Self {
        self.inode_size = Some(bytes);
        self
    }

    /// Sets the owner and group of the root directory. The default is root.
    #[must_use]
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        self.root_owner = (uid, gid);
        self
    }

    /// Sets the UUID. The default is random.
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Sets all times of the new file system. The default is now.
    #[must_use]
    pub fn time(mut self, time: impl Into<Timestamp>) -> Self {
        self.time = Some(time.into());
        self
    }
}

impl NewImage<OfExt4> {
    /// Sets the minimum number of inodes. The default is one per 16 KiB.
    #[must_use]
    pub fn inodes(mut self, count: u32) -> Self {
        self.own.inodes = Some(count);
        self
    }

    /// Sets the journal size in bytes.
    #[must_use]
    pub fn journal_bytes(mut self, bytes: u64) -> Self {
        self.own.journal_bytes = Some(bytes);
        self
    }

    /// Sets the space reserved for root, in percent. The default is 5.
    #[must_use]
    pub fn reserved_percent(mut self, percent: u8) -> Self {
        self.own.reserved_percent = Some(percent);
        self
    }

    /// Sets the hash seed of directories. The default is random.
    #[must_use]
    pub fn hash_seed(mut self, seed: [u8; 16]) -> Self {
        self.own.hash_seed = Some(seed);
        self
    }

    fn write(
        &self,
        device: &dyn BlockDevice,
        before: of_ext4::PreviousContents,
    ) -> vfs::Result<()> {
        let usual = of_ext4::Options::new(device.len());
        let plan = of_ext4::plan(&of_ext4::Options {
            label: self.label.clone(),
            features: of_ext4::FeatureChange::parse_list(&self.features)?,
            block_size: self.block_size,
            inode_size: self.inode_size.unwrap_or(usual.inode_size),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            uuid: self.uuid.unwrap_or_else(random_uuid),
            time: self.time.unwrap_or_else(now),
            inodes: self.own.inodes.map_or(usual.inodes, of_ext4::InodeCount::Count),
            journal_bytes: self.own.journal_bytes,
            reserved_percent: self.own.reserved_percent.map_or(usual.reserved_percent, f64::from),
            hash_seed: self.own.hash_seed.unwrap_or_else(random_uuid),
            ..usual
        })?;
        if before == of_ext4::PreviousContents::Unknown {
            clear_marks(device)?;
        }
        of_ext4::format(device, &plan, before)
    }
}

impl NewImage<OfXfs> {
    /// Sets the number of allocation groups.
    #[must_use]
    pub fn ag_count(mut self, count: u32) -> Self {
        self.own.ag_count = Some(count);
        self
    }

    /// Sets the log size in bytes.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.own.log_bytes = Some(bytes);
        self
    }

    /// Allows images smaller than 300 MiB, which mkfs.xfs refuses. Such images are slow and little tested.
    #[must_use]
    pub fn allow_small(mut self, allow: bool) -> Self {
        self.own.allow_small = allow;
        self
    }

    fn write(&self, device: &dyn BlockDevice, before: of_xfs::PreviousContents) -> vfs::Result<()> {
        let usual = of_xfs::Options::new(device.len());
        let plan = of_xfs::plan(&of_xfs::Options {
            label: self.label.clone(),
            features: of_xfs::FeatureChange::parse_list(&self.features)?,
            block_size: self.block_size.unwrap_or(usual.block_size),
            inode_size: self.inode_size.unwrap_or(usual.inode_size),
            root_uid: self.root_owner.0,
            root_gid: self.root_owner.1,
            uuid: self.uuid.unwrap_or_else(random_uuid),
            time: self.time.unwrap_or_else(now),
            ag_count: self.own.ag_count,
            log_bytes: self.own.log_bytes,
            allow_small: self.own.allow_small,
            ..usual
        })?;
        plan.require_copy()?;
        if before == of_xfs::PreviousContents::Unknown {
            clear_marks(device)?;
        }
        of_xfs::format(device, &plan, before)
    }
}

impl FormatOptions {
    /// Creates an empty file system that fills a device, and leaves it clean. With `is_zero` the device contains only
    /// zeros. Otherwise its contents are overwritten.
    ///
    /// # Errors
    /// If the options are invalid or the device is too small; nothing is written then. If writing fails, the device may
    /// contain a partial file system.
    pub fn write(&self, device: &dyn BlockDevice, is_zero: bool) -> vfs::Result<()> {
        match self {
            Self::Ext4(options) if is_zero => {
                options.write(device, of_ext4::PreviousContents::Zeros)
            }
            Self::Ext4(options) => options.write(device, of_ext4::PreviousContents::Unknown),
            Self::Xfs(options) if is_zero => options.write(device, of_xfs::PreviousContents::Zeros),
            Self::Xfs(options) => options.write(device, of_xfs::PreviousContents::Unknown),
        }?;
        device.flush().map_err(vfs::Error::Device)
    }
}

/// Clears magic numbers of other contents of the device.
fn clear_marks(device: &dyn BlockDevice) -> vfs::Result<()> {
    let at_begin = device.len().min(MARKS_BYTES);
    device.zero_range(0, at_begin).map_err(vfs::Error::Device)
}

/// Returns a random UUID (version 4). It is unpredictable if the host has random numbers.
fn random_uuid() -> [u8; 16] {
    let half = || RandomState::new().hash_one(now().nsec).to_ne_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half());
    bytes[8..].copy_from_slice(&half());
    uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}

impl Image {
    /// Creates an empty file system that fills a device, overwriting its contents, and opens it for writing.
    ///
    /// # Errors
    /// Same as [`FormatOptions::write`].
    pub fn format(device: Arc<dyn BlockDevice>, options: impl Into<FormatOptions>) -> Result<Self> {
        let made = options.into().write(&*device, false);
        made.map_err(|source| Error::image(UNNAMED, source))?;
        ImageOptions::new().write(true).open_device(device)
    }

    /// Creates a host file with an empty file system of `size` bytes and opens it for writing. The file is sparse.
    ///
    /// # Errors
    /// If the file exists, the options are invalid, the size is too small, or the host fails. No file remains then.
    pub fn create(
        path: impl AsRef<Path>,
        size: u64,
        options: impl Into<FormatOptions>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let created = File::create_new(path).and_then(|file| file.set_len(size));
        if let Err(error) = created {
            // Do not remove a file that existed before.
            if error.kind() != std::io::ErrorKind::AlreadyExists {
                let _ = std::fs::remove_file(path);
            }
            return Err(Error::host("make", path, error));
        }
        let made = write_file(path, &options.into());
        let opened = made.and_then(|()| ImageOptions::new().write(true).open(path));
        if opened.is_err() {
            let _ = std::fs::remove_file(path);
        }
        opened
    }
}

/// Creates a file system in a new file.
fn write_file(path: &Path, options: &FormatOptions) -> Result<()> {
    let device = lock::device(path, lock::open_to_write(path)?)?;
    let made = options.write(&device, true);
    made.map_err(|source| Error::image(path, source))
}
