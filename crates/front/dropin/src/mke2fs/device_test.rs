//! `-c`: tests a device or file by reading, or by writing and reading, before the file system is created.
//!
//! The original keeps a list of bad blocks. Here an error ends the program, because a device with visible bad sectors
//! has no spare ones left.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use disk::FileAt;

use crate::failure::{Failure, STATUSES};

/// Bytes tested at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Patterns written by `-cc`, as in badblocks.
const PATTERNS: [u8; 4] = [0xaa, 0x55, 0xff, 0x00];

/// Tests the bytes from `offset` on, up to the end of the file.
pub(super) fn test(path: &Path, offset: u64, len: u64, is_written: bool) -> Result<(), Failure> {
    let at = |e: io::Error| STATUSES.failed(format_args!("{}: {e}", path.display()));
    let file = match OpenOptions::new().read(true).write(is_written).open(path) {
        // A missing file has nothing to test.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(at)?,
    };
    let mut buffer = vec![0; PIECE_BYTES];
    let failed = |at: u64, why: &dyn std::fmt::Display| {
        let path = path.display();
        STATUSES.failed(format_args!("{path}: the test (-c) failed at byte {at}: {why}"))
    };
    if !is_written {
        return pieces(offset, len).try_for_each(|(at, len)| {
            let read = file.read_exact_at(&mut buffer[..len], at);
            match read {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
                other => other.map_err(|e| failed(at, &e)),
            }
        });
    }
    PATTERNS.iter().try_for_each(|pattern| {
        buffer.fill(*pattern);
        for (at, len) in pieces(offset, len) {
            file.write_all_at(&buffer[..len], at).map_err(|e| failed(at, &e))?;
        }
        file.sync_data().map_err(|e| failed(offset, &e))?;
        compare(&file, *pattern, (offset, len), &failed)
    })
}

fn compare(
    file: &File,
    pattern: u8,
    (offset, len): (u64, u64),
    failed: &dyn Fn(u64, &dyn std::fmt::Display) -> Failure,
) -> Result<(), Failure> {
    let mut buffer = vec![0; PIECE_BYTES];
    for (at, len) in pieces(offset, len) {
        file.read_exact_at(&mut buffer[..len], at).map_err(|e| failed(at, &e))?;
        if let Some(wrong) = buffer[..len].iter().position(|byte| *byte != pattern) {
            let why = format!("wrote {pattern:#04x}, read {:#04x}", buffer[wrong]);
            return Err(failed(at + wrong as u64, &why));
        }
    }
    Ok(())
}

/// Splits a range into pieces of offset and length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    let end = offset.saturating_add(len);
    let starts = (offset..end).step_by(PIECE_BYTES);
    starts.map(move |at| (at, (end - at).min(PIECE_BYTES as u64) as usize))
}
