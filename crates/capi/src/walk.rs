//! Going through everything below a directory.

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

/// The entries of each directory come in the order of the bytes of their names.
pub const DW_SORTED: u32 = 1;

/// A walk through a tree. One thread at a time uses it, as an entry lives until the next is asked for.
pub struct dw_walk {
    _opaque: (),
}

impl Handle for dw_walk {
    type Value = Mutex<Walking>;
    const MARK: u64 = u64::from_le_bytes(*b"dw_walk\0");
    const NAME: &'static str = "a walk";
}

/// What a walk came to.
#[repr(C)]
pub struct dw_walk_entry {
    /// Its path: the one that the walk began at, and the names from there. It ends with NUL.
    pub path: *const c_char,
    /// Bytes of the path.
    pub path_len: usize,
    /// The last name of the path, which is part of it; empty for what the walk began at.
    pub name: *const c_char,
    /// How many names it is below what the walk began at.
    pub depth: u64,
    /// What was known of it when the walk came to it.
    pub metadata: dw_metadata,
}

/// A walk, and what it gave last.
pub(crate) struct Walking {
    walk: Walk,
    /// The path, with NUL.
    path: Vec<u8>,
    entry: Option<dw_walk_entry>,
}

// SAFETY: the pointers lead to `path` beside them, which lies on the heap.
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

/// Begins a walk through everything from a path down, that itself first: depth first, directories before what is in them.
/// A symbolic link at the path is followed, and none below. `flags` are DW_SORTED or 0. What comes or goes meanwhile may be
/// met or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_open(
    image: *const dw_image,
    at: *const c_char,
    flags: u32,
    walk: *mut *mut dw_walk,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        begin(image, at, walk, error, |image, path| {
            check_flags(flags, DW_SORTED)?;
            let walk = image.walk(path);
            let walk = if flags & DW_SORTED != 0 { walk.sorted() } else { walk };
            Ok(Walking { walk, path: Vec::new(), entry: None })
        })
    }
}

/// Gives what the walk comes to next. `entry` gets NULL at the end, and else what lives until the next call with this walk.
/// After an error, the next call goes on behind what it concerns; every walk ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_next(
    walk: *mut dw_walk,
    entry: *mut *const dw_walk_entry,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { next(walk, entry, error) }
}

/// Leaves out what is below the directory that was given last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_skip(walk: *mut dw_walk, error: *mut *mut dw_error) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            look(walk)?.lock().walk.skip_current_dir();
            Ok(())
        })
    }
}

/// Frees a walk. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_walk_free(walk: *mut dw_walk) {
    // SAFETY: the rules of the header.
    quietly((), || drop(unsafe { take(walk) }));
}
