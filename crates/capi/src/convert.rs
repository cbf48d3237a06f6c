//! Making an image anew of another one.

use std::ffi::{c_char, c_int, c_void};

use diskwright::build::{ConvertOptions, ConvertSize, ImageFile, convert};

use crate::border::{Options, call, check_flags, host_path, optional_text, options, put_if_wanted};
use crate::building::{dw_build_report, features, format};
use crate::error::dw_error;
use crate::failure::Failure;
use crate::progress::{BuildListener, dw_progress};

/// An existing image may be replaced, also the old one itself, which stays until the new one is whole.
pub const DW_CONVERT_FORCE: u32 = 1;
/// An XFS image may have less than 300 MiB.
pub const DW_CONVERT_SMALL: u32 = 2;
/// The new image has the UUID of the old one.
pub const DW_CONVERT_KEEP_UUID: u32 = 4;
/// The new image is the smallest that holds everything.
pub const DW_CONVERT_LEAST: u32 = 8;

const FLAGS: u32 = DW_CONVERT_FORCE | DW_CONVERT_SMALL | DW_CONVERT_KEEP_UUID | DW_CONVERT_LEAST;

/// What to convert to. All zero but struct_size makes an image of the same format and size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_convert_options {
    /// sizeof(dw_convert_options).
    pub struct_size: usize,
    /// DW_EXT4 or DW_XFS; 0 for that of the old image.
    pub format: u32,
    /// Any of DW_CONVERT_FORCE, DW_CONVERT_SMALL, DW_CONVERT_KEEP_UUID and DW_CONVERT_LEAST.
    pub flags: u32,
    /// Size in bytes. 0 for that of the old image, or as much more as is needed.
    pub size: u64,
    /// The label, instead of the old one's. NULL for that.
    pub label: *const c_char,
    /// Changes of the features, with commas. NULL for none.
    pub features: *const c_char,
    /// The byte that the old image begins at, where no partition is named.
    pub offset: u64,
    /// The partition that the old image is in, from 1 on. 0 for none.
    pub partition: u32,
    /// Threads. 0 takes as many as there are processors.
    pub threads: u32,
    /// What the function gets.
    pub context: *mut c_void,
    /// Asked before each entry, with the entries begun and the bytes made until then. NULL goes on.
    pub progress: dw_progress,
}

// SAFETY: numbers and pointers, of which NULL is one.
unsafe impl Options for dw_convert_options {}

/// Makes an image of another one, with everything that is in it. The old image is never written. `how` and `report` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_convert(
    from: *const c_char,
    to: *const c_char,
    how: *const dw_convert_options,
    report: *mut dw_build_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            check_flags(how.flags, FLAGS)?;
            let has = |flag| how.flags & flag != 0;
            let size = match (how.size, has(DW_CONVERT_LEAST)) {
                (0, true) => ConvertSize::Least,
                (0, false) => ConvertSize::AsBefore,
                (bytes, false) => ConvertSize::Given(bytes),
                _ => return Err(Failure::invalid("a size is given, or the least one wanted")),
            };
            let from = ImageFile {
                path: host_path(from)?.to_owned(),
                offset: how.offset,
                partition: (how.partition > 0).then_some(how.partition),
            };
            let mut wanted = ConvertOptions::new(from, host_path(to)?);
            wanted.format = if how.format > 0 { Some(format(how.format)?) } else { None };
            wanted.size = size;
            wanted.label = optional_text(how.label).map(<[u8]>::to_vec);
            wanted.keep_uuid = has(DW_CONVERT_KEEP_UUID);
            wanted.features = features(optional_text(how.features))?;
            wanted.small = has(DW_CONVERT_SMALL);
            wanted.threads = (how.threads > 0).then_some(how.threads as usize);
            wanted.force = has(DW_CONVERT_FORCE);
            let done = convert(&wanted, &BuildListener::new(how.context, how.progress))?;
            put_if_wanted(report, done.into());
            Ok(())
        })
    }
}
