//! Handles: what callers hold and cannot look into.
//!
//! A handle begins with a mark of its kind, which is wiped out when it is freed. So NULL and a handle of another kind
//! are told for certain. One that was freed is told only as long as nothing else got its memory: the header forbids it.

use std::ptr;

use crate::failure::{Failure, Result};

/// A type of handle in the header, which stands for a value of this library.
pub(crate) trait Handle: Sized {
    /// What it stands for.
    type Value;
    /// The mark of its kind.
    const MARK: u64;
    /// What it is called in errors.
    const NAME: &'static str;
}

/// What lies behind a handle.
#[repr(C)]
struct Marked<T> {
    mark: u64,
    value: T,
}

/// Says that the mark is gone.
const FREED: u64 = 0;

/// Makes a handle.
pub(crate) fn give<H: Handle>(value: H::Value) -> *mut H {
    Box::into_raw(Box::new(Marked { mark: H::MARK, value })).cast()
}

/// Whether a pointer leads to a handle of this kind.
///
/// # Safety
/// It is NULL or leads to a handle of any kind.
unsafe fn is_of_kind<H: Handle>(handle: *const H) -> bool {
    let marked = handle.cast::<u64>();
    // SAFETY: every handle begins with its mark.
    !handle.is_null() && marked.is_aligned() && unsafe { marked.read() } == H::MARK
}

/// What a handle stands for.
///
/// # Safety
/// It is NULL or leads to a handle of any kind, which is not freed as long as what is returned is used.
pub(crate) unsafe fn look<'a, H: Handle>(handle: *const H) -> Result<&'a H::Value> {
    // SAFETY: as above.
    if !unsafe { is_of_kind(handle) } {
        return Err(Failure::bad_handle(H::NAME, handle.is_null()));
    }
    // SAFETY: its mark says what it is, and the caller that nobody frees it.
    Ok(unsafe { &(*handle.cast::<Marked<H::Value>>()).value })
}

/// Takes a handle back; `None` if it is NULL or of another kind, which stays as it is.
///
/// # Safety
/// It is NULL or leads to a handle of any kind, which nobody uses any more.
pub(crate) unsafe fn take<H: Handle>(handle: *mut H) -> Option<H::Value> {
    // SAFETY: as above.
    if !unsafe { is_of_kind(handle) } {
        return None;
    }
    let marked = handle.cast::<Marked<H::Value>>();
    // SAFETY: its mark says what it is; `give` made it of a box; it is the caller's alone. Written so that it is not
    // left out, for whoever frees it again.
    let boxed = unsafe {
        ptr::write_volatile(&raw mut (*marked).mark, FREED);
        Box::from_raw(marked)
    };
    Some(boxed.value)
}
