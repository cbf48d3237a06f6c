//! Options for opening images.

use std::sync::Arc;

use super::OtherDevices;
use crate::SuperblockPlace;

/// Location of an image in a file, and options for reading it.
///
/// ```
/// use diskwright::OpenImage;
///
/// let options = OpenImage::default().partition(2).norecovery(true);
/// assert_eq!(options.partition, Some(2));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenImage {
    /// Byte offset of the image in the file.
    pub offset: u64,
    /// Number of the partition that contains the image, instead of `offset`.
    pub partition: Option<u32>,
    /// Other devices of the image.
    pub devices: OtherDevices,
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
    /// Undo file that gets the old contents of all changed blocks.
    pub undo: Option<Arc<::ext4::e2undo::UndoFile>>,
}

setters!(OpenImage {
    offset: u64,
    partition: u32 = Some(partition),
    devices: OtherDevices,
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
