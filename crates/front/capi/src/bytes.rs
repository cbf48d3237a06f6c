//! Buffers that this library returns.

use std::ptr;

use crate::border::{check_place, quietly};
use crate::failure::{Failure, Result};

/// A buffer returned by a call, to be freed with dw_bytes_free. It is followed by a NUL that `len` does not include, so
/// a buffer without NUL bytes is a C string.
#[repr(C)]
pub struct dw_bytes {
    /// The bytes; NULL if there is nothing to free.
    pub data: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

const NOTHING: dw_bytes = dw_bytes { data: ptr::null_mut(), len: 0 };

/// Stores the result of `make` at `place`; an empty buffer if it fails.
///
/// # Safety
/// `place` is NULL or valid for writes.
pub(crate) unsafe fn put_bytes(
    place: *mut dw_bytes,
    make: impl FnOnce() -> Result<Vec<u8>>,
) -> Result {
    check_place(place, "the bytes")?;
    // SAFETY: it is not NULL.
    unsafe { place.write(NOTHING) };
    let mut bytes = make()?;
    let len = bytes.len();
    bytes.try_reserve_exact(1).map_err(|_| Failure::no_memory())?;
    bytes.push(0);
    let data = Box::into_raw(bytes.into_boxed_slice()).cast();
    // SAFETY: it is not NULL.
    unsafe { place.write(dw_bytes { data, len }) };
    Ok(())
}

/// Frees a buffer, and sets `data` to NULL and `len` to 0. NULL is allowed, and so is a second call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_bytes_free(bytes: *mut dw_bytes) {
    if bytes.is_null() {
        return;
    }
    // SAFETY: the rules of the header: the caller did not change the fields.
    unsafe {
        let dw_bytes { data, len } = bytes.replace(NOTHING);
        if !data.is_null() {
            let boxed = ptr::slice_from_raw_parts_mut(data, len + 1);
            quietly((), || drop(Box::from_raw(boxed)));
        }
    }
}
