//! Transfer of files between host and image.

use std::ffi::{c_char, c_int, c_void};

use diskwright::copy::{CopyOptions, CopyReport};
use diskwright::extract::{ExtractOptions, ExtractReport};

use crate::border::{Options, call, check_flags, host_path, options, path, put_if_wanted};
use crate::error::dw_error;
use crate::failure::Result;
use crate::handle::look;
use crate::image::dw_image;
use crate::progress::{Listener, dw_progress, dw_warning};

/// Copy directories with everything in them, symbolic links as links, and special files. Without it, only regular files
/// are copied, and links are followed.
pub const DW_RECURSIVE: u32 = 1;
/// Preserve owners, all permission bits, times and extended attributes. For dw_copy_in and dw_copy_out.
pub const DW_PRESERVE: u32 = 2;
/// dw_extract continues after unreadable parts of the image.
pub const DW_KEEP_GOING: u32 = 4;
/// dw_extract accepts a directory that is not empty, and replaces files in it.
pub const DW_FORCE: u32 = 8;
/// dw_extract restores only contents and permissions.
pub const DW_PLAIN: u32 = 16;

/// Options of copies. If all fields but struct_size are zero, one file is copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_copy_options {
    /// sizeof(dw_copy_options).
    pub struct_size: usize,
    /// Any of DW_RECURSIVE, DW_PRESERVE, DW_KEEP_GOING, DW_FORCE and DW_PLAIN that the call supports.
    pub flags: u32,
    /// Must be 0; reserved for later versions.
    pub reserved: u32,
    /// Passed to the callbacks.
    pub context: *mut c_void,
    /// Called before each file with the number of files and bytes so far. May be NULL.
    pub progress: dw_progress,
    /// Receives warnings about omitted files and attributes. May be NULL.
    pub warning: dw_warning,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_copy_options {}

/// Result of a copy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_copy_report {
    /// Number of files of any type.
    pub files: u64,
    /// Number of bytes of contents, without holes.
    pub bytes: u64,
    /// Number of files of the image that could not be read completely (DW_KEEP_GOING).
    pub unreadable: u64,
    /// Number of files and attributes that the destination does not support.
    pub left_out: u64,
}

impl From<CopyReport> for dw_copy_report {
    fn from(report: CopyReport) -> Self {
        let CopyReport { files, bytes, left_out, .. } = report;
        Self { files, bytes, unreadable: 0, left_out }
    }
}

impl From<ExtractReport> for dw_copy_report {
    fn from(report: ExtractReport) -> Self {
        let ExtractReport { files, bytes, unreadable, left_out, .. } = report;
        Self { files, bytes, unreadable, left_out }
    }
}

impl dw_copy_options {
    fn copy(&self) -> Result<CopyOptions> {
        check_flags(self.flags, DW_RECURSIVE | DW_PRESERVE)?;
        let has = |flag| self.flags & flag != 0;
        Ok(CopyOptions::default().recursive(has(DW_RECURSIVE)).preserve(has(DW_PRESERVE)))
    }

    fn extract(&self, path: &[u8]) -> Result<ExtractOptions> {
        check_flags(self.flags, DW_KEEP_GOING | DW_FORCE | DW_PLAIN)?;
        let has = |flag| self.flags & flag != 0;
        Ok(ExtractOptions::default()
            .path(path)
            .keep_going(has(DW_KEEP_GOING))
            .force(has(DW_FORCE))
            .plain(has(DW_PLAIN)))
    }

    fn listener(&self) -> Listener {
        Listener::new(self.context, self.progress, self.warning)
    }
}

/// Copies a host file or directory to `to` in an image, or into it if it is a directory. An existing file is replaced.
/// `how` and `report` may be NULL. After an error, the part copied so far remains.
///
/// Concurrent calls that remove names of this image wait until the copy ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_copy_in(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        copied(how, report, error, |how, listener| {
            Ok(look(image)?.copy_in(host_path(from)?, path(to)?, how, listener)?)
        })
    }
}

/// Copies a file or directory of an image to `to` on the host, or into it if it is a directory. Existing files are
/// replaced, except images in use. `how` and `report` may be NULL. After an error, the part copied so far remains.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_copy_out(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        copied(how, report, error, |how, listener| {
            Ok(look(image)?.copy_out(path(from)?, host_path(to)?, how, listener)?)
        })
    }
}

/// Runs a copy in either direction, and stores the report.
///
/// # Safety
/// As for [`call`], [`options`] and [`put_if_wanted`].
unsafe fn copied(
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
    copy: impl FnOnce(CopyOptions, &mut Listener) -> Result<CopyReport>,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let done = copy(how.copy()?, &mut how.listener())?;
            put_if_wanted(report, done.into());
            Ok(())
        })
    }
}

/// Extracts a file or the contents of a directory of the image into a host directory, which is created if it is
/// missing. Restores owners, times and attributes as far as the host permits. No name or link of a hostile image leads
/// outside of the directory. `how` and `report` may be NULL. After an error, the part extracted so far remains.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_extract(
    image: *const dw_image,
    from: *const c_char,
    directory: *const c_char,
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let extraction = how.extract(path(from)?)?;
            let directory = host_path(directory)?;
            let done = look(image)?.extract_to(directory, &extraction, &mut how.listener())?;
            put_if_wanted(report, done.into());
            Ok(())
        })
    }
}
