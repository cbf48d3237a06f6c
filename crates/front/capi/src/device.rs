//! Devices implemented by the caller.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use diskwright::fs::BlockDevice;

use crate::border::{Options, options};
use crate::failure::{Failure, Result};

/// Maximum size of a write of zeros, if a device has no function for zeroing.
const ZEROS_BYTES: usize = 64 << 10;

/// A device implemented by functions of the caller. They return 0, or an errno. They are called by any thread, also
/// concurrently, for ranges within `size`. They must not use the image on the device, and must return: no exception, no
/// longjmp.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_device {
    /// sizeof(dw_device).
    pub struct_size: usize,
    /// Passed to the callbacks.
    pub context: *mut c_void,
    /// Size of the device in bytes. If the device becomes shorter, its functions must fail for the missing part.
    pub size: u64,
    /// Fills the buffer with the bytes from `offset` on.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            buffer: *mut c_void,
            len: usize,
        ) -> c_int,
    >,
    /// Writes all of the bytes at `offset`. NULL for a read-only device.
    pub write: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            data: *const c_void,
            len: usize,
        ) -> c_int,
    >,
    /// Makes a range read as zeros. If NULL, zeros are written.
    pub zero: Option<unsafe extern "C" fn(context: *mut c_void, offset: u64, len: u64) -> c_int>,
    /// Returns when all earlier writes are durable. NULL if writes are durable, or durability does not matter.
    pub flush: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    /// Called once, by any thread, when the library no longer needs the device: when the image is closed, when
    /// everything opened in it is freed, or before a call that failed to open it returns. May be NULL. Not called if
    /// the structure itself is rejected, because struct_size is wrong or `read` is NULL.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_device {}

/// A device with the caller's functions.
struct Callbacks(dw_device);

// SAFETY: the header permits calls of its functions by any thread, also concurrently.
unsafe impl Send for Callbacks {}
// SAFETY: see above.
unsafe impl Sync for Callbacks {}

/// Creates a device from the caller's structure. Dropping it calls `release`.
///
/// # Safety
/// `device` is NULL or points to such a structure, whose functions follow the rules of the header.
pub(crate) unsafe fn device(device: *const dw_device) -> Result<Arc<dyn BlockDevice>> {
    if device.is_null() {
        return Err(Failure::invalid("the device is NULL"));
    }
    // SAFETY: as above.
    let device = unsafe { options(device) }?;
    if device.read.is_none() {
        return Err(Failure::invalid("a device must have a read function"));
    }
    Ok(Arc::new(Callbacks(device)))
}

/// Converts the result of a function of the caller.
fn answered(errno: c_int) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        // Kernel-style code uses negative numbers.
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
        // SAFETY: the caller's function follows the rules of the header.
        answered(unsafe { read(self.0.context, offset, buf.as_mut_ptr().cast(), buf.len()) })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        let Some(write) = self.0.write else {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        };
        // SAFETY: the caller's function follows the rules of the header.
        answered(unsafe { write(self.0.context, offset, data.as_ptr().cast(), data.len()) })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        if let Some(zero) = self.0.zero {
            // SAFETY: the caller's function follows the rules of the header.
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
        // SAFETY: the caller's function follows the rules of the header.
        self.0.flush.map_or(Ok(()), |flush| answered(unsafe { flush(self.0.context) }))
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the caller's function follows the rules of the header; this is the only call.
            unsafe { release(self.0.context) };
        }
    }
}
