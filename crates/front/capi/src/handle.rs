//! Opaque handles.
//!
//! A handle begins with a mark of its kind, which is erased when it is freed. So NULL and handles of another kind are
//! always detected. Use after free, which the header forbids, is detected only until the memory is reused.

use std::ptr;

use crate::failure::{Failure, Result};

/// A handle type of the header, which represents a value of this library.
pub(crate) trait Handle: Sized {
    /// The value.
    type Value;
    /// Mark of the kind.
    const MARK: u64;
    /// Name in error messages.
    const NAME: &'static str;
}

/// Memory layout of a handle.
#[repr(C)]
struct Marked<T> {
    mark: u64,
    value: T,
}

/// The mark of a freed handle.
const FREED: u64 = 0;

/// Creates a handle.
pub(crate) fn give<H: Handle>(value: H::Value) -> *mut H {
    Box::into_raw(Box::new(Marked { mark: H::MARK, value })).cast()
}

/// Returns whether a pointer is a handle of this kind.
///
/// # Safety
/// It is NULL or a handle of any kind.
unsafe fn is_of_kind<H: Handle>(handle: *const H) -> bool {
    let marked = handle.cast::<u64>();
    // SAFETY: every handle begins with its mark.
    !handle.is_null() && marked.is_aligned() && unsafe { marked.read() } == H::MARK
}

/// Returns the value of a handle.
///
/// # Safety
/// It is NULL or a handle of any kind, which is not freed during the lifetime of the result.
pub(crate) unsafe fn look<'a, H: Handle>(handle: *const H) -> Result<&'a H::Value> {
    // SAFETY: as above.
    if !unsafe { is_of_kind(handle) } {
        return Err(Failure::bad_handle(H::NAME, handle.is_null()));
    }
    // SAFETY: the mark identifies the type, and the caller guarantees that it is not freed.
    Ok(unsafe { &(*handle.cast::<Marked<H::Value>>()).value })
}

/// Takes the value out of a handle and frees it. Returns `None`, and does nothing, if it is NULL or of another kind.
///
/// # Safety
/// It is NULL or a handle of any kind that is no longer used.
pub(crate) unsafe fn take<H: Handle>(handle: *mut H) -> Option<H::Value> {
    // SAFETY: as above.
    if !unsafe { is_of_kind(handle) } {
        return None;
    }
    let marked = handle.cast::<Marked<H::Value>>();
    // SAFETY: the mark identifies the type; `give` created it from a box; the caller has exclusive access. The write is
    // volatile so that it is not optimised away, to detect a second free.
    let boxed = unsafe {
        ptr::write_volatile(&raw mut (*marked).mark, FREED);
        Box::from_raw(marked)
    };
    Some(boxed.value)
}
