//! Opening images.

use std::ffi::{c_char, c_int};

use diskwright::ImageOptions;

use crate::border::{self, Options, call, check_flags, host_path, options, put_handle};
use crate::device::{device, dw_device};
use crate::error::dw_error;
use crate::failure::Result;
use crate::image::dw_image;

/// Open for writing.
pub const DW_WRITABLE: u32 = 1;
/// Read the image without a replay of its journal or log, even if another program may be changing it.
pub const DW_NORECOVERY: u32 = 2;

/// Options of opening. If all fields but struct_size are zero, the whole file is opened as an image for reading.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_open_options {
    /// sizeof(dw_open_options).
    pub struct_size: usize,
    /// Any of DW_WRITABLE and DW_NORECOVERY.
    pub flags: u32,
    /// Partition of the image on a disk with GPT or MBR, starting at 1. 0 for none.
    pub partition: u32,
    /// Offset of the image in bytes, if no partition is given.
    pub offset: u64,
    /// Size of the metadata cache in bytes. 0 for the default.
    pub cache_bytes: u64,
    /// Owner of new files.
    pub uid: u32,
    /// Group of new files.
    pub gid: u32,
}

// SAFETY: integers, for which any bytes are valid.
unsafe impl Options for dw_open_options {}

impl dw_open_options {
    /// Converts them to [`ImageOptions`].
    pub(crate) fn for_files(&self) -> Result<ImageOptions> {
        check_flags(self.flags, DW_WRITABLE | DW_NORECOVERY)?;
        let options = self.location().write(self.flags & DW_WRITABLE != 0);
        Ok(options.owner(self.uid, self.gid))
    }

    /// Converts them to a location, for functions that process a whole image.
    pub(crate) fn for_whole(&self) -> Result<ImageOptions> {
        check_flags(self.flags, DW_NORECOVERY)?;
        Ok(self.location())
    }

    fn location(&self) -> ImageOptions {
        let mut options = ImageOptions::new();
        options.offset = self.offset;
        options.partition = (self.partition > 0).then_some(self.partition);
        options.norecovery = self.flags & DW_NORECOVERY != 0;
        let bytes = usize::try_from(self.cache_bytes).unwrap_or(usize::MAX);
        options.cache_bytes = (bytes > 0).then_some(bytes);
        options
    }
}

/// Returns the location of an image in the options.
///
/// # Safety
/// As for [`options`].
pub(crate) unsafe fn place(given: *const dw_open_options) -> Result<ImageOptions> {
    // SAFETY: as above.
    unsafe { border::options(given) }?.for_whole()
}

/// Opens an image in a host file or on a block device. `open` may be NULL. The image is locked against other programs;
/// an image opened for reading can be shared with other readers. The journal or log is replayed first: in memory, if
/// the image is opened for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_open(
    path: *const c_char,
    open: *const dw_open_options,
    image: *mut *mut dw_image,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_handle(image, || Ok(options(open)?.for_files()?.open(host_path(path)?)?))
        })
    }
}

/// Opens an image on a device of the caller. `open` may be NULL. Nothing else may change the device while it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_open_device(
    on: *const dw_device,
    open: *const dw_open_options,
    image: *mut *mut dw_image,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            put_handle(image, || {
                let device = device(on)?;
                Ok(options(open)?.for_files()?.open_device(device)?)
            })
        })
    }
}
