//! Zeroing of mapped bytes of files.

use std::ops::Range;

use super::device::copy_edges;
use super::{FileHandle, LogicalBlock, MapFiles, Mapping, Want};
use crate::Outcome;

/// Zeroes the written blocks within some bytes of a file when the operation commits. Blocks shared with other files are
/// replaced first.
///
/// # Errors
/// Returns the errors of [`MapFiles::provide`].
pub fn zero_written<F: MapFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    file: &mut F::Inode,
    bytes: Range<u64>,
) -> Outcome<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let log = fs.block_size_log();
    let end = LogicalBlock(bytes.end.div_ceil(1 << log));
    let mut at = LogicalBlock(bytes.start >> log);
    while at < end {
        let run = fs.run_at(op, file, at)?;
        let mut len = run.len;
        if let Mapping::Written(mut start) = run.place {
            len = len.min(end.0 - at.0);
            if fs.may_share(file) {
                let piece = fs.provide(op, file, at, at.plus(len), Want::Own)?;
                copy_edges(fs, at, &piece, &bytes)?;
                (start, len) = (piece.start, piece.len);
            }
            let run_start = at.0 << log;
            let from = bytes.start.saturating_sub(run_start);
            let to = (bytes.end - run_start).min(len << log);
            let place = fs.byte_of(start);
            fs.zero_at_end(op, place + from..place + to);
        }
        at = at.plus(len);
    }
    Ok(())
}

/// Zeroes the last block of a file past the size when the operation commits.
///
/// # Errors
/// Returns the errors of [`MapFiles::provide`].
pub fn zero_past_size<F: MapFiles>(fs: &F, op: &mut F::Op<'_>, file: &mut F::Inode) -> Outcome<()> {
    let size = file.size();
    let block_end = size.checked_next_multiple_of(1 << fs.block_size_log());
    zero_written(fs, op, file, size..block_end.unwrap_or(u64::MAX))
}
