//! The boundary to C: calls, strings and structures.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{mem, ptr, slice};

use crate::error::dw_error;
use crate::failure::{Failure, Result, dw_code};
use crate::handle::{Handle, give};

/// Runs the body of a function. Returns the code, and stores the error if the caller requested it.
///
/// # Safety
/// `error` is NULL or valid for writes.
pub(crate) unsafe fn call(error: *mut *mut dw_error, act: impl FnOnce() -> Result) -> c_int {
    // The state after a panic is well-defined: locks are not poisoned, and an image is in the same state as after a
    // crash.
    let failure = match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(Failure::of_panic(said(&*panic))),
    };
    let code = failure.as_ref().map_or(dw_code::DW_OK, |failure| failure.code);
    if !error.is_null() {
        let told = failure.map_or(ptr::null_mut(), give::<dw_error>);
        // SAFETY: guaranteed by the caller.
        unsafe { error.write(told) };
    }
    code as c_int
}

/// Runs an action that cannot fail, and returns `otherwise` after a panic.
pub(crate) fn quietly<R>(otherwise: R, act: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}

/// Returns the message of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Returns a string of the caller as bytes.
///
/// # Safety
/// It is NULL or ends with NUL, and does not change during the lifetime of the result.
pub(crate) unsafe fn text<'a>(given: *const c_char, what: &str) -> Result<&'a [u8]> {
    // SAFETY: as above.
    unsafe { optional_text(given) }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// Like [`text`], where NULL means none.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(given: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as above.
    (!given.is_null()).then(|| unsafe { CStr::from_ptr(given) }.to_bytes())
}

/// Checks that a string is UTF-8.
pub(crate) fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str> {
    str::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Returns a path in an image.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(given: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: as above.
    unsafe { text(given, "a path") }
}

/// Returns a host path.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn host_path<'a>(given: *const c_char) -> Result<&'a Path> {
    // SAFETY: as above.
    as_host_path(unsafe { path(given) }?)
}

/// Converts bytes to a host path: any bytes on Unix, UTF-8 elsewhere.
pub(crate) fn as_host_path(bytes: &[u8]) -> Result<&Path> {
    #[cfg(unix)]
    return Ok(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)));
    #[cfg(not(unix))]
    utf8(bytes, "a path of the host").map(Path::new)
}

/// Returns a readable buffer of the caller.
///
/// # Safety
/// `data` has `len` bytes, which do not change during the lifetime of the result.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    check_memory(data, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: checked as far as possible; the caller guarantees the rest.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// Returns a writable buffer of the caller. Its contents are never read.
///
/// # Safety
/// `data` has `len` bytes, which nothing else accesses during the lifetime of the result.
pub(crate) unsafe fn memory<'a>(data: *mut u8, len: usize) -> Result<&'a mut [u8]> {
    check_memory(data, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: checked as far as possible; the caller guarantees the rest.
    Ok(unsafe { slice::from_raw_parts_mut(data, len) })
}

fn check_memory(data: *const u8, len: usize) -> Result {
    match () {
        () if len == 0 => Ok(()),
        () if data.is_null() => Err(Failure::invalid("the buffer is NULL")),
        () if isize::try_from(len).is_err() => {
            Err(Failure::invalid("the buffer size is too large"))
        }
        () => Ok(()),
    }
}

/// Stores a result at `place`.
///
/// # Safety
/// `place` is NULL or valid for writes.
pub(crate) unsafe fn put<T>(place: *mut T, what: &str, value: T) -> Result {
    check_place(place, what)?;
    // SAFETY: as above.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a result unless `place` is NULL.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as above.
        unsafe { place.write(value) };
    }
}

/// Rejects NULL as the place of a result, before the call does anything.
pub(crate) fn check_place<T>(place: *mut T, what: &str) -> Result {
    if place.is_null() {
        return Err(Failure::invalid(format!("the pointer for {what} is NULL")));
    }
    Ok(())
}

/// Stores a new handle at `place`, or NULL after an error.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_handle<H: Handle>(
    place: *mut *mut H,
    make: impl FnOnce() -> Result<H::Value>,
) -> Result {
    // SAFETY: as above.
    unsafe {
        put(place, H::NAME, ptr::null_mut())?;
        let value = make()?;
        put(place, H::NAME, give(value))
    }
}

/// A structure of options whose first field is its size in bytes, as known to the caller. Later versions append fields;
/// zero in them preserves the earlier behaviour.
///
/// # Safety
/// It is `repr(C)`, begins with its size as `usize`, and all bit patterns are valid.
pub(crate) unsafe trait Options: Copy {}

/// Reads options of the caller; all zero if `given` is NULL.
///
/// # Safety
/// `given` is NULL or points to the number of bytes in its first field.
pub(crate) unsafe fn options<T: Options>(given: *const T) -> Result<T> {
    // SAFETY: all bit patterns are valid.
    let mut value = unsafe { mem::zeroed::<T>() };
    if given.is_null() {
        return Ok(value);
    }
    // SAFETY: the structure begins with its size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=1 << 16).contains(&size) {
        return Err(Failure::invalid("struct_size of a structure is not set"));
    }
    let known = size_of::<T>().min(size);
    // SAFETY: both have at least `known` bytes, and the caller guarantees the rest.
    let rest = unsafe {
        ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
        slice::from_raw_parts(given.cast::<u8>().add(known), size - known)
    };
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::invalid("a structure uses fields of a later version of this library"));
    }
    Ok(value)
}

/// Rejects unknown flags.
pub(crate) fn check_flags(flags: u32, known: u32) -> Result {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::invalid(format!("unknown flag bits {unknown:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::{dw_error_code, dw_error_errno, dw_error_free, dw_error_message};

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error = ptr::null_mut();
        // SAFETY: a local variable, and an error that this test frees.
        unsafe {
            let code = call(&mut error, || panic!("for the {}", "test"));
            assert_eq!(code, dw_code::DW_BUG as c_int);
            assert_eq!((dw_error_code(error), dw_error_errno(error)), (code, libc::EIO));
            let message = CStr::from_ptr(dw_error_message(error)).to_str().unwrap();
            assert!(message.ends_with("for the test"), "{message}");
            dw_error_free(error);
            assert_eq!(call(&mut error, || Ok(())), 0);
            assert!(error.is_null());
        }
    }

    #[test]
    fn flags_that_mean_nothing_are_refused() {
        assert!(check_flags(5, 7).is_ok());
        assert!(check_flags(8, 7).is_err());
    }
}
