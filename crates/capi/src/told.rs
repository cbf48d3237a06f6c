//! What errors tell.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use crate::border::{put_if_wanted, quietly};
use crate::error::dw_error;
use crate::failure::{DW_NONE, Failure, dw_code, dw_place};
use crate::handle::{look, take};

/// What an error has for a question; nothing for NULL, and for what is no error.
///
/// # Safety
/// It is NULL or leads to a handle.
unsafe fn of_error<R>(
    error: *const dw_error,
    none: R,
    ask: impl FnOnce(&'static Failure) -> R,
) -> R {
    // SAFETY: the caller of the function asked about keeps the rules of the header; what is given out lives as long
    // as the error, which the header says.
    match unsafe { look(error) } {
        Ok(failure) => ask(failure),
        Err(_) => none,
    }
}

/// The dw_code of an error; DW_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_code(error: *const dw_error) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { of_error(error, dw_code::DW_OK as c_int, |failure| failure.code as c_int) }
}

/// The number that system calls have for an error: what the host said, if it is the host's or a callback's, and else the
/// nearest. Damage is EIO. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_errno(error: *const dw_error) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { of_error(error, 0, |failure| failure.errno) }
}

/// What went wrong, for people: one line of UTF-8 that names the file concerned. It lives as long as the error. "no error"
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_message(error: *const dw_error) -> *const c_char {
    // SAFETY: the rules of the header.
    unsafe { of_error(error, c"no error".as_ptr(), |failure| failure.message.as_ptr()) }
}

/// The path in the image of the file concerned, as bytes without NUL; NULL if the error is of no one file. It lives as
/// long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_path(error: *const dw_error) -> *const c_char {
    let of =
        |text: &'static Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    // SAFETY: the rules of the header.
    unsafe { of_error(error, ptr::null(), |failure| of(&failure.path)) }
}

/// The structure that is damaged, in the words of the format, such as "extent tree node"; NULL if the error is no damage.
/// It lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_structure(error: *const dw_error) -> *const c_char {
    let of = |failure: &'static Failure| {
        failure.damage.as_ref().map_or(ptr::null(), |(structure, _)| structure.as_ptr())
    };
    // SAFETY: the rules of the header.
    unsafe { of_error(error, ptr::null(), of) }
}

/// Where the damage lies. Returns 1 if the error is damage, and else 0, with nothing known of the place. `place` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_place(error: *const dw_error, place: *mut dw_place) -> c_int {
    const NOWHERE: dw_place = dw_place { group: DW_NONE, block: DW_NONE, inode: DW_NONE };
    // SAFETY: the rules of the header.
    unsafe {
        let known =
            of_error(error, None, |failure| failure.damage.as_ref().map(|(_, place)| *place));
        put_if_wanted(place, known.unwrap_or(NOWHERE));
        known.is_some().into()
    }
}

/// Frees an error. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_error_free(error: *mut dw_error) {
    // SAFETY: the rules of the header.
    quietly((), || drop(unsafe { take(error) }));
}
