//! Conversion of an image into a new one.

use std::ffi::{c_char, c_int, c_void};

use diskwright::build::{ConvertOptions, ConvertSize, ImageFile, convert};

use crate::border::{Options, call, check_flags, host_path, optional_text, options, put_if_wanted};
use crate::building::{dw_build_report, features, format};
use crate::error::dw_error;
use crate::failure::Failure;
use crate::progress::{BuildListener, dw_progress};

/// Allow the replacement of an existing image, even of the old image itself, which stays until the new one is complete.
pub const DW_CONVERT_FORCE: u32 = 1;
/// Allow an XFS image below 300 MiB.
pub const DW_CONVERT_SMALL: u32 = 2;
/// Keep the UUID of the old image.
pub const DW_CONVERT_KEEP_UUID: u32 = 4;
/// Create the new image with the minimum size for its contents.
pub const DW_CONVERT_LEAST: u32 = 8;

const FLAGS: u32 = DW_CONVERT_FORCE | DW_CONVERT_SMALL | DW_CONVERT_KEEP_UUID | DW_CONVERT_LEAST;

/// Options of dw_convert. If all fields but struct_size are zero, the new image has the same format and size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_convert_options {
    /// sizeof(dw_convert_options).
    pub struct_size: usize,
    /// DW_EXT4 or DW_XFS; 0 for the format of the old image.
    pub format: u32,
    /// Any of DW_CONVERT_FORCE, DW_CONVERT_SMALL, DW_CONVERT_KEEP_UUID and DW_CONVERT_LEAST.
    pub flags: u32,
    /// Size in bytes. 0 for the size of the old image, or larger if necessary.
    pub size: u64,
    /// New label. NULL keeps the old one.
    pub label: *const c_char,
    /// Changes of the features, separated by commas. NULL for none.
    pub features: *const c_char,
    /// Offset of the old image in bytes, if no partition is given.
    pub offset: u64,
    /// Partition of the old image, starting at 1. 0 for none.
    pub partition: u32,
    /// Number of threads. 0 for the number of processors.
    pub threads: u32,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// Called before each entry with the number of entries started and bytes written so far. May be NULL.
    pub progress: dw_progress,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_convert_options {}

/// Creates an image with the contents of another one. The old image is not modified. `how` and `report` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_convert(
    from: *const c_char,
    to: *const c_char,
    how: *const dw_convert_options,
    report: *mut dw_build_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            check_flags(how.flags, FLAGS)?;
            let has = |flag| how.flags & flag != 0;
            let size = match (how.size, has(DW_CONVERT_LEAST)) {
                (0, true) => ConvertSize::Least,
                (0, false) => ConvertSize::AsBefore,
                (bytes, false) => ConvertSize::Given(bytes),
                _ => return Err(Failure::invalid("give either a size or the minimum size")),
            };
            let from = ImageFile {
                path: host_path(from)?.to_owned(),
                offset: how.offset,
                partition: (how.partition > 0).then_some(how.partition),
                devices: Default::default(),
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
