//! Iteration over entries: listings and walks.

use std::ffi::{c_char, c_int};
use std::ptr;

use diskwright::fs::Image;
use parking_lot::Mutex;

use crate::border::{call, check_place, path, put, put_handle};
use crate::error::dw_error;
use crate::failure::Result;
use crate::handle::{Handle, look};
use crate::image::dw_image;

/// An iterator whose entries are valid until the next step.
pub(crate) trait Steps {
    /// An entry in the form of the header.
    type Entry;

    /// Returns the next entry; NULL at the end.
    fn step(&mut self) -> Result<*const Self::Entry>;
}

/// Starts an iteration at a path. The lock limits the damage of illegal concurrent use: threads can at most read each
/// other's entries.
///
/// # Safety
/// As for [`call`], [`look`], [`path`] and [`put_handle`].
pub(crate) unsafe fn begin<H: Handle<Value = Mutex<S>>, S: Steps>(
    image: *const dw_image,
    at: *const c_char,
    place: *mut *mut H,
    error: *mut *mut dw_error,
    begin: impl FnOnce(&Image, &[u8]) -> Result<S>,
) -> c_int {
    // SAFETY: as above.
    unsafe { call(error, || put_handle(place, || begin(look(image)?, path(at)?).map(Mutex::new))) }
}

/// Moves to the next entry.
///
/// # Safety
/// As for [`call`], [`look`] and [`put`].
pub(crate) unsafe fn next<H: Handle<Value = Mutex<S>>, S: Steps>(
    handle: *mut H,
    entry: *mut *const S::Entry,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        call(error, || {
            check_place(entry, "the entry")?;
            entry.write(ptr::null());
            let next = look(handle)?.lock().step()?;
            put(entry, "the entry", next)
        })
    }
}
