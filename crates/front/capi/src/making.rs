//! Creation of empty images.

use std::ffi::{c_char, c_int};

use diskwright::fs::{Ext4Options, FormatOptions, Image, XfsOptions};

use crate::attributes::{dw_time, timestamp};
use crate::border::{
    Options, call, check_flags, host_path, optional_text, options, put_handle, utf8,
};
use crate::device::{device, dw_device};
use crate::error::dw_error;
use crate::failure::{Failure, Result};
use crate::image::dw_image;

/// ext4; ext2 and ext3 are ext4 with fewer features.
pub const DW_EXT4: u32 = 1;
/// XFS.
pub const DW_XFS: u32 = 2;

/// Allow an XFS image below 300 MiB, which mkfs.xfs refuses because such images are slow.
pub const DW_SMALL: u32 = 1;

/// Options of a new image. If all fields but struct_size and format are zero, the defaults of mke2fs and mkfs.xfs
/// apply.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_format_options {
    /// sizeof(dw_format_options).
    pub struct_size: usize,
    /// DW_EXT4 or DW_XFS.
    pub format: u32,
    /// DW_SMALL or 0.
    pub flags: u32,
    /// Label: at most 16 bytes for ext4 and 12 for XFS. NULL for none.
    pub label: *const c_char,
    /// Changes of the default features, named as in mke2fs or mkfs.xfs: "-has_journal,casefold". NULL for none.
    pub features: *const c_char,
    /// The 16 bytes of the UUID. NULL for a random one.
    pub uuid: *const u8,
    /// The 16-byte seed of directory hashes (ext4). NULL for a random one.
    pub hash_seed: *const u8,
    /// All times of the new file system. NULL for the current time.
    pub time: *const dw_time,
    /// Block size in bytes. 0 for the default.
    pub block_size: u32,
    /// Inode size in bytes. 0 for the default.
    pub inode_size: u32,
    /// Number of inodes (ext4). 0 for the default.
    pub inodes: u32,
    /// Number of allocation groups (XFS). 0 for the default.
    pub ag_count: u32,
    /// Size of the journal or log in bytes. 0 for the default.
    pub log_bytes: u64,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_format_options {}

/// Reads 16 bytes; `None` if the pointer is NULL.
///
/// # Safety
/// It is NULL or points to 16 bytes.
pub(crate) unsafe fn sixteen(place: *const u8) -> Option<[u8; 16]> {
    // SAFETY: as above.
    (!place.is_null()).then(|| unsafe { place.cast::<[u8; 16]>().read_unaligned() })
}

/// Converts the caller's options to those of a format.
///
/// # Safety
/// The pointers in it follow the rules of the header.
unsafe fn format_options(given: *const dw_format_options) -> Result<FormatOptions> {
    // SAFETY: the rules of the header, here and below.
    let given = unsafe { options(given) }?;
    check_flags(given.flags, DW_SMALL)?;
    match given.format {
        // SAFETY: as above.
        DW_EXT4 => unsafe { ext4_options(&given) },
        // SAFETY: as above.
        DW_XFS => unsafe { xfs_options(&given) },
        _ => Err(Failure::invalid("the format is neither DW_EXT4 nor DW_XFS")),
    }
}

/// Rejects a field that does not apply to a format.
fn not_for(is_given: bool, field: &str, format: &str) -> Result {
    if is_given {
        return Err(Failure::invalid(format!(
            "{field} is not supported for {format}; set it to 0"
        )));
    }
    Ok(())
}

fn inode_size(given: &dw_format_options) -> Result<u16> {
    u16::try_from(given.inode_size).map_err(|_| Failure::invalid("the inode size is too large"))
}

/// Options that both formats have.
macro_rules! common {
    ($options:expr, $given:expr) => {{
        let (mut options, given) = ($options, $given);
        if let Some(label) = optional_text(given.label) {
            options = options.label(label);
        }
        if let Some(features) = optional_text(given.features) {
            options = options.features(utf8(features, "the list of features")?);
        }
        if let Some(uuid) = sixteen(given.uuid) {
            options = options.uuid(uuid);
        }
        if !given.time.is_null() {
            options = options.time(timestamp(given.time.read())?);
        }
        if given.block_size > 0 {
            options = options.block_size(given.block_size);
        }
        if given.inode_size > 0 {
            options = options.inode_size(inode_size(given)?);
        }
        options.root_owner(given.root_uid, given.root_gid)
    }};
}

/// # Safety
/// As for [`format_options`].
unsafe fn ext4_options(given: &dw_format_options) -> Result<FormatOptions> {
    not_for(given.ag_count > 0, "ag_count", "ext4")?;
    not_for(given.flags & DW_SMALL > 0, "DW_SMALL", "ext4")?;
    // SAFETY: the caller follows the rules of the header.
    let mut options = unsafe { common!(Ext4Options::new(), given) };
    // SAFETY: the same.
    if let Some(seed) = unsafe { sixteen(given.hash_seed) } {
        options = options.hash_seed(seed);
    }
    if given.inodes > 0 {
        options = options.inodes(given.inodes);
    }
    if given.log_bytes > 0 {
        options = options.journal_bytes(given.log_bytes);
    }
    Ok(options.into())
}

/// # Safety
/// As for [`format_options`].
unsafe fn xfs_options(given: &dw_format_options) -> Result<FormatOptions> {
    not_for(given.inodes > 0, "inodes", "XFS")?;
    not_for(!given.hash_seed.is_null(), "hash_seed", "XFS")?;
    // SAFETY: the caller follows the rules of the header.
    let mut options = unsafe { common!(XfsOptions::new(), given) };
    if given.ag_count > 0 {
        options = options.ag_count(given.ag_count);
    }
    if given.log_bytes > 0 {
        options = options.log_bytes(given.log_bytes);
    }
    Ok(options.allow_small(given.flags & DW_SMALL != 0).into())
}

/// Creates a host file with an empty file system of `size` bytes, and opens it for writing. The file is sparse. Fails,
/// and leaves nothing, if the file exists or the options are invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_create(
    path: *const c_char,
    size: u64,
    format: *const dw_format_options,
    image: *mut *mut dw_image,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_handle(image, || {
                Ok(Image::create(host_path(path)?, size, format_options(format)?)?)
            })
        })
    }
}

/// Creates an empty file system that fills a device of the caller, whatever it contains, and opens it for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_format_device(
    on: *const dw_device,
    format: *const dw_format_options,
    image: *mut *mut dw_image,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_handle(image, || {
                let device = device(on)?;
                Ok(Image::format(device, format_options(format)?)?)
            })
        })
    }
}
