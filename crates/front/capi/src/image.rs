//! Open images.

use std::ffi::{c_char, c_int};

use diskwright::fs::Image;

use crate::border::{call, check_place, put, quietly, text};
use crate::bytes::{dw_bytes, put_bytes};
use crate::error::dw_error;
use crate::handle::{Handle, look, take};

/// An open image, which any number of threads may use concurrently.
pub struct dw_image {
    _opaque: (),
}

impl Handle for dw_image {
    type Value = Image;
    const MARK: u64 = u64::from_le_bytes(*b"dw_image");
    const NAME: &'static str = "an image";
}

/// Totals of a file system, in blocks and inodes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct dw_totals {
    /// Block size in bytes.
    pub block_size: u32,
    /// Maximum length of a name in bytes.
    pub name_len_max: u32,
    /// Blocks for files and metadata.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks available to unprivileged users.
    pub blocks_available: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// Zeros; reserved for later versions.
    pub reserved: [u64; 4],
}

/// Makes all changes durable and leaves the image clean. Waits for calls of other threads. This handle and those of
/// files, directories and walks remain allocated: calls with them fail with DW_CLOSED until each is freed. Closing it
/// again does nothing.
///
/// After an error, the image could not be written and is in the same state as after a crash.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_image_close(image: *mut dw_image, error: *mut *mut dw_error) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.close_for_all()?)) }
}

/// Frees an image. An image that was not closed is closed when everything opened in it has been freed, and errors are
/// lost: close it first. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_image_free(image: *mut dw_image) {
    // SAFETY: the caller follows the rules of the header.
    quietly((), || drop(unsafe { take(image) }));
}

/// Returns 1 if the image is open for writing, 0 if not or if the handle is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_image_is_writable(image: *const dw_image) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    quietly(0, || unsafe { look(image) }.is_ok_and(Image::is_writable).into())
}

/// Makes all changes so far durable.
///
/// After a crash, an image has the changes up to some moment, at least to the last dw_sync or dw_file_sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_sync(image: *const dw_image, error: *mut *mut dw_error) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.sync()?)) }
}

/// Returns the totals of space and inodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_statfs(
    image: *const dw_image,
    totals: *mut dw_totals,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            check_place(totals, "the totals")?;
            let found = look(image)?.statfs()?;
            let value = dw_totals {
                block_size: found.block_size,
                name_len_max: found.name_len_max,
                blocks: found.blocks,
                blocks_free: found.blocks_free,
                blocks_available: found.blocks_available,
                inodes: found.inodes,
                inodes_free: found.inodes_free,
                reserved: [0; 4],
            };
            put(totals, "the totals", value)
        })
    }
}

/// Returns the label, to be freed with dw_bytes_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_label(
    image: *const dw_image,
    label: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || put_bytes(label, || Ok(look(image)?.label()?))) }
}

/// Sets the label: at most 16 bytes for ext4 and 12 for XFS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_set_label(
    image: *const dw_image,
    label: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.set_label(text(label, "the label")?)?)) }
}
