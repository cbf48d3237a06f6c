//! Files that come from the host, or go to it.

use std::ffi::{c_char, c_int, c_void};

use diskwright::copy::{CopyOptions, CopyReport};
use diskwright::extract::{ExtractOptions, ExtractReport};

use crate::border::{Options, call, check_flags, host_path, options, path, put_if_wanted};
use crate::error::dw_error;
use crate::failure::Result;
use crate::handle::look;
use crate::image::dw_image;
use crate::progress::{Listener, dw_progress, dw_warning};

/// Directories are copied with everything in them, links as links, and special files. Otherwise only regular files are
/// copied, and links are followed.
pub const DW_RECURSIVE: u32 = 1;
/// Owners, all permission bits, times and extended attributes are kept. For dw_copy_in and dw_copy_out.
pub const DW_PRESERVE: u32 = 2;
/// dw_extract goes on after something in the image that cannot be read.
pub const DW_KEEP_GOING: u32 = 4;
/// dw_extract fills a directory that is not empty, and replaces files in it.
pub const DW_FORCE: u32 = 8;
/// dw_extract gives files nothing but their contents and permissions.
pub const DW_PLAIN: u32 = 16;

/// How to copy. All zero but struct_size copies one file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_copy_options {
    /// sizeof(dw_copy_options).
    pub struct_size: usize,
    /// Any of DW_RECURSIVE, DW_PRESERVE, DW_KEEP_GOING, DW_FORCE and DW_PLAIN that the call knows.
    pub flags: u32,
    /// 0, for later versions.
    pub reserved: u32,
    /// What the functions get.
    pub context: *mut c_void,
    /// Asked before each file, with the files and bytes until then. NULL goes on.
    pub progress: dw_progress,
    /// Hears of what was left out. NULL if nobody does.
    pub warning: dw_warning,
}

// SAFETY: numbers and pointers, of which NULL is one.
unsafe impl Options for dw_copy_options {}

/// What was copied.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_copy_report {
    /// Files of any type.
    pub files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Files of the image that could not be read, or not to their end (DW_KEEP_GOING).
    pub unreadable: u64,
    /// Files and attributes that the destination did not take.
    pub left_out: u64,
}

impl From<CopyReport> for dw_copy_report {
    fn from(report: CopyReport) -> Self {
        let CopyReport { files, bytes, left_out } = report;
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

/// Copies a file or directory of the host to `to` in an image, or into it, if it is a directory. A file that is there is
/// replaced. `how` and `report` may be NULL. What was copied before an error stays.
///
/// Calls of other threads that remove names of this image wait meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_copy_in(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        copied(how, report, error, |how, listener| {
            Ok(look(image)?.copy_in(host_path(from)?, path(to)?, how, listener)?)
        })
    }
}

/// Copies a file or directory of an image to `to` on the host, or into it, if it is a directory. Files in the way are
/// replaced, but no image that somebody uses. `how` and `report` may be NULL. What was copied before an error stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_copy_out(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        copied(how, report, error, |how, listener| {
            Ok(look(image)?.copy_out(path(from)?, host_path(to)?, how, listener)?)
        })
    }
}

/// A call that copies, in whichever direction, and reports.
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

/// Copies all that is in a directory of the image, or a file, into a directory of the host, which is made if it is not
/// there: with owners, times and attributes, as far as the host lets. No name or link of a hostile image leads outside of
/// it. `how` and `report` may be NULL. What was extracted before an error stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_extract(
    image: *const dw_image,
    from: *const c_char,
    directory: *const c_char,
    how: *const dw_copy_options,
    report: *mut dw_copy_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
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
