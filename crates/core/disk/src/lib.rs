//! Block devices, and the contents of disks that belong to no file system: partition tables and signatures
//! ([`partition`]), hash trees, formats of image files, and addresses of images.
#![forbid(unsafe_code)]

pub mod address;
mod aligned;
mod at;
mod ddrescue;
mod faulty;
mod file;
mod holes;
mod joined;
mod kept;
mod memory;
#[cfg(feature = "merkle")]
pub mod merkle;
#[cfg(feature = "output")]
pub mod output;
mod overlay;
pub mod overlay_file;
pub mod partition;
pub mod ranges;
mod recording;
mod window;

use std::fs::File;
use std::io;
use std::ops::Range;

pub use aligned::AlignedDevice;
pub use at::FileAt;
pub use ddrescue::{Mapfile, MapfileError, MapfileWriter, RescuedDevice};
pub use faulty::{Access, Fault, FaultyDevice};
pub use file::FileDevice;
pub use joined::{DeviceRole, JoinedDevice, end_at};
pub use kept::KeptDevice;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use overlay_file::OverlayFile;
pub use recording::{Event, RecordingDevice};
pub use vfs::hint;
pub use window::WindowDevice;

/// Kind of the bytes that a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Structures of the file system, with directories.
    Metadata,
    /// Contents of files, or of the whole image.
    Data,
}

/// Storage of a fixed length, which any thread may read and write at any offset.
///
/// Concurrent calls on overlapping ranges may interleave at any byte; callers serialise them.
pub trait BlockDevice: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length in bytes of another device that this one includes, at the addresses from [`DeviceRole::start`] on;
    /// `None` if there is none.
    fn part_len(&self, _part: DeviceRole) -> Option<u64> {
        None
    }

    /// Fills `buf` from `offset`. Fails if the range exceeds the device.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Returns the file that contains the bytes `offset..offset + len`, and their offset in it, if they are contiguous
    /// in one file whose bytes always equal those of the device. `None` otherwise, or if reads must not bypass the
    /// device.
    fn in_file(&self, _offset: u64, _len: u64) -> Option<(&File, u64)> {
        None
    }

    /// Returns the first part of `offset..offset + len` that is known to be unreadable, without reading. The rest of the
    /// range may be unreadable too.
    fn known_unreadable(&self, _offset: u64, _len: u64) -> Option<Range<u64>> {
        None
    }

    /// Returns the first part of `offset..offset + len` that is known to read as zeros, without reading it. The rest of
    /// the range may be zeros too. Writes during the call may be missing from the answer.
    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let (file, start) = self.in_file(offset, len)?;
        let hole = holes::first(file, start, len)?;
        Some(moved(hole, start, offset))
    }

    /// Returns whether reads are so slow that callers should use [`Self::read_ahead`].
    fn has_read_ahead(&self) -> bool {
        false
    }

    /// Requests a prefetch of these bytes, clipped to the device, for a reader of `content`. Returns immediately, and may do
    /// nothing.
    fn read_ahead(&self, _offset: u64, _len: u64, _content: ContentKind) {}

    /// Writes all of `data` at `offset`. Fails if the range exceeds the device.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros, efficiently if the device can (a hole in a file).
    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Frees the storage of a range, whose contents are undefined from then on. Intended for free space.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len(), offset, len)?;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns when everything written before the call is durable.
    fn flush(&self) -> io::Result<()>;

    /// Drops cached contents of a range that were written, so that the next read sees the writes of other hosts. May do
    /// nothing.
    fn drop_cache(&self, _offset: u64, _len: u64) {}

    /// Returns whether flushes are slow, whatever was written, so that concurrent callers should share one.
    fn has_long_flushes(&self) -> bool {
        false
    }

    /// Orders writes: if a write after the call survives a crash, all writes before the call survive as well. A device
    /// that makes writes durable in order does nothing; other devices flush.
    ///
    /// # Errors
    /// Returns the errors of [`flush`](Self::flush).
    fn barrier(&self) -> io::Result<()> {
        self.flush()
    }
}

/// Returns whether all bytes are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (parts, rest) = bytes.as_chunks::<16>();
    rest.iter().all(|byte| *byte == 0) && parts.iter().all(|part| u128::from_ne_bytes(*part) == 0)
}

/// Returns a range of bytes as they are counted by a device whose byte `from` is byte `to` of another one.
fn moved(range: Range<u64>, from: u64, to: u64) -> Range<u64> {
    range.start - from + to..range.end - from + to
}

/// Checks that `offset..offset + len` lies within `device_len` bytes.
fn check_range(device_len: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("bytes {offset}+{len} are past the end of the image ({device_len} bytes)"),
        )),
    }
}
