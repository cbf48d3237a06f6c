//! Extended attributes.

use std::ffi::{c_char, c_int};

use crate::border::{bytes, call, path, text};
use crate::bytes::{dw_bytes, put_bytes};
use crate::error::dw_error;
use crate::failure::Failure;
use crate::file::dw_file;
use crate::handle::look;
use crate::image::dw_image;

/// Names as listxattr(2) has them: a NUL behind each.
fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum::<usize>() + 1);
    for name in names {
        joined.extend_from_slice(name);
        joined.push(0);
    }
    joined
}

/// The value of an extended attribute, to be freed with dw_bytes_free. Names are as Linux has them: "user.comment",
/// "security.capability". Here and below, a symbolic link at the end of the path is not followed: dw_file_xattr_get and its
/// like are for what it leads to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_xattr_get(
    image: *const dw_image,
    at: *const c_char,
    name: *const c_char,
    value: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
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
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            let (name, value) = (text(name, "the name")?, bytes(value, len)?);
            Ok(look(image)?.set_xattr(path(at)?, name, value)?)
        })
    }
}

/// The names of a file's extended attributes, sorted, with a NUL behind each; to be freed with dw_bytes_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_xattr_list(
    image: *const dw_image,
    at: *const c_char,
    names: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
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
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(image)?.remove_xattr(path(at)?, text(name, "the name")?)?)) }
}

/// As dw_xattr_get, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_get(
    file: *const dw_file,
    name: *const c_char,
    value: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            put_bytes(value, || {
                let found = look(file)?.get_xattr(text(name, "the name")?)?;
                found.ok_or_else(Failure::no_attribute)
            })
        })
    }
}

/// As dw_xattr_set, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_set(
    file: *const dw_file,
    name: *const c_char,
    value: *const u8,
    len: usize,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || Ok(look(file)?.set_xattr(text(name, "the name")?, bytes(value, len)?)?))
    }
}

/// As dw_xattr_list, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_list(
    file: *const dw_file,
    names: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || put_bytes(names, || Ok(joined(&look(file)?.list_xattrs()?)))) }
}

/// As dw_xattr_remove, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_file_xattr_remove(
    file: *const dw_file,
    name: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { call(error, || Ok(look(file)?.remove_xattr(text(name, "the name")?)?)) }
}
