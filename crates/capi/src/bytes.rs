//! Bytes that this library gives to its callers.

use std::ptr;

use crate::border::{check_place, quietly};
use crate::failure::{Failure, Result};

/// Bytes that a call made, and dw_bytes_free frees. A NUL follows them that is not counted, so that what holds none is a
/// text.
#[repr(C)]
pub struct dw_bytes {
    /// The bytes; NULL if there are none to be freed.
    pub data: *mut u8,
    /// How many.
    pub len: usize,
}

const NOTHING: dw_bytes = dw_bytes { data: ptr::null_mut(), len: 0 };

/// Puts what `make` makes where the caller wants it; nothing, if it fails.
///
/// # Safety
/// `place` is NULL or may be written to.
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

/// Frees bytes that a call made, and sets `data` to NULL and `len` to 0. NULL is fine, and so is freeing them again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_bytes_free(bytes: *mut dw_bytes) {
    if bytes.is_null() {
        return;
    }
    // SAFETY: the rules of the header: nobody changed what a call put there.
    unsafe {
        let dw_bytes { data, len } = bytes.replace(NOTHING);
        if !data.is_null() {
            let boxed = ptr::slice_from_raw_parts_mut(data, len + 1);
            quietly((), || drop(Box::from_raw(boxed)));
        }
    }
}
