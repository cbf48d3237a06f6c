//! Clones of images, and their snapshots.

use std::ffi::{c_char, c_int};

use diskwright::clones::{CommitOptions, ResetTarget, clone, commit, reset, snapshot};

use crate::border::{call, host_path};
use crate::error::dw_error;

/// Creates a writable clone of an image: a new file with only the changes of the base, which is opened like any image. The
/// base must stay and must not change. `bytes` is the length of the clone if it is longer than the base; otherwise 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_clone(
    base: *const c_char,
    name: *const c_char,
    bytes: u64,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let bytes = (bytes > 0).then_some(bytes);
            Ok(clone(host_path(base)?, &[host_path(name)?], bytes)?)
        })
    }
}

/// Keeps the state of a clone as the read-only image `name`. The clone must be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_snapshot(
    clone: *const c_char,
    name: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(snapshot(host_path(clone)?, host_path(name)?)?)) }
}

/// Discards the changes of a clone since its last snapshot, or since the snapshot `to` if it is not NULL. The clone must be
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_reset(
    clone: *const c_char,
    to: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let target = match to.is_null() {
                true => ResetTarget::Last,
                false => ResetTarget::Snapshot(host_path(to)?.to_owned()),
            };
            Ok(reset(host_path(clone)?, &target)?)
        })
    }
}

/// Discards all changes of a clone. The clone must be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_reset_to_base(
    clone: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(reset(host_path(clone)?, &ResetTarget::Base)?)) }
}

/// Creates the raw image `image` from a clone and its base. `base` is the place of a base that has moved, or NULL. An
/// existing file is replaced if `force` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_commit(
    clone: *const c_char,
    image: *const c_char,
    base: *const c_char,
    force: c_int,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let base = if base.is_null() { None } else { Some(host_path(base)?.to_owned()) };
            let options = CommitOptions::new(host_path(clone)?, host_path(image)?);
            commit(&options.base(base).force(force != 0), &mut |_| ())?;
            Ok(())
        })
    }
}
