//! Data ranges of a file, and complete reads.

use std::io::ErrorKind;
use std::ops::{ControlFlow, Range};

use crate::{Corruption, Error, ExtentPlace, FileSystem, Ino, Result};

/// A range of a file that is not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Returns the data ranges of a file of `size` bytes: sorted, merged and within the size.
///
/// # Errors
/// `Corrupt` if ranges overlap or extend past the size.
pub fn data_runs(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    add_data_runs(fs, ino, size, &mut runs).map_err(|(_, error)| error)?;
    Ok(runs)
}

/// Same as [`data_runs`], but adds the ranges to `runs`, also those before an error.
///
/// # Errors
/// The errors of [`data_runs`], with the first byte whose location is unknown.
pub fn add_data_runs(
    fs: &dyn FileSystem,
    ino: Ino,
    size: u64,
    runs: &mut Vec<Run>,
) -> Result<(), (u64, Error)> {
    let mut is_ordered = true;
    let mut position = 0;
    let mapped = fs.extent_map(ino, 0, size, &mut |extent| {
        let end = extent.offset.checked_add(extent.len).filter(|&end| end <= size);
        let Some(end) = end.filter(|_| extent.offset >= position && extent.len > 0) else {
            is_ordered = false;
            return ControlFlow::Break(());
        };
        position = end;
        if matches!(extent.place, ExtentPlace::Device(_) | ExtentPlace::Inline) {
            match runs.last_mut() {
                Some(last) if last.offset + last.len == extent.offset => last.len += extent.len,
                _ => runs.push(Run { offset: extent.offset, len: extent.len }),
            }
        }
        ControlFlow::Continue(())
    });
    mapped.map_err(|error| (position, error))?;
    if !is_ordered {
        let problem = "runs overlap or are past the end of the file";
        let damage = Corruption::new("extent map", problem).of_inode(ino.0);
        return Err((position, damage.into()));
    }
    Ok(())
}

/// Fills `buf` like [`read_exactly`], with zeros for unreadable units. Reports each unreadable range with its error, in
/// order. `unit` is a power of two, and `offset` a multiple of it.
///
/// Errors of a server end the search for readable units early, because each try is a request.
pub fn read_salvaging(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    buf: &mut [u8],
    unit: usize,
    lost: &mut dyn FnMut(Range<u64>, Error),
) {
    let Err(error) = read_exactly(fs, ino, offset, buf) else { return };
    if buf.len() <= smallest_part(&error, unit) {
        lost(offset..offset + buf.len() as u64, error);
        buf.fill(0);
        return;
    }
    // The halves are read by themselves, so that few bad blocks need few reads.
    let half = (buf.len().next_power_of_two() / 2).max(unit);
    let (low, high) = buf.split_at_mut(half);
    read_salvaging(fs, ino, offset, low, unit, lost);
    read_salvaging(fs, ino, offset + half as u64, high, unit, lost);
}

/// Bytes of a part that a server answers or does not answer as a whole: the usual size of its requests.
const NETWORK_UNIT: usize = 128 << 10;

/// Returns the size in bytes of parts that are not divided after this error. A server that denies access to an image
/// denies it for each part. After a broken connection, parts smaller than a request are fetched by the same request.
fn smallest_part(error: &Error, unit: usize) -> usize {
    let Error::Device(error) = error else { return unit };
    match error.kind() {
        ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound | ErrorKind::PermissionDenied => {
            usize::MAX
        }
        ErrorKind::ConnectionAborted => unit.max(NETWORK_UNIT),
        _ => unit,
    }
}

/// Fills `buf` with the bytes from `offset` on, which must be within the file.
///
/// # Errors
/// `Corrupt` if the contents end early.
pub fn read_exactly(fs: &dyn FileSystem, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match fs.read(ino, offset + done as u64, &mut buf[done..])? {
            0 => {
                let damage = Corruption::new("file contents", "unexpected end of file");
                return Err(damage.of_inode(ino.0).into());
            }
            count => done += count,
        }
    }
    Ok(())
}
