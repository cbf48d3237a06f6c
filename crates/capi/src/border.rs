//! What crosses the border: calls, texts and structures.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{mem, ptr, slice};

use crate::error::dw_error;
use crate::failure::{Failure, Result, dw_code};
use crate::handle::{Handle, give};

/// Does what a function is for, and says how it ended: its code, and the error itself if the caller wants it.
///
/// # Safety
/// `error` is NULL or may be written to.
pub(crate) unsafe fn call(error: *mut *mut dw_error, act: impl FnOnce() -> Result) -> c_int {
    // What a panic may leave behind is known: locks have no poison, and an image says that it is as after a crash.
    let failure = match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(Failure::of_panic(said(&*panic))),
    };
    let code = failure.as_ref().map_or(dw_code::DW_OK, |failure| failure.code);
    if !error.is_null() {
        let told = failure.map_or(ptr::null_mut(), give::<dw_error>);
        // SAFETY: the caller says so.
        unsafe { error.write(told) };
    }
    code as c_int
}

/// Does what cannot fail, whatever happens on the way.
pub(crate) fn quietly<R>(otherwise: R, act: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// A text of the caller's, as bytes.
///
/// # Safety
/// It is NULL or ends with NUL, and is not changed as long as what is returned is used.
pub(crate) unsafe fn text<'a>(given: *const c_char, what: &str) -> Result<&'a [u8]> {
    // SAFETY: as above.
    unsafe { optional_text(given) }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// The same, where NULL means none.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(given: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as above.
    (!given.is_null()).then(|| unsafe { CStr::from_ptr(given) }.to_bytes())
}

/// A text in UTF-8.
pub(crate) fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str> {
    str::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// A path in an image.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(given: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: as above.
    unsafe { text(given, "a path") }
}

/// A path of the host.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn host_path<'a>(given: *const c_char) -> Result<&'a Path> {
    // SAFETY: as above.
    as_host_path(unsafe { path(given) }?)
}

/// Bytes as a path of the host: any on Unix, and elsewhere UTF-8.
pub(crate) fn as_host_path(bytes: &[u8]) -> Result<&Path> {
    #[cfg(unix)]
    return Ok(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)));
    #[cfg(not(unix))]
    utf8(bytes, "a path of the host").map(Path::new)
}

/// Bytes of the caller's, to be read.
///
/// # Safety
/// There are so many at `data`, and nobody writes to them as long as what is returned is used.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    check_memory(data, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: checked as far as can be, and the caller says the rest.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// Memory of the caller's, to be written: what it holds is never read.
///
/// # Safety
/// There are so many bytes at `data`, which nobody else uses as long as what is returned is used.
pub(crate) unsafe fn memory<'a>(data: *mut u8, len: usize) -> Result<&'a mut [u8]> {
    check_memory(data, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: checked as far as can be, and the caller says the rest.
    Ok(unsafe { slice::from_raw_parts_mut(data, len) })
}

fn check_memory(data: *const u8, len: usize) -> Result {
    match () {
        () if len == 0 => Ok(()),
        () if data.is_null() => Err(Failure::invalid("the buffer is NULL")),
        () if isize::try_from(len).is_err() => Err(Failure::invalid("no buffer has so many bytes")),
        () => Ok(()),
    }
}

/// Puts a result where the caller wants it.
///
/// # Safety
/// `place` is NULL or may be written to.
pub(crate) unsafe fn put<T>(place: *mut T, what: &str, value: T) -> Result {
    check_place(place, what)?;
    // SAFETY: as above.
    unsafe { place.write(value) };
    Ok(())
}

/// The same where the caller may not want it.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as above.
        unsafe { place.write(value) };
    }
}

/// Refuses a place for a result that is NULL, before anything is done for it.
pub(crate) fn check_place<T>(place: *mut T, what: &str) -> Result {
    if place.is_null() {
        return Err(Failure::invalid(format!("there is no place for {what}: it is NULL")));
    }
    Ok(())
}

/// Puts a new handle where the caller wants it; NULL there if there is none.
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

/// A structure of options: its first field is its size in bytes, as the caller knows it. Later versions add fields at its
/// end; zero there means what it was without them.
///
/// # Safety
/// It is `repr(C)`, begins with its size as `usize`, and any bytes are a value of it.
pub(crate) unsafe trait Options: Copy {}

/// Options of the caller's; all zero if there are none.
///
/// # Safety
/// `given` is NULL or leads to as many bytes as its first field says.
pub(crate) unsafe fn options<T: Options>(given: *const T) -> Result<T> {
    // SAFETY: any bytes are a value.
    let mut value = unsafe { mem::zeroed::<T>() };
    if given.is_null() {
        return Ok(value);
    }
    // SAFETY: it begins with its size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=1 << 16).contains(&size) {
        return Err(Failure::invalid("struct_size of a structure is not set"));
    }
    let known = size_of::<T>().min(size);
    // SAFETY: both have so many bytes, and the caller says that the rest is there.
    let rest = unsafe {
        ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
        slice::from_raw_parts(given.cast::<u8>().add(known), size - known)
    };
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::invalid("a structure asks for what only a later version has"));
    }
    Ok(value)
}

/// Refuses flags that mean nothing.
pub(crate) fn check_flags(flags: u32, known: u32) -> Result {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::invalid(format!("no flag here has the bits {unknown:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::{dw_error_code, dw_error_errno, dw_error_free, dw_error_message};

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error = ptr::null_mut();
        // SAFETY: a place of this test's, and an error that it frees.
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
