//! Block devices: where an image's bytes live. A device knows nothing of what they mean.
#![forbid(unsafe_code)]

mod at;
mod faulty;
mod file;
mod memory;
mod overlay;
pub mod overlay_file;
mod recording;
mod window;

use std::fs::File;
use std::io;

pub use at::FileAt;
pub use faulty::{Access, Fault, FaultyDevice};
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use overlay_file::OverlayFile;
pub use recording::{Event, RecordingDevice};
pub use window::WindowDevice;

/// A fixed-length run of bytes that any thread may read and write at any place.
///
/// Calls that overlap in place and time may interleave at any byte; callers order them.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether the device has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`. An error if any of it lies past the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// The file that holds the bytes `offset..offset + len`, and where it has them, if they lie together in
    /// one: its bytes are the device's at any time. `None` if not, or if reading must not go past the device.
    fn in_file(&self, _offset: u64, _len: u64) -> Option<(&File, u64)> {
        None
    }

    /// Whether reading takes so long that who knows what is wanted next should say so: [`Self::read_ahead`].
    fn has_read_ahead(&self) -> bool {
        false
    }

    /// Says that these bytes are wanted soon, as far as there are any. Returns at once, and may do nothing.
    fn read_ahead(&self, _offset: u64, _len: u64) {}

    /// Writes all of `data` at `offset`. An error if any of it lies past the end.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros, cheaply where the device can (a hole in a file).
    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Gives back the storage of a range, whose bytes are undefined from then on. Useful where nobody needs
    /// them: free space.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len(), offset, len)?;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns when everything written before the call is durable.
    fn flush(&self) -> io::Result<()>;

    /// Whether a flush takes so long, whatever was written, that those who want one should wait for each other a little.
    fn has_long_flushes(&self) -> bool {
        false
    }

    /// Nothing that is written after the call survives a crash that does not leave everything that was written before it.
    /// A device that makes writes durable in their order has nothing to do for that; others flush.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn barrier(&self) -> io::Result<()> {
        self.flush()
    }
}

/// Whether bytes are all zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (parts, rest) = bytes.as_chunks::<16>();
    rest.iter().all(|byte| *byte == 0) && parts.iter().all(|part| u128::from_ne_bytes(*part) == 0)
}

/// Checks that `offset..offset + len` lies within `device_len` bytes.
fn check_range(device_len: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("bytes {offset}+{len} lie past the end of the image ({device_len} bytes)"),
        )),
    }
}
