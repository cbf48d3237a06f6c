//! Which parts of an image need not be read, because the host knows that they are zeros.

use blockdev::BlockDevice;

/// Where the first byte at or after `at` lies that may be other than zero; the device's length if there is none.
#[cfg(target_os = "linux")]
pub(crate) fn next_data(device: &dyn BlockDevice, at: u64) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let len = device.len();
    let Some((file, start)) = device.in_file(0, len) else { return at };
    match seek(file, SeekFrom::Data(start + at)) {
        Ok(data) => (data - start).min(len),
        Err(Errno::NXIO) => len,
        // Where holes cannot be asked for, there are none.
        Err(_) => at,
    }
}

/// Holes are asked for on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn next_data(_: &dyn BlockDevice, at: u64) -> u64 {
    at
}
