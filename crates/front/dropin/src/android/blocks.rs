//! Block list of files in the format that update tools read: a line for each regular file with blocks, with its path
//! after mounting and its block ranges.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use diskwright::Image;
use vfs::{ExtentPlace, FileSystem};

use crate::failure::{Failure, STATUSES};

/// Writes the block list of an image to a file.
pub(super) fn list(image: &Path, mount_point: &[u8], to: &Path) -> Result<(), Failure> {
    let failed = |e: diskwright::Error| STATUSES.of(&e);
    let names = Image::open(image).map_err(failed)?;
    let fs = names.file_system().map_err(failed)?;
    let block_size = u64::from(names.info().map_err(failed)?.block_size);
    let mut out = Vec::new();
    for entry in names.walk("/").sorted() {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata();
        if !metadata.is_file() {
            continue;
        }
        let ranges = ranges(&*fs, metadata.ino(), metadata.len(), block_size)?;
        if ranges.is_empty() {
            continue;
        }
        if !mount_point.is_empty() {
            out.push(b'/');
            out.extend_from_slice(mount_point);
        }
        out.extend_from_slice(entry.path());
        let mut text = String::new();
        for (first, last) in ranges {
            // Writing to a string cannot fail.
            let _ = if first == last {
                write!(text, " {first}")
            } else {
                write!(text, " {first}-{last}")
            };
        }
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
    std::fs::write(to, out).map_err(|e| STATUSES.failed(format_args!("{}: {e}", to.display())))
}

/// Returns the first and last blocks of each extent of a file, in file order.
fn ranges(
    fs: &dyn FileSystem,
    ino: vfs::Ino,
    len: u64,
    block_size: u64,
) -> Result<Vec<(u64, u64)>, Failure> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut each = |extent: vfs::MappedExtent| {
        if let ExtentPlace::Device(byte) | ExtentPlace::Unwritten(byte) = extent.place {
            let (first, last) = (byte / block_size, (byte + extent.len - 1) / block_size);
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == first => *end = last,
                _ => ranges.push((first, last)),
            }
        }
        ControlFlow::Continue(())
    };
    let mapped = fs.extent_map(ino, 0, len, &mut each);
    mapped.map_err(|e| STATUSES.failed(e))?;
    Ok(ranges)
}
