//! Devices that are functions of the caller's.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use diskwright::fs::BlockDevice;

use crate::border::{Options, options};
use crate::failure::{Failure, Result};

/// Most zeros that are written at once, where a device has no function for them.
const ZEROS_BYTES: usize = 64 << 10;

/// A device whose bytes functions of the caller's read and write. They return 0, or else the errno of why not, and are
/// called by any thread, by several at once, for places that lie within `size`. They must not use the image that the
/// device holds, and must return: no exception, no longjmp.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_device {
    /// sizeof(dw_device).
    pub struct_size: usize,
    /// What the functions get.
    pub context: *mut c_void,
    /// Bytes of the device. Whether it keeps that size is the caller's business: a function fails for what is not there.
    pub size: u64,
    /// Fills all of a buffer with the bytes from `offset` on.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            buffer: *mut c_void,
            len: usize,
        ) -> c_int,
    >,
    /// Writes all of these bytes from `offset` on. NULL for what is only read.
    pub write: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            data: *const c_void,
            len: usize,
        ) -> c_int,
    >,
    /// Makes a range read as zeros. NULL writes them.
    pub zero: Option<unsafe extern "C" fn(context: *mut c_void, offset: u64, len: u64) -> c_int>,
    /// Returns when all that was written before is durable. NULL if writing is durable, or if that does not matter.
    pub flush: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    /// Called once when the library is done with the device, by whichever thread that is: when the image is closed, when
    /// all that was opened in it is freed, or before a call that could not open it returns. NULL if nothing is to be done.
    /// It is not called where the structure itself is refused: struct_size is wrong, or `read` is NULL.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

// SAFETY: numbers and pointers, of which NULL is one.
unsafe impl Options for dw_device {}

/// Such a device.
struct Callbacks(dw_device);

// SAFETY: the header says that its functions are called by any thread, and by several at once.
unsafe impl Send for Callbacks {}
// SAFETY: the same.
unsafe impl Sync for Callbacks {}

/// The device that a caller describes. It is released when what is returned is dropped.
///
/// # Safety
/// `device` is NULL or leads to such a structure, whose functions keep the rules of the header.
pub(crate) unsafe fn device(device: *const dw_device) -> Result<Arc<dyn BlockDevice>> {
    if device.is_null() {
        return Err(Failure::invalid("the device is NULL"));
    }
    // SAFETY: as above.
    let device = unsafe { options(device) }?;
    if device.read.is_none() {
        return Err(Failure::invalid("a device must have a function that reads"));
    }
    Ok(Arc::new(Callbacks(device)))
}

/// What a function of the caller's answered.
fn answered(errno: c_int) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        // Kernels and their kin have such numbers negative.
        errno => Err(io::Error::from_raw_os_error(errno.checked_abs().unwrap_or(libc::EIO))),
    }
}

impl Callbacks {
    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.0.size => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl BlockDevice for Callbacks {
    fn len(&self) -> u64 {
        self.0.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let Some(read) = self.0.read else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the caller's function, as the header says.
        answered(unsafe { read(self.0.context, offset, buf.as_mut_ptr().cast(), buf.len()) })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        let Some(write) = self.0.write else {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        };
        // SAFETY: the caller's function, as the header says.
        answered(unsafe { write(self.0.context, offset, data.as_ptr().cast(), data.len()) })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        if let Some(zero) = self.0.zero {
            // SAFETY: the caller's function, as the header says.
            return answered(unsafe { zero(self.0.context, offset, len) });
        }
        let zeros = vec![0; ZEROS_BYTES.min(usize::try_from(len).unwrap_or(ZEROS_BYTES))];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(zeros.len() as u64);
            self.write_at(offset + done, &zeros[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        // SAFETY: the caller's function, as the header says.
        self.0.flush.map_or(Ok(()), |flush| answered(unsafe { flush(self.0.context) }))
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the caller's function, as the header says; this is the only call.
            unsafe { release(self.0.context) };
        }
    }
}
