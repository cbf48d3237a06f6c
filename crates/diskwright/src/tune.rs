//! Changing what the superblock says of its file system.
//!
//! ```no_run
//! use diskwright::OpenImage;
//! use diskwright::tune::change_superblock;
//!
//! # fn main() -> diskwright::Result<()> {
//! // Checked every 30 mounts, as by `tune2fs -c 30`.
//! change_superblock("root.img".as_ref(), &OpenImage::default(), &mut |superblock| {
//!     superblock.max_mnt_count = 30_u16.into();
//!     Ok(())
//! })?;
//! # Ok(()) }
//! ```

use std::path::Path;
use std::sync::Arc;

use blockdev::{BlockDevice, FileDevice};
use ext4::format::superblock::RawSuperblock;
pub use ext4::tune::Request;
pub use xfs::tune::NewUuid;

use crate::image::{self, Kind, probe_kind};
use crate::{Error, Image, OpenImage, Result, anywhere, lock};

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
    let device =
        settled(path, options, Kind::Ext, "its superblock is not one of ext2, ext3 or ext4")?;
    let mut change = |raw: &mut RawSuperblock| change(raw).map_err(vfs::Error::Invalid);
    ext4::tune::change_superblock(&*device, &mut change).map_err(|e| at(path, e))
}

/// Changes features of an image of ext2, ext3 or ext4 with all that depends on them (a journal, quota files, checksums),
/// and fields of its superblock. What the journal holds is replayed first.
///
/// # Errors
/// As [`change_superblock`]; if a feature cannot change, or the check finds damage. Apart from the replay of the journal,
/// nothing was written then.
pub fn tune(
    path: &Path,
    options: &OpenImage,
    request: &Request,
    change: &mut dyn FnMut(&mut RawSuperblock) -> std::result::Result<(), &'static str>,
) -> Result<()> {
    let device =
        settled(path, options, Kind::Ext, "its superblock is not one of ext2, ext3 or ext4")?;
    let mut change = |raw: &mut RawSuperblock| change(raw).map_err(vfs::Error::Invalid);
    ext4::tune::tune(&device, request, &mut change).map_err(|e| at(path, e))
}

/// Gives an image of XFS another UUID, after what its log holds was replayed.
///
/// # Errors
/// If the image is in use, damaged, or of another format. But for what was in the log, nothing was written then.
pub fn change_xfs_uuid(path: &Path, options: &OpenImage, new: NewUuid) -> Result<()> {
    let device = settled(path, options, Kind::Xfs, "its superblock is not one of XFS")?;
    xfs::tune::change_uuid(&*device, new).map_err(|e| at(path, e))
}

/// Opens the device of an image of ext2, ext3 or ext4, and locks it: shared if it is only read. The journal is not replayed.
///
/// # Errors
/// If the image is in use, cannot be opened, or is of another format.
pub fn open_ext_device(
    path: &Path,
    options: &OpenImage,
    is_writable: bool,
) -> Result<Arc<dyn BlockDevice>> {
    const OTHERWISE: &str = "its superblock is not one of ext2, ext3 or ext4";
    let device = match is_writable {
        false => image::open_device(path, options)?,
        true => match anywhere::open_to_write(path)? {
            Some(device) => image::window(path, device, options)?,
            None => return device_of_kind(path, options, Kind::Ext, OTHERWISE),
        },
    };
    if probe_kind(path, &device, options)? != Kind::Ext {
        return Err(at(path, vfs::Error::Invalid(OTHERWISE)));
    }
    Ok(device)
}

/// The device of an image that is of this kind and needs no recovery any more.
fn settled(
    path: &Path,
    options: &OpenImage,
    kind: Kind,
    otherwise: &'static str,
) -> Result<Arc<dyn BlockDevice>> {
    let device = device_of_kind(path, options, kind, otherwise)?;
    let needs_recovery = match kind {
        Kind::Ext => ext4::tune::needs_recovery(&*device),
        Kind::Xfs => xfs::tune::needs_recovery(&*device),
    };
    if !needs_recovery.map_err(|e| at(path, e))? {
        return Ok(device);
    }
    // Its lock would keep the recovery out.
    drop(device);
    Image::recover(path, options)?;
    device_of_kind(path, options, kind, otherwise)
}

/// The device of an image that is of this kind, locked.
fn device_of_kind(
    path: &Path,
    options: &OpenImage,
    kind: Kind,
    otherwise: &'static str,
) -> Result<Arc<dyn BlockDevice>> {
    let file = lock::open_to_write(path)?;
    let device = FileDevice::new(file).map_err(|e| Error::host("read", path, e))?;
    let device = image::window(path, Arc::new(device), options)?;
    if probe_kind(path, &device, options)? != kind {
        return Err(at(path, vfs::Error::Invalid(otherwise)));
    }
    Ok(device)
}

fn at(path: &Path, source: vfs::Error) -> Error {
    Error::Image { image: path.to_owned(), source }
}
