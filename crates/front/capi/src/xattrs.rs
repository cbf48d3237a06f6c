//! Extended attributes.

use std::ffi::{c_char, c_int};

use crate::border::{bytes, call, path, text};
use crate::bytes::{dw_bytes, put_bytes};
use crate::error::dw_error;
use crate::failure::Failure;
use crate::file::dw_file;
use crate::handle::look;
use crate::image::dw_image;

/// Joins names in the form of listxattr(2), each followed by NUL.
fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum::<usize>() + 1);
    for name in names {
        joined.extend_from_slice(name);
        joined.push(0);
    }
    joined
}

/// Returns the value of an extended attribute, to be freed with dw_bytes_free. Names are those of Linux:
/// "user.comment", "security.capability". Here and below, a symbolic link at the end of the path is not followed. Use
/// dw_file_xattr_get and similar functions for its target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_xattr_get(
    image: *const dw_image,
    at: *const c_char,
    name: *const c_char,
    value: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_bytes(value, || {
                let found = look(image)?.get_xattr(path(at)?, text(name, "the name")?)?;
                found.ok_or_else(Failure::no_attribute)
            })
        })
    }
}

/// Sets an extended attribute to a value of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_xattr_set(
    image: *const dw_image,
    at: *const c_char,
    name: *const c_char,
    value: *const u8,
    len: usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let (name, value) = (text(name, "the name")?, bytes(value, len)?);
            Ok(look(image)?.set_xattr(path(at)?, name, value)?)
        })
    }
}

/// Returns the names of a file's extended attributes, sorted, each followed by NUL; to be freed with dw_bytes_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_xattr_list(
    image: *const dw_image,
    at: *const c_char,
    names: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || put_bytes(names, || Ok(joined(&look(image)?.list_xattrs(path(at)?)?))))
    }
}

/// Removes an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_xattr_remove(
    image: *const dw_image,
    at: *const c_char,
    name: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.remove_xattr(path(at)?, text(name, "the name")?)?)) }
}

/// Like dw_xattr_get, for an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_get(
    file: *const dw_file,
    name: *const c_char,
    value: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_bytes(value, || {
                let found = look(file)?.get_xattr(text(name, "the name")?)?;
                found.ok_or_else(Failure::no_attribute)
            })
        })
    }
}

/// Like dw_xattr_set, for an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_set(
    file: *const dw_file,
    name: *const c_char,
    value: *const u8,
    len: usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || Ok(look(file)?.set_xattr(text(name, "the name")?, bytes(value, len)?)?))
    }
}

/// Like dw_xattr_list, for an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_list(
    file: *const dw_file,
    names: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || put_bytes(names, || Ok(joined(&look(file)?.list_xattrs()?)))) }
}

/// Like dw_xattr_remove, for an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_remove(
    file: *const dw_file,
    name: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(file)?.remove_xattr(text(name, "the name")?)?)) }
}
