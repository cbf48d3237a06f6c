//! Changes of superblock settings.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::tune::change_superblock;
//!
//! # fn main() -> diskwright::Result<()> {
//! // Checked every 30 mounts, as by `tune2fs -c 30`.
//! change_superblock("root.img".as_ref(), &ImageOptions::default(), &mut |superblock| {
//!     superblock.max_mnt_count = 30_u16.into();
//!     Ok(())
//! })?;
//! # Ok(()) }
//! ```

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::format::superblock::RawSuperblock;
pub use ext4::tune::Request;
use vfs::Timestamp;
pub use xfs::tune::{NewFeature, NewUuid, QuotaFlags, Quotas};

use crate::image::{self, probe};
use crate::{Error, Format, ImageOptions, Result, dispatch, mmp};

/// Changes the superblock of an ext2, ext3 or ext4 image and its copies. The journal is replayed first. `change` sets
/// fields that do not affect the layout, or returns an error.
///
/// # Errors
/// If the image is in use, damaged, or of another format; the error of `change`; or if it changed the layout. Only the
/// journal replay was written then.
pub fn change_superblock(
    path: &Path,
    options: &ImageOptions,
    change: &mut dyn FnMut(&mut RawSuperblock) -> std::result::Result<(), &'static str>,
) -> Result<()> {
    let device = settled(path, options, Format::Ext4, "not an ext2, ext3 or ext4 superblock")?;
    let mut change = |raw: &mut RawSuperblock| change(raw).map_err(vfs::Error::Invalid);
    let changed = mmp::during(path, Format::Ext4, device, |device| {
        ext4::tune::change_superblock(&*device, &mut change)
    });
    changed.map_err(|e| at(path, e))
}

/// Changes features of an ext2, ext3 or ext4 image with all dependent structures (journal, quota files, checksums), and
/// superblock fields. The journal is replayed first.
///
/// # Errors
/// Same as [`change_superblock`], and if a feature cannot be changed or the check finds damage. Only the journal replay
/// was written then.
pub fn tune(
    path: &Path,
    options: &ImageOptions,
    request: &Request,
    change: &mut dyn FnMut(&mut RawSuperblock) -> std::result::Result<(), &'static str>,
) -> Result<()> {
    let device = settled(path, options, Format::Ext4, "not an ext2, ext3 or ext4 superblock")?;
    let mut change = |raw: &mut RawSuperblock| change(raw).map_err(vfs::Error::Invalid);
    let mut tune = |device| ext4::tune::tune(&device, request, &mut change);
    // The MMP block may be that of a host that has crashed.
    let tuned = match request.clears_mmp {
        true => tune(device),
        false => mmp::during(path, Format::Ext4, device, tune),
    };
    tuned.map_err(|e| at(path, e))
}

/// Changes the UUID of an XFS image after replaying its log.
///
/// # Errors
/// If the image is in use, damaged, or of another format. Only the log replay was written then.
pub fn change_xfs_uuid(path: &Path, options: &ImageOptions, new: NewUuid) -> Result<()> {
    let device = settled(path, options, Format::Xfs, "not an XFS superblock")?;
    xfs::tune::change_uuid(&*device, new).map_err(|e| at(path, e))
}

/// Adds features to an XFS image after replaying its log. Features that it has already are ignored.
///
/// # Errors
/// If the image is in use, damaged, or of another format, or if a feature cannot be added. Only the log replay was
/// written then.
pub fn add_xfs_features(
    path: &Path,
    options: &ImageOptions,
    features: &[NewFeature],
) -> Result<()> {
    let device = settled(path, options, Format::Xfs, "not an XFS superblock")?;
    xfs::tune::add_features(&device, features).map_err(|e| at(path, e))
}

/// Makes quota files for an XFS image after replaying its log, and counts the usage. A kernel that mounts the image with
/// these quotas need not count. New files get the time `time`.
///
/// ```no_run
/// use diskwright::ImageOptions;
/// use diskwright::tune::{Quotas, add_xfs_quotas};
///
/// # fn main() -> diskwright::Result<()> {
/// // Users and groups, with limits that are enforced.
/// let quotas = Quotas::new([true, true, false], true);
/// add_xfs_quotas("root.img".as_ref(), &ImageOptions::default(), quotas, None)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the image is in use, damaged, full, or of another format. After an error, the quota files may exist, but are not
/// marked as counted.
pub fn add_xfs_quotas(
    path: &Path,
    options: &ImageOptions,
    quotas: Quotas,
    time: Option<Timestamp>,
) -> Result<()> {
    let device = settled(path, options, Format::Xfs, "not an XFS superblock")?;
    let time = time.or_else(vfs::clock::now).unwrap_or_default();
    xfs::tune::add_quotas(&device, quotas, time).map_err(|e| at(path, e))
}

/// Changes which quotas of an XFS image are accounted and enforced, after replaying its log.
///
/// # Errors
/// If the image is in use, damaged, or of another format, or if limits shall be enforced without accounting. Only the
/// log replay was written then.
pub fn change_xfs_quota_flags(
    path: &Path,
    options: &ImageOptions,
    change: QuotaFlags,
) -> Result<()> {
    let device = settled(path, options, Format::Xfs, "not an XFS superblock")?;
    xfs::tune::change_quota_flags(&device, change).map_err(|e| at(path, e))
}

/// Opens and locks the device of an ext2, ext3 or ext4 image, shared for reading. The journal is not replayed. For
/// writing, an image with multiple mount protection is claimed until the device is dropped.
///
/// # Errors
/// If the image is in use, cannot be opened, or is of another format.
pub fn open_ext_device(
    path: &Path,
    options: &ImageOptions,
    is_writable: bool,
) -> Result<Arc<dyn BlockDevice>> {
    const OTHERWISE: &str = "not an ext2, ext3 or ext4 superblock";
    let device = match is_writable {
        false => image::open_device(path, options)?,
        true => match crate::image::open_place_to_write(path)? {
            Some(device) => image::window(path, device, options)?,
            None => device_of_format(path, options, Format::Ext4, OTHERWISE)?,
        },
    };
    if probe(path, &device, options)? != Format::Ext4 {
        return Err(at(path, vfs::Error::Invalid(OTHERWISE)));
    }
    if !is_writable {
        return Ok(device);
    }
    let claim = mmp::claim(path, Format::Ext4, &device).map_err(|e| at(path, e))?;
    Ok(claim.map_or(device, |claim| claim as _))
}

/// Opens the device of an image of this format after recovery.
fn settled(
    path: &Path,
    options: &ImageOptions,
    format: Format,
    otherwise: &'static str,
) -> Result<Arc<dyn BlockDevice>> {
    let device = device_of_format(path, options, format, otherwise)?;
    let needs_recovery = dispatch::needs_recovery(format, &*device);
    if !needs_recovery.map_err(|e| at(path, e))? {
        return Ok(device);
    }
    // Release the lock for the recovery.
    drop(device);
    options.recover(path)?;
    device_of_format(path, options, format, otherwise)
}

/// Opens and locks the device of an image of this format.
fn device_of_format(
    path: &Path,
    options: &ImageOptions,
    format: Format,
    otherwise: &'static str,
) -> Result<Arc<dyn BlockDevice>> {
    let device = image::open_device_to_write(path, options)?;
    if probe(path, &device, options)? != format {
        return Err(at(path, vfs::Error::Invalid(otherwise)));
    }
    Ok(device)
}

fn at(path: &Path, source: vfs::Error) -> Error {
    Error::image(path, source)
}
