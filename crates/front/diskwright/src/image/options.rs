//! Options for opening images.

use std::sync::Arc;

use super::OtherDevices;
use crate::SuperblockPlace;

/// Options for opening an image, and its location in a file. Functions that use only the location ignore
/// [`Self::write`] and [`Self::owner`].
///
/// ```no_run
/// use diskwright::ImageOptions;
///
/// # fn main() -> diskwright::Result<()> {
/// let image = ImageOptions::new().write(true).partition(2).open("disk.img")?;
/// # image.close() }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImageOptions {
    /// Open for writing, not for reading.
    pub write: bool,
    /// User and group of new files. The default is root. As on Linux, files created in a set-group-ID directory inherit
    /// its group instead.
    pub owner: (u32, u32),
    /// Byte offset of the image in the file.
    pub offset: u64,
    /// Number of the partition that contains the image, from 1 on, instead of `offset`. The disk has a partition table
    /// (GPT or MBR).
    pub partition: Option<u32>,
    /// Other devices of the image, such as the one with its log.
    pub devices: OtherDevices,
    /// Read the image without recovery, even if its journal or log needs it or another program changes the image. Not
    /// valid for writing.
    pub norecovery: bool,
    /// Metadata cache size in bytes. `None` selects the default of the format.
    pub cache_bytes: Option<usize>,
    /// Defer creates in large directories, which makes them faster. The order of changes is then weaker: after a crash,
    /// files created there since the last sync may be missing in any order, each as a whole. All other changes are
    /// those up to some moment, as without this option.
    pub defer_creates: bool,
    /// Copy of the ext2, ext3 or ext4 superblock for checks and repairs.
    pub superblock: Option<SuperblockPlace>,
    /// Areas of the file that were not rescued from a failing disk. They are read errors. Only for reading.
    pub mapfile: Option<Arc<disk::Mapfile>>,
    /// Undo file that gets the old contents of all changed blocks.
    pub undo: Option<Arc<::ext4::e2undo::UndoFile>>,
}

setters!(ImageOptions {
    write: bool,
    offset: u64,
    partition: u32 = Some(partition),
    devices: OtherDevices,
    norecovery: bool,
    cache_bytes: usize = Some(cache_bytes),
    defer_creates: bool,
    mapfile: Arc<disk::Mapfile> = Some(mapfile),
});

impl ImageOptions {
    /// Creates options for reading an image that fills the whole file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the field `owner`.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Returns whether the image was found behind layers such as logical volumes.
    pub(crate) fn has_layers(&self) -> bool {
        #[cfg(feature = "layers")]
        return self.devices.layers.as_ref().is_some_and(super::ImageLayers::has_found);
        #[cfg(not(feature = "layers"))]
        false
    }

    /// Sets the keys of encrypted files and directories (fscrypt) of an ext4 image.
    ///
    /// ```no_run
    /// use diskwright::{EncryptionKeys, ImageOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut keys = EncryptionKeys::new();
    /// keys.add(std::fs::read("home.key")?)?;
    /// let image = ImageOptions::new().encryption_keys(keys).open("home.img")?;
    /// println!("{}", String::from_utf8_lossy(&image.read("/alice/notes.txt")?));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "fscrypt")]
    #[must_use]
    pub fn encryption_keys(mut self, keys: ::ext4::fscrypt::EncryptionKeys) -> Self {
        self.devices.encryption_keys = keys;
        self
    }

    pub(crate) fn ext4(&self) -> ::ext4::OpenOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(::ext4::CACHE_BYTES_DEFAULT);
        let defer_creates = self.defer_creates.then_some(::ext4::OpenOptions::DEFER_LARGE);
        let norecovery = self.norecovery;
        ::ext4::OpenOptions {
            cache_bytes,
            norecovery,
            defer_creates,
            #[cfg(feature = "fscrypt")]
            keys: self.devices.encryption_keys.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn xfs(&self) -> ::xfs::OpenOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(::xfs::CACHE_BYTES_DEFAULT);
        let defer_creates = self.defer_creates.then_some(::xfs::OpenOptions::DEFER_LARGE);
        ::xfs::OpenOptions {
            cache_bytes,
            norecovery: self.norecovery,
            defer_creates,
            ..Default::default()
        }
    }
}
