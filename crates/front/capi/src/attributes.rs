//! Attributes of files.

use std::ffi::{c_char, c_int};

use diskwright::fs::{FileTimes, Metadata, Timestamp};

use crate::border::{call, check_flags, check_place, path, put};
use crate::error::dw_error;
use crate::failure::{Failure, Result};
use crate::handle::look;
use crate::image::dw_image;

/// An owner with this value is not changed.
pub const DW_KEEP: u32 = u32::MAX;

/// Do not follow a symbolic link at the end of the path.
pub const DW_NOFOLLOW: u32 = 1;

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// A point in time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct dw_time {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
    /// Must be 0; reserved for later versions.
    pub reserved: u32,
}

impl From<Timestamp> for dw_time {
    fn from(Timestamp { sec, nsec }: Timestamp) -> Self {
        Self { sec, nsec, reserved: 0 }
    }
}

/// Converts a time of the caller.
pub(crate) fn timestamp(dw_time { sec, nsec, .. }: dw_time) -> Result<Timestamp> {
    if nsec >= NSEC_PER_SEC {
        return Err(Failure::invalid("nanoseconds of a time are a second or more"));
    }
    Ok(Timestamp { sec, nsec })
}

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct dw_metadata {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Number of links.
    pub nlink: u64,
    /// Type and permission bits as in st_mode of Linux: 0100644 is a regular file.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major number of a device.
    pub rdev_major: u32,
    /// Minor number of a device.
    pub rdev_minor: u32,
    /// 1 if crtime is known, otherwise 0.
    pub has_crtime: u32,
    /// Last access, if a program maintains it. This library does not.
    pub atime: dw_time,
    /// Last change of the contents.
    pub mtime: dw_time,
    /// Last change of the inode.
    pub ctime: dw_time,
    /// Creation time.
    pub crtime: dw_time,
    /// Zeros; reserved for later versions.
    pub reserved: [u64; 4],
}

impl From<Metadata> for dw_metadata {
    fn from(metadata: Metadata) -> Self {
        Self {
            ino: metadata.ino().0,
            size: metadata.len(),
            blocks: metadata.blocks(),
            nlink: metadata.nlink(),
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev_major: metadata.rdev().major,
            rdev_minor: metadata.rdev().minor,
            has_crtime: metadata.crtime().is_some().into(),
            atime: metadata.atime().into(),
            mtime: metadata.mtime().into(),
            ctime: metadata.ctime().into(),
            crtime: metadata.crtime().unwrap_or_default().into(),
            reserved: [0; 4],
        }
    }
}

/// Returns an owner, or `None` if it is not changed.
pub(crate) fn unless_kept(id: u32) -> Option<u32> {
    (id != DW_KEEP).then_some(id)
}

/// Reads the times to set.
///
/// # Safety
/// Each pointer is NULL or points to a time.
pub(crate) unsafe fn times(
    atime: *const dw_time,
    mtime: *const dw_time,
    crtime: *const dw_time,
) -> Result<FileTimes> {
    let read = |time: *const dw_time| -> Result<Option<Timestamp>> {
        // SAFETY: as above.
        let given = (!time.is_null()).then(|| unsafe { time.read() });
        given.map(timestamp).transpose()
    };
    let mut times = FileTimes::new();
    if let Some(time) = read(atime)? {
        times = times.set_accessed(time);
    }
    if let Some(time) = read(mtime)? {
        times = times.set_modified(time);
    }
    if let Some(time) = read(crtime)? {
        times = times.set_created(time);
    }
    Ok(times)
}

/// Returns the attributes of a file. Follows symbolic links.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stat(
    image: *const dw_image,
    at: *const c_char,
    metadata: *mut dw_metadata,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { told(metadata, error, || Ok(look(image)?.metadata(path(at)?)?)) }
}

/// Like dw_stat, but does not follow a symbolic link at the end of the path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_lstat(
    image: *const dw_image,
    at: *const c_char,
    metadata: *mut dw_metadata,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { told(metadata, error, || Ok(look(image)?.symlink_metadata(path(at)?)?)) }
}

/// Runs a call whose result is the attributes of a file.
///
/// # Safety
/// As for [`call`] and [`put`].
unsafe fn told(
    place: *mut dw_metadata,
    error: *mut *mut dw_error,
    ask: impl FnOnce() -> Result<Metadata>,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        call(error, || {
            check_place(place, "the metadata")?;
            put(place, "the metadata", ask()?.into())
        })
    }
}

/// Sets the permission bits, which must be below 010000. Follows symbolic links.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_chmod(
    image: *const dw_image,
    at: *const c_char,
    mode: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.set_permissions(path(at)?, mode)?)) }
}

/// Sets owner and group; DW_KEEP keeps one unchanged. As in Linux, this clears the set-user-ID and set-group-ID bits
/// and the capabilities of a program. Follows symbolic links, unless `flags` is DW_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_chown(
    image: *const dw_image,
    at: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            check_flags(flags, DW_NOFOLLOW)?;
            let (image, at) = (look(image)?, path(at)?);
            let (uid, gid) = (unless_kept(uid), unless_kept(gid));
            match flags & DW_NOFOLLOW {
                0 => image.chown(at, uid, gid)?,
                _ => image.lchown(at, uid, gid)?,
            }
            Ok(())
        })
    }
}

/// Sets the times of access, modification and creation (if the image stores it). NULL keeps a time unchanged. Follows
/// symbolic links, unless `flags` is DW_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_utimes(
    image: *const dw_image,
    at: *const c_char,
    atime: *const dw_time,
    mtime: *const dw_time,
    crtime: *const dw_time,
    flags: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            check_flags(flags, DW_NOFOLLOW)?;
            let (image, at, times) = (look(image)?, path(at)?, times(atime, mtime, crtime)?);
            match flags & DW_NOFOLLOW {
                0 => image.set_times(at, times)?,
                _ => image.set_times_nofollow(at, times)?,
            }
            Ok(())
        })
    }
}
