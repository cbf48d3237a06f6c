//! Skips parts of an image that are known to be zeros.

use disk::BlockDevice;

/// Returns the offset of the first byte at or after `at` that may be non-zero, or the device's length if there is none.
pub(crate) fn next_data(device: &dyn BlockDevice, at: u64) -> u64 {
    let rest = device.len().saturating_sub(at);
    data_in_file(device, at).unwrap_or_else(|| match device.known_zeros(at, rest) {
        Some(zeros) if zeros.start == at => zeros.end,
        _ => at,
    })
}

/// Returns the start of the next data in the file of the device, if the host reports it. It is cheaper to find than the
/// next hole.
#[cfg(target_os = "linux")]
fn data_in_file(device: &dyn BlockDevice, at: u64) -> Option<u64> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let len = device.len();
    let (file, start) = device.in_file(0, len)?;
    match seek(file, SeekFrom::Data(start + at)) {
        Ok(data) => Some((data - start).min(len)),
        Err(Errno::NXIO) => Some(len),
        // The host cannot report holes.
        Err(_) => None,
    }
}

/// Holes of files are found on Linux only.
#[cfg(not(target_os = "linux"))]
fn data_in_file(_: &dyn BlockDevice, _: u64) -> Option<u64> {
    None
}
