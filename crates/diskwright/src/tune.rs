//! Changing what the superblock of ext2, ext3 or ext4 says of its file system.

use std::path::Path;
use std::sync::Arc;

use blockdev::FileDevice;
use ext4::format::superblock::RawSuperblock;

use crate::image::{self, Kind, probe_kind};
use crate::{Error, Image, OpenImage, Result, lock};

/// Changes the superblock of an image of ext2, ext3 or ext4, and its copies. What the journal holds is replayed first.
/// `change` sets fields that are no part of the layout, or says why it does not.
///
/// # Errors
/// If the image is in use, damaged, or of another format; whatever `change` says; and if it changed the layout. Nothing
/// was written then, but for what was in the journal.
pub fn change_superblock(
    path: &Path,
    options: &OpenImage,
    change: &mut dyn FnMut(&mut RawSuperblock) -> std::result::Result<(), &'static str>,
) -> Result<()> {
    if Image::open_rootless(path, &OpenImage { norecovery: true, ..*options })?
        .info()
        .needs_recovery
    {
        Image::recover(path, options)?;
    }
    let file = lock::open_to_write(path)?;
    let device = FileDevice::new(file).map_err(|e| Error::host("read", path, e))?;
    let device = image::window(path, Arc::new(device), options)?;
    let at = |source| Error::Image { image: path.to_owned(), source };
    if probe_kind(path, &device, options)? != Kind::Ext {
        return Err(at(vfs::Error::Invalid("its superblock is not one of ext2, ext3 or ext4")));
    }
    let mut change = |raw: &mut RawSuperblock| change(raw).map_err(vfs::Error::Invalid);
    ext4::tune::change_superblock(&*device, &mut change).map_err(at)
}
