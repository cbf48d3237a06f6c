//! Open files, and access to whole files.

use std::ffi::{c_char, c_int};

use diskwright::fs::{File, OpenOptions};

use crate::attributes::{dw_metadata, dw_time, times};
use crate::border::{
    bytes, call, check_flags, check_place, memory, path, put, put_handle, put_if_wanted, quietly,
};
use crate::bytes::{dw_bytes, put_bytes};
use crate::error::dw_error;
use crate::handle::{Handle, look, take};
use crate::image::dw_image;

/// Open for reading.
pub const DW_READ: u32 = 1;
/// Open for writing.
pub const DW_WRITE: u32 = 2;
/// Write at the current end of the file only.
pub const DW_APPEND: u32 = 4;
/// Create the file if it does not exist.
pub const DW_CREATE: u32 = 8;
/// Create the file; fail if it exists.
pub const DW_CREATE_NEW: u32 = 16;
/// Truncate the file.
pub const DW_TRUNCATE: u32 = 32;

const OPEN_FLAGS: u32 = DW_READ | DW_WRITE | DW_APPEND | DW_CREATE | DW_CREATE_NEW | DW_TRUNCATE;

/// An open file, which any number of threads may use concurrently. It is valid until it is freed, even after the
/// removal of its last name, and may be freed after its image.
pub struct dw_file {
    _opaque: (),
}

impl Handle for dw_file {
    type Value = File;
    const MARK: u64 = u64::from_le_bytes(*b"dw_file\0");
    const NAME: &'static str = "a file";
}

/// Opens a file. `flags` are DW_READ, DW_WRITE, DW_APPEND, DW_CREATE, DW_CREATE_NEW and DW_TRUNCATE. `mode` contains
/// the permission bits of a new file, such as 0644, and is otherwise ignored. Follows a symbolic link at the end of the
/// path, except with DW_CREATE_NEW. A directory can be opened with DW_READ only, to read its attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_open(
    image: *const dw_image,
    at: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut dw_file,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_handle(file, || {
                check_flags(flags, OPEN_FLAGS)?;
                let has = |flag| flags & flag != 0;
                let options = OpenOptions::new()
                    .read(has(DW_READ))
                    .write(has(DW_WRITE))
                    .append(has(DW_APPEND))
                    .create(has(DW_CREATE))
                    .create_new(has(DW_CREATE_NEW))
                    .truncate(has(DW_TRUNCATE))
                    .mode(mode);
                Ok(options.open(look(image)?, path(at)?)?)
            })
        })
    }
}

/// Frees a file. Its changes become durable with the next sync or close of the image. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_free(file: *mut dw_file) {
    // SAFETY: the caller follows the rules of the header.
    quietly((), || drop(unsafe { take(file) }));
}

/// Reads from `offset` on into `buffer`, which has `len` bytes. Stores the number of bytes read in `count`: less than
/// `len` only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_pread(
    file: *const dw_file,
    buffer: *mut u8,
    len: usize,
    offset: u64,
    count: *mut usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            check_place(count, "the count")?;
            let read = look(file)?.read_at(memory(buffer, len)?, offset)?;
            put(count, "the count", read)
        })
    }
}

/// Writes all of `data` at `offset`, or at the end of a file opened with DW_APPEND. A failed write may have written a
/// prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_pwrite(
    file: *const dw_file,
    data: *const u8,
    len: usize,
    offset: u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            look(file)?.write_at(bytes(data, len)?, offset)?;
            Ok(())
        })
    }
}

/// Sets the size of a file in bytes. Shrinking discards the contents past it; added bytes read as zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_truncate(
    file: *const dw_file,
    size: u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_len(size)?)) }
}

/// Returns when all completed changes of the file are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_sync(file: *const dw_file, error: *mut *mut dw_error) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.sync_all()?)) }
}

/// Like dw_file_sync, for the contents; times may be omitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_sync_data(
    file: *const dw_file,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.sync_data()?)) }
}

/// Returns the attributes of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_stat(
    file: *const dw_file,
    metadata: *mut dw_metadata,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            check_place(metadata, "the metadata")?;
            put(metadata, "the metadata", look(file)?.metadata()?.into())
        })
    }
}

/// Sets the permission bits of an open file, which must be below 010000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_chmod(
    file: *const dw_file,
    mode: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_permissions(mode)?)) }
}

/// Sets owner and group of an open file; DW_KEEP keeps one unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_chown(
    file: *const dw_file,
    uid: u32,
    gid: u32,
    error: *mut *mut dw_error,
) -> c_int {
    use crate::attributes::unless_kept;
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_owner(unless_kept(uid), unless_kept(gid))?)) }
}

/// Sets times of an open file. NULL keeps a time unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_utimes(
    file: *const dw_file,
    atime: *const dw_time,
    mtime: *const dw_time,
    crtime: *const dw_time,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_times(times(atime, mtime, crtime)?)?)) }
}

/// Reads a whole file into a buffer, to be freed with dw_bytes_free. A small image can contain a sparse file of
/// terabytes: for untrusted images, check the size first, or read in pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_read_file(
    image: *const dw_image,
    at: *const c_char,
    contents: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || put_bytes(contents, || Ok(look(image)?.read(path(at)?)?))) }
}

/// Creates a file with these contents, or replaces the contents of an existing one. A failed write may have written a
/// prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_write_file(
    image: *const dw_image,
    at: *const c_char,
    data: *const u8,
    len: usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.write(path(at)?, bytes(data, len)?)?)) }
}

/// Copies contents and permissions of a file to another file of the image, which is created if it does not exist.
/// `copied` may be NULL; otherwise it receives the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_copy_file(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    copied: *mut u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_if_wanted(copied, look(image)?.copy(path(from)?, path(to)?)?);
            Ok(())
        })
    }
}
