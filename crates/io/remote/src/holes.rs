//! Skips parts of an image that the host reports as holes.

use disk::BlockDevice;

/// Returns the offset of the first byte at or after `at` that may be non-zero, or the device's length if there is none.
#[cfg(target_os = "linux")]
pub(crate) fn next_data(device: &dyn BlockDevice, at: u64) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let len = device.len();
    let Some((file, start)) = device.in_file(0, len) else { return at };
    match seek(file, SeekFrom::Data(start + at)) {
        Ok(data) => (data - start).min(len),
        Err(Errno::NXIO) => len,
        // The host cannot report holes: treat everything as data.
        Err(_) => at,
    }
}

/// Holes are detected on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn next_data(_: &dyn BlockDevice, at: u64) -> u64 {
    at
}
