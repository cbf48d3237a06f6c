//! Open files, and whole files at once.

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

/// The file is opened to be read.
pub const DW_READ: u32 = 1;
/// The file is opened to be written.
pub const DW_WRITE: u32 = 2;
/// The file is written at its end only, wherever that is at the moment.
pub const DW_APPEND: u32 = 4;
/// The file is made if it is not there.
pub const DW_CREATE: u32 = 8;
/// The file is made, and must not be there.
pub const DW_CREATE_NEW: u32 = 16;
/// The file is emptied first.
pub const DW_TRUNCATE: u32 = 32;

const OPEN_FLAGS: u32 = DW_READ | DW_WRITE | DW_APPEND | DW_CREATE | DW_CREATE_NEW | DW_TRUNCATE;

/// An open file. Any number of threads may use it at once. It lives until it is freed, also when its last name is removed,
/// and may be freed after its image.
pub struct dw_file {
    _opaque: (),
}

impl Handle for dw_file {
    type Value = File;
    const MARK: u64 = u64::from_le_bytes(*b"dw_file\0");
    const NAME: &'static str = "a file";
}

/// Opens a file. `flags` are DW_READ, DW_WRITE, DW_APPEND, DW_CREATE, DW_CREATE_NEW and DW_TRUNCATE; `mode` has the
/// permission bits of a file that is made, such as 0644, and is 0 or ignored else. A symbolic link at the end of the path
/// is followed, unless the file is to be new. A directory can be opened with DW_READ alone, to ask what is known of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_open(
    image: *const dw_image,
    at: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut dw_file,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
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

/// Frees a file. What was written becomes durable with the next sync or close of the image. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_free(file: *mut dw_file) {
    // SAFETY: the rules of the header.
    quietly((), || drop(unsafe { take(file) }));
}

/// Reads from `offset` on into `buffer`, which has `len` bytes. `count` gets how many were read: fewer than `len` only at
/// the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_pread(
    file: *const dw_file,
    buffer: *mut u8,
    len: usize,
    offset: u64,
    count: *mut usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            check_place(count, "the count")?;
            let read = look(file)?.read_at(memory(buffer, len)?, offset)?;
            put(count, "the count", read)
        })
    }
}

/// Writes all of `data` at `offset`; a file that was opened with DW_APPEND gets it at its end instead. If it fails, a front
/// part may have been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_pwrite(
    file: *const dw_file,
    data: *const u8,
    len: usize,
    offset: u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            look(file)?.write_at(bytes(data, len)?, offset)?;
            Ok(())
        })
    }
}

/// Sets the size of a file in bytes: what is past it goes, and what is new reads as zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_truncate(
    file: *const dw_file,
    size: u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_len(size)?)) }
}

/// Returns when all that was done to the file so far is durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_sync(file: *const dw_file, error: *mut *mut dw_error) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.sync_all()?)) }
}

/// The same for its contents; times may stay behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_sync_data(
    file: *const dw_file,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.sync_data()?)) }
}

/// What is known of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_stat(
    file: *const dw_file,
    metadata: *mut dw_metadata,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            check_place(metadata, "the metadata")?;
            put(metadata, "the metadata", look(file)?.metadata()?.into())
        })
    }
}

/// Sets the permission bits of an open file, which are below 010000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_chmod(
    file: *const dw_file,
    mode: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_permissions(mode)?)) }
}

/// Sets owner and group of an open file; DW_KEEP keeps one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_chown(
    file: *const dw_file,
    uid: u32,
    gid: u32,
    error: *mut *mut dw_error,
) -> c_int {
    use crate::attributes::unless_kept;
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_owner(unless_kept(uid), unless_kept(gid))?)) }
}

/// Sets times of an open file, each if it is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_utimes(
    file: *const dw_file,
    atime: *const dw_time,
    mtime: *const dw_time,
    crtime: *const dw_time,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.set_times(times(atime, mtime, crtime)?)?)) }
}

/// The whole contents of a file, to be freed with dw_bytes_free. A few bytes of an image can claim a file of terabytes:
/// where images come from others, ask for the size first, or read in pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_read_file(
    image: *const dw_image,
    at: *const c_char,
    contents: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || put_bytes(contents, || Ok(look(image)?.read(path(at)?)?))) }
}

/// Makes a file with these contents, or replaces those of the one that is there. If it fails, a front part may have been
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_write_file(
    image: *const dw_image,
    at: *const c_char,
    data: *const u8,
    len: usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(image)?.write(path(at)?, bytes(data, len)?)?)) }
}

/// Copies contents and permissions of a file over another one of the image, which is made if it is not there. `copied` may
/// be NULL, and gets how many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_copy_file(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    copied: *mut u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            put_if_wanted(copied, look(image)?.copy(path(from)?, path(to)?)?);
            Ok(())
        })
    }
}
