//! Making images.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

use blockdev::{BlockDevice, FileDevice};
use ext4::mkfs as of_ext4;
use vfs::Timestamp;
use xfs::mkfs as of_xfs;

use super::shared::now;
use super::{Image, ImageOptions};
use crate::{Error, Result, lock};

/// Bytes at the beginning of a device in which other formats and partition tables have their marks.
const MARKS_BYTES: u64 = 64 << 10;

/// What a new image shall be: one of the formats, with its options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FormatOptions {
    /// ext4, or ext2 and ext3 by their features.
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

/// Options of a new ext4 image. The defaults are those of mke2fs, but blocks have 4 KiB from 8 MiB on.
///
/// ```
/// use std::sync::Arc;
/// use diskwright::fs::{Ext4Options, Image, MemoryDevice};
///
/// # fn main() -> diskwright::Result<()> {
/// let options = Ext4Options::new().label("data").features("-has_journal");
/// let image = Image::format(Arc::new(MemoryDevice::new(16 << 20)), options)?;
/// assert_eq!(image.label()?, b"data");
/// # image.close() }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ext4Options {
    mkfs: of_ext4::Options,
    features: String,
    chosen: Chosen,
}

/// Options of a new XFS image. The defaults are those of mkfs.xfs.
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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct XfsOptions {
    mkfs: of_xfs::Options,
    features: String,
    chosen: Chosen,
}

/// What is made up for each image, unless it was chosen.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    uuid: Option<[u8; 16]>,
    hash_seed: Option<[u8; 16]>,
    time: Option<Timestamp>,
}

macro_rules! common_options {
    () => {
        /// The defaults.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }

        /// The UUID; a random one unless chosen.
        #[must_use]
        pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
            self.chosen.uuid = Some(uuid);
            self
        }

        /// All times of the new file system: now unless chosen.
        #[must_use]
        pub fn time(mut self, time: impl Into<Timestamp>) -> Self {
            self.chosen.time = Some(time.into());
            self
        }

        /// Size of an inode in bytes.
        #[must_use]
        pub fn inode_size(mut self, bytes: u16) -> Self {
            self.mkfs.inode_size = bytes;
            self
        }

        /// Owner of the root directory: root unless told.
        #[must_use]
        pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
            (self.mkfs.root_uid, self.mkfs.root_gid) = (uid, gid);
            self
        }
    };
}

impl Default for Ext4Options {
    fn default() -> Self {
        let mkfs = of_ext4::Options::new(0);
        Self { mkfs, features: String::new(), chosen: Chosen::default() }
    }
}

impl Ext4Options {
    common_options!();

    /// The label: at most 16 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.mkfs.label = label.into();
        self
    }

    /// Changes of the default features, as mke2fs names them: `"-has_journal,casefold"`.
    #[must_use]
    pub fn features(mut self, list: &str) -> Self {
        list.clone_into(&mut self.features);
        self
    }

    /// Block size in bytes: 1024, 2048 or 4096.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.mkfs.block_size = Some(bytes);
        self
    }

    /// How many inodes there are at least: one for 16 KiB unless told.
    #[must_use]
    pub fn inodes(mut self, count: u32) -> Self {
        self.mkfs.inodes = of_ext4::InodeCount::Count(count);
        self
    }

    /// Size of the journal in bytes.
    #[must_use]
    pub fn journal_bytes(mut self, bytes: u64) -> Self {
        self.mkfs.journal_bytes = Some(bytes);
        self
    }

    /// Space kept for root, in percent: 5 unless told.
    #[must_use]
    pub fn reserved_percent(mut self, percent: u8) -> Self {
        self.mkfs.reserved_percent = percent.into();
        self
    }

    /// What names of directories are hashed with; random unless chosen.
    #[must_use]
    pub fn hash_seed(mut self, seed: [u8; 16]) -> Self {
        self.chosen.hash_seed = Some(seed);
        self
    }

    fn write(&self, device: &dyn BlockDevice, before: of_ext4::Contents) -> vfs::Result<()> {
        let plan = of_ext4::plan(&of_ext4::Options {
            size_bytes: device.len(),
            uuid: self.chosen.uuid.unwrap_or_else(random_uuid),
            hash_seed: self.chosen.hash_seed.unwrap_or_else(random_uuid),
            time: self.chosen.time.unwrap_or_else(now),
            features: of_ext4::FeatureChange::parse_list(&self.features)?,
            ..self.mkfs.clone()
        })?;
        if before == of_ext4::Contents::Unknown {
            clear_marks(device)?;
        }
        of_ext4::format(device, &plan, before)
    }
}

impl Default for XfsOptions {
    fn default() -> Self {
        let mkfs = of_xfs::Options::new(0);
        Self { mkfs, features: String::new(), chosen: Chosen::default() }
    }
}

impl XfsOptions {
    common_options!();

    /// The label: at most 12 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.mkfs.label = label.into();
        self
    }

    /// Changes of the default features, as mkfs.xfs names them: `"-rmapbt,ascii-ci"`.
    #[must_use]
    pub fn features(mut self, list: &str) -> Self {
        list.clone_into(&mut self.features);
        self
    }

    /// Block size in bytes: a power of two from 1 KiB to 64 KiB.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.mkfs.block_size = bytes;
        self
    }

    /// Number of allocation groups.
    #[must_use]
    pub fn ag_count(mut self, count: u32) -> Self {
        self.mkfs.ag_count = Some(count);
        self
    }

    /// Size of the log in bytes.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.mkfs.log_bytes = Some(bytes);
        self
    }

    /// Whether the image may have less than 300 MiB, which mkfs.xfs refuses: such images are slow and little tested.
    #[must_use]
    pub fn allow_small(mut self, allow: bool) -> Self {
        self.mkfs.allow_small = allow;
        self
    }

    fn write(&self, device: &dyn BlockDevice, before: of_xfs::Contents) -> vfs::Result<()> {
        let plan = of_xfs::plan(&of_xfs::Options {
            size_bytes: device.len(),
            uuid: self.chosen.uuid.unwrap_or_else(random_uuid),
            time: self.chosen.time.unwrap_or_else(now),
            features: of_xfs::FeatureChange::parse_list(&self.features)?,
            ..self.mkfs.clone()
        })?;
        if before == of_xfs::Contents::Unknown {
            clear_marks(device)?;
        }
        of_xfs::format(device, &plan, before)
    }
}

impl FormatOptions {
    fn write(&self, device: &dyn BlockDevice, is_zero: bool) -> vfs::Result<()> {
        match self {
            Self::Ext4(options) if is_zero => options.write(device, of_ext4::Contents::Zeros),
            Self::Ext4(options) => options.write(device, of_ext4::Contents::Unknown),
            Self::Xfs(options) if is_zero => options.write(device, of_xfs::Contents::Zeros),
            Self::Xfs(options) => options.write(device, of_xfs::Contents::Unknown),
        }?;
        device.flush().map_err(vfs::Error::Device)
    }
}

/// Clears what tells that the device holds something else.
fn clear_marks(device: &dyn BlockDevice) -> vfs::Result<()> {
    let at_begin = device.len().min(MARKS_BYTES);
    device.zero_range(0, at_begin).map_err(vfs::Error::Device)
}

/// Bytes that nobody can foretell (where the host has random numbers), and that are a UUID (version 4).
fn random_uuid() -> [u8; 16] {
    let half = || RandomState::new().hash_one(now().nsec).to_ne_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half());
    bytes[8..].copy_from_slice(&half());
    uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}

impl Image {
    /// Makes an empty file system that fills a device, whatever it holds, and opens it to be changed.
    ///
    /// # Errors
    /// If the options cannot be or the device is too small: nothing is written then. If the device cannot be written, it
    /// may hold a part.
    pub fn format(device: Arc<dyn BlockDevice>, options: impl Into<FormatOptions>) -> Result<Self> {
        let made = options.into().write(&*device, false);
        made.map_err(|source| Error::Image { image: "the image".into(), source })?;
        ImageOptions::new().write(true).open_device(device)
    }

    /// Makes a file of the host with an empty file system of `size` bytes, and opens it to be changed. The file
    /// takes space as it is filled.
    ///
    /// # Errors
    /// If there is a file already, if the options cannot be or the size is too small, or if the host cannot do it.
    /// No file is left then.
    pub fn create(
        path: impl AsRef<Path>,
        size: u64,
        options: impl Into<FormatOptions>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let created = File::create_new(path).and_then(|file| file.set_len(size));
        if let Err(error) = created {
            // Somebody else's file stays.
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

/// Makes a file system in a new file.
fn write_file(path: &Path, options: &FormatOptions) -> Result<()> {
    let file = lock::open_to_write(path)?;
    let device = FileDevice::new(file).map_err(|e| Error::host("read", path, e))?;
    let made = options.write(&device, true);
    made.map_err(|source| Error::Image { image: path.to_owned(), source })
}
