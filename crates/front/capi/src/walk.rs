//! Walks through everything below a directory.

use std::ffi::{c_char, c_int};
use std::ptr;

use diskwright::fs::Walk;
use parking_lot::Mutex;

use crate::attributes::dw_metadata;
use crate::border::{call, check_flags, quietly};
use crate::error::dw_error;
use crate::failure::Result;
use crate::handle::{Handle, look, take};
use crate::image::dw_image;
use crate::steps::{Steps, begin, next};

/// Sort the entries of each directory by the bytes of their names.
pub const DW_SORTED: u32 = 1;

/// A walk through a tree. It must not be used concurrently, because an entry is valid only until the next call.
pub struct dw_walk {
    _opaque: (),
}

impl Handle for dw_walk {
    type Value = Mutex<Walking>;
    const MARK: u64 = u64::from_le_bytes(*b"dw_walk\0");
    const NAME: &'static str = "a walk";
}

/// An entry of a walk.
#[repr(C)]
pub struct dw_walk_entry {
    /// Path: the start of the walk, followed by the names from there. Ends with NUL.
    pub path: *const c_char,
    /// Length of the path in bytes.
    pub path_len: usize,
    /// The last name, as a part of the path; empty for the start of the walk.
    pub name: *const c_char,
    /// Depth below the start of the walk.
    pub depth: u64,
    /// Attributes when the walk reached the entry.
    pub metadata: dw_metadata,
}

/// A walk, and its last entry.
pub(crate) struct Walking {
    walk: Walk,
    /// Path with NUL.
    path: Vec<u8>,
    entry: Option<dw_walk_entry>,
}

// SAFETY: the pointers refer to the heap buffer of `path` in the same structure.
unsafe impl Send for Walking {}

impl Steps for Walking {
    type Entry = dw_walk_entry;

    fn step(&mut self) -> Result<*const dw_walk_entry> {
        let Some(next) = self.walk.next().transpose()? else { return Ok(ptr::null()) };
        self.path.clear();
        self.path.extend_from_slice(next.path());
        self.path.push(0);
        let path_len = next.path().len();
        let name_start = path_len - next.file_name().len();
        Ok(&raw const *self.entry.insert(dw_walk_entry {
            path: self.path.as_ptr().cast(),
            path_len,
            name: self.path[name_start..].as_ptr().cast(),
            depth: next.depth() as u64,
            metadata: (*next.metadata()).into(),
        }))
    }
}

/// Starts a walk through a path and everything below it: depth first, directories before their entries. Follows a
/// symbolic link at the path itself, but none below. `flags` is DW_SORTED or 0. Entries that are added or removed at
/// the same time may or may not be returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_open(
    image: *const dw_image,
    at: *const c_char,
    flags: u32,
    walk: *mut *mut dw_walk,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        begin(image, at, walk, error, |image, path| {
            check_flags(flags, DW_SORTED)?;
            let walk = image.walk(path);
            let walk = if flags & DW_SORTED != 0 { walk.sorted() } else { walk };
            Ok(Walking { walk, path: Vec::new(), entry: None })
        })
    }
}

/// Stores the next entry. `*entry` is NULL at the end, otherwise valid until the next call with this walk. After an
/// error, the next call continues behind the entry in error; every walk ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_next(
    walk: *mut dw_walk,
    entry: *mut *const dw_walk_entry,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { next(walk, entry, error) }
}

/// Skips the contents of the directory that was returned last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_skip(walk: *mut dw_walk, error: *mut *mut dw_error) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            look(walk)?.lock().walk.skip_current_dir();
            Ok(())
        })
    }
}

/// Frees a walk. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_free(walk: *mut dw_walk) {
    // SAFETY: the caller follows the rules of the header.
    quietly((), || drop(unsafe { take(walk) }));
}
