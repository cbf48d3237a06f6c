//! Holes of files.

use std::fs::File;
use std::ops::Range;

/// Returns the first hole within `start..start + len` of a file, as the host reports it. `None` if there is none, or the
/// host cannot tell.
#[cfg(target_os = "linux")]
pub(crate) fn first(file: &File, start: u64, len: u64) -> Option<Range<u64>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let end = start.checked_add(len)?;
    // Bytes past the end of a truncated file are not a hole.
    let data_from = |at| match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Some(data),
        Err(Errno::NXIO) => file.metadata().ok().map(|about| about.len()),
        Err(_) => None,
    };
    let data = data_from(start)?;
    if data > start {
        return (len > 0).then(|| start..data.min(end));
    }
    let hole = seek(file, SeekFrom::Hole(start)).ok().filter(|hole| *hole < end)?;
    let data = data_from(hole)?.min(end);
    (data > hole).then_some(hole..data)
}

/// Holes are found on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn first(_: &File, _: u64, _: u64) -> Option<Range<u64>> {
    None
}
