//! Directory listings.

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

/// A directory listing. It must not be used concurrently, because an entry is valid only until the next call.
pub struct dw_dir {
    _opaque: (),
}

impl Handle for dw_dir {
    type Value = Mutex<OpenListing>;
    const MARK: u64 = u64::from_le_bytes(*b"dw_dir\0\0");
    const NAME: &'static str = "a directory";
}

/// An entry of a directory.
#[repr(C)]
pub struct dw_entry {
    /// Name: any bytes, followed by NUL.
    pub name: *const c_char,
    /// Length of the name in bytes.
    pub name_len: usize,
    /// Inode number.
    pub ino: u64,
    /// Type bits as in st_mode of Linux: 0040000 is a directory. 0 if the type is unknown, because the image is
    /// damaged.
    pub mode: u32,
    /// Must be 0; reserved for later versions.
    pub reserved: u32,
}

/// A listing, and its last entry.
pub(crate) struct OpenListing {
    entries: ReadDir,
    /// Name with NUL.
    name: Vec<u8>,
    entry: dw_entry,
}

// SAFETY: the pointer refers to the heap buffer of `name` in the same structure.
unsafe impl Send for OpenListing {}

impl Steps for OpenListing {
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

/// Starts a listing of a directory. No lock is held between entries: the image may change, and entries that are added
/// or removed at the same time may or may not be listed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_dir_open(
    image: *const dw_image,
    at: *const c_char,
    dir: *mut *mut dw_dir,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        begin(image, at, dir, error, |image, path| {
            let entries = image.read_dir(path)?;
            let entry = dw_entry { name: ptr::null(), name_len: 0, ino: 0, mode: 0, reserved: 0 };
            Ok(OpenListing { entries, name: Vec::new(), entry })
        })
    }
}

/// Stores the next entry, in the directory's own order and without "." and "..". `*entry` is NULL at the end, otherwise
/// valid until the next call with this listing. After an error, the next call continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_dir_next(
    dir: *mut dw_dir,
    entry: *mut *const dw_entry,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { next(dir, entry, error) }
}

/// Frees a listing. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_dir_free(dir: *mut dw_dir) {
    // SAFETY: the caller follows the rules of the header.
    quietly((), || drop(unsafe { take(dir) }));
}
