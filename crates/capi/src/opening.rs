//! Opening images.

use std::ffi::{c_char, c_int};

use diskwright::OpenImage;
use diskwright::fs::ImageOptions;

use crate::border::{self, Options, call, check_flags, host_path, options, put_handle};
use crate::device::{device, dw_device};
use crate::error::dw_error;
use crate::failure::Result;
use crate::image::dw_image;

/// The image is opened to be changed.
pub const DW_WRITABLE: u32 = 1;
/// The image is read as it lies, without what its journal or log holds, and though somebody may be changing it.
pub const DW_NORECOVERY: u32 = 2;

/// How to open an image. All zero but struct_size is for reading, the whole file being the image.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_open_options {
    /// sizeof(dw_open_options).
    pub struct_size: usize,
    /// Any of DW_WRITABLE and DW_NORECOVERY.
    pub flags: u32,
    /// The partition that the image is in, from 1 on, of a disk with GPT or MBR. 0 for none.
    pub partition: u32,
    /// The byte that the image begins at, where no partition is named.
    pub offset: u64,
    /// Memory for metadata that was read, in bytes. 0 for what is usual.
    pub cache_bytes: u64,
    /// Who owns new files.
    pub uid: u32,
    /// The group that owns new files.
    pub gid: u32,
}

// SAFETY: numbers.
unsafe impl Options for dw_open_options {}

impl dw_open_options {
    /// What they say, for [`ImageOptions`].
    pub(crate) fn for_files(&self) -> Result<ImageOptions> {
        check_flags(self.flags, DW_WRITABLE | DW_NORECOVERY)?;
        let mut options = ImageOptions::new()
            .write(self.flags & DW_WRITABLE != 0)
            .norecovery(self.flags & DW_NORECOVERY != 0)
            .offset(self.offset)
            .owner(self.uid, self.gid);
        if self.partition > 0 {
            options = options.partition(self.partition);
        }
        Ok(match self.cache() {
            Some(bytes) => options.cache_bytes(bytes),
            None => options,
        })
    }

    /// What they say of the place, for what looks at the image as a whole.
    pub(crate) fn for_whole(&self) -> Result<OpenImage> {
        check_flags(self.flags, DW_NORECOVERY)?;
        let mut options = OpenImage::default();
        options.offset = self.offset;
        options.partition = (self.partition > 0).then_some(self.partition);
        options.norecovery = self.flags & DW_NORECOVERY != 0;
        options.cache_bytes = self.cache();
        Ok(options)
    }

    fn cache(&self) -> Option<usize> {
        let bytes = usize::try_from(self.cache_bytes).unwrap_or(usize::MAX);
        (bytes > 0).then_some(bytes)
    }
}

/// What the options say of the place of an image.
///
/// # Safety
/// As for [`options`].
pub(crate) unsafe fn place(given: *const dw_open_options) -> Result<OpenImage> {
    // SAFETY: as above.
    unsafe { border::options(given) }?.for_whole()
}

/// Opens an image in a file of the host, or on a block device. `open` may be NULL. It is locked against other programs:
/// shared with those that only read, if it is opened for reading. What its journal or log holds is replayed first: in
/// memory, if it is opened for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_open(
    path: *const c_char,
    open: *const dw_open_options,
    image: *mut *mut dw_image,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            put_handle(image, || Ok(options(open)?.for_files()?.open(host_path(path)?)?))
        })
    }
}

/// Opens an image on a device of the caller's. `open` may be NULL. Nobody else may change it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_open_device(
    on: *const dw_device,
    open: *const dw_open_options,
    image: *mut *mut dw_image,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the rules of the header.
    unsafe {
        call(error, || {
            put_handle(image, || {
                let device = device(on)?;
                Ok(options(open)?.for_files()?.open_device(device)?)
            })
        })
    }
}
