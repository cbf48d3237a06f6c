//! Accessors of errors.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use crate::border::{put_if_wanted, quietly};
use crate::error::dw_error;
use crate::failure::{DW_NONE, Failure, dw_code, dw_place};
use crate::handle::{look, take};

/// Returns a property of an error; `none` for NULL and for handles of another kind.
///
/// # Safety
/// It is NULL or points to a handle.
unsafe fn of_error<R>(
    error: *const dw_error,
    none: R,
    ask: impl FnOnce(&'static Failure) -> R,
) -> R {
    // SAFETY: the caller of the accessor follows the rules of the header. The result is valid as long as the error, as
    // the header states.
    match unsafe { look(error) } {
        Ok(failure) => ask(failure),
        Err(_) => none,
    }
}

/// Returns the dw_code of an error; DW_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_code(error: *const dw_error) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { of_error(error, dw_code::DW_OK as c_int, |failure| failure.code as c_int) }
}

/// Returns the errno of an error: that of the host or callback that failed, otherwise the closest one. Damage is EIO. 0
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_errno(error: *const dw_error) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { of_error(error, 0, |failure| failure.errno) }
}

/// Returns the message of an error: one human-readable line of UTF-8 that contains the affected file. Valid as long as
/// the error. "no error" for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_message(error: *const dw_error) -> *const c_char {
    // SAFETY: the caller follows the rules of the header.
    unsafe { of_error(error, c"no error".as_ptr(), |failure| failure.message.as_ptr()) }
}

/// Returns the path of the affected file in the image, without NUL bytes; NULL if the error does not concern a single
/// file. Valid as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_path(error: *const dw_error) -> *const c_char {
    let of =
        |text: &'static Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    // SAFETY: the caller follows the rules of the header.
    unsafe { of_error(error, ptr::null(), |failure| of(&failure.path)) }
}

/// Returns the damaged structure in the terms of the format, such as "extent tree node"; NULL if the error is not
/// damage. Valid as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_structure(error: *const dw_error) -> *const c_char {
    let of = |failure: &'static Failure| {
        failure.damage.as_ref().map_or(ptr::null(), |(structure, _)| structure.as_ptr())
    };
    // SAFETY: the caller follows the rules of the header.
    unsafe { of_error(error, ptr::null(), of) }
}

/// Returns 1 and the location if the error is damage; otherwise returns 0 and an unknown location. `place` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_place(error: *const dw_error, place: *mut dw_place) -> c_int {
    const NOWHERE: dw_place = dw_place { group: DW_NONE, block: DW_NONE, inode: DW_NONE };
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        let known =
            of_error(error, None, |failure| failure.damage.as_ref().map(|(_, place)| *place));
        put_if_wanted(place, known.unwrap_or(NOWHERE));
        known.is_some().into()
    }
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_free(error: *mut dw_error) {
    // SAFETY: the caller follows the rules of the header.
    quietly((), || drop(unsafe { take(error) }));
}
