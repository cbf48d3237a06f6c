//! Listing directories.

use std::ffi::{c_char, c_int};
use std::ptr;

use diskwright::fs::ReadDir;
use parking_lot::Mutex;

use crate::border::quietly;
use crate::error::dw_error;
use crate::failure::Result;
use crate::handle::{Handle, take};
use crate::image::dw_image;
use crate::steps::{Steps, begin, next};

/// A directory that is listed. One thread at a time uses it, as an entry lives until the next is asked for.
pub struct dw_dir {
    _opaque: (),
}

impl Handle for dw_dir {
    type Value = Mutex<Listing>;
    const MARK: u64 = u64::from_le_bytes(*b"dw_dir\0\0");
    const NAME: &'static str = "a directory";
}

/// An entry of a directory.
#[repr(C)]
pub struct dw_entry {
    /// The name, which ends with NUL and is any bytes before.
    pub name: *const c_char,
    /// Bytes of the name.
    pub name_len: usize,
    /// Inode number.
    pub ino: u64,
    /// The type bits of st_mode of Linux: 0040000 is a directory. 0 if that cannot be told, because the image is damaged.
    pub mode: u32,
    /// 0, for later versions.
    pub reserved: u32,
}

/// A listing, and the entry that was given last.
pub(crate) struct Listing {
    entries: ReadDir,
    /// The name, with NUL.
    name: Vec<u8>,
    entry: dw_entry,
}

// SAFETY: the pointer leads to `name` beside it, which lies on the heap.
unsafe impl Send for Listing {}

impl Steps for Listing {
    type Entry = dw_entry;

    fn step(&mut self) -> Result<*const dw_entry> {
        let Some(next) = self.entries.next_ref().transpose()? else { return Ok(ptr::null()) };
        self.name.clear();
        self.name.extend_from_slice(next.file_name());
        self.name.push(0);
        self.entry = dw_entry {
            name: self.name.as_ptr().cast(),
            name_len: self.name.len() - 1,
            ino: next.ino().0,
            mode: next.file_type().map_or(0, |file_type| file_type.mode_bits().into()),
            reserved: 0,
        };
        Ok(&raw const self.entry)
    }
}

/// Begins to list a directory. No lock is held between two entries: the image may change meanwhile, and entries that come
/// or go may be listed or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_dir_open(
    image: *const dw_image,
    at: *const c_char,
    dir: *mut *mut dw_dir,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        begin(image, at, dir, error, |image, path| {
            let entries = image.read_dir(path)?;
            let entry = dw_entry { name: ptr::null(), name_len: 0, ino: 0, mode: 0, reserved: 0 };
            Ok(Listing { entries, name: Vec::new(), entry })
        })
    }
}

/// Gives the next entry, in the directory's own order and without "." and "..". `entry` gets NULL at the end, and else what
/// lives until the next call with this directory. After an error, the next call goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_dir_next(
    dir: *mut dw_dir,
    entry: *mut *const dw_entry,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe { next(dir, entry, error) }
}

/// Frees a directory. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_dir_free(dir: *mut dw_dir) {
    // SAFETY: the rules of the header.
    quietly((), || drop(unsafe { take(dir) }));
}
