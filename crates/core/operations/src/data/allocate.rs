//! Preallocation, holes and zeroing.
//!
//! If the map cannot record unwritten blocks ([`MapFiles::maps_unwritten`](super::MapFiles::maps_unwritten)), blocks of
//! zeros are allocated instead.

use std::ops::Range;

use vfs::{AllocateMode, Error, Ino, Result};

use super::device::{copy_edges, push, zero_run};
use super::{ChangeFiles, DataRun, DataRuns, FileHandle, LogicalBlock, Want, zero_written};
use crate::Outcome;
use crate::inode::InodeHandle;

/// An allocation request: bytes of a file, and the mode.
struct AllocationRequest {
    bytes: Range<u64>,
    mode: AllocateMode,
}

/// Allocates, zeroes or frees bytes of a regular file, as [`vfs::FileSystem::allocate`] specifies.
///
/// # Errors
/// `Invalid` for an empty range or a mode that the file system does not permit; those of [`super::write`]. Operations
/// before the failed one stay.
pub fn allocate<F: ChangeFiles>(
    fs: &F,
    ino: Ino,
    offset: u64,
    len: u64,
    mode: AllocateMode,
) -> Result<()> {
    fs.mode().check_writable()?;
    if len == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    if mode == AllocateMode::Exposed && fs.mode() != crate::Mode::InProgress {
        return Err(Error::Invalid(
            "only an unfinished image may expose the old contents of blocks",
        ));
    }
    let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
    let _lock = fs.locks().exclusive(&[ino]);
    if mode == AllocateMode::PunchHole {
        return punch(fs, ino, offset..end);
    }
    fs.check_end(offset, len)?;
    let request = AllocationRequest { bytes: offset..end, mode };
    let mut reached = None;
    loop {
        let before = fs.load_file(ino)?;
        before.protection().check_allocate(mode)?;
        fs.check_space(&before, end, mode)?;
        let mut blocks = fs.blocks_of(&before, offset, len)?;
        blocks.start = reached.unwrap_or(blocks.start);
        let apart = fs.read_apart(&before)?;
        let at = fs.atomically(|op| provide_part(fs, op, &before, &apart, &blocks, &request))?;
        if at >= blocks.end {
            return Ok(());
        }
        reached = Some(at);
    }
}

/// Frees the whole blocks of a range and zeroes the rest. The last block of a file counts as whole if the range
/// contains all of its bytes up to the size.
fn punch<F: ChangeFiles>(fs: &F, ino: Ino, bytes: Range<u64>) -> Result<()> {
    let log = fs.block_size_log();
    let bytes = bytes.start..bytes.end.min(fs.size_max());
    loop {
        let before = fs.load_file(ino)?;
        before.protection().check_allocate(AllocateMode::PunchHole)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let apart = fs.read_apart(&before)?;
        let whole_end = if bytes.end >= before.size() {
            bytes.end.div_ceil(1 << log)
        } else {
            bytes.end >> log
        };
        let blocks = LogicalBlock(bytes.start.div_ceil(1 << log))..LogicalBlock(whole_end);
        if fs.atomically_freeing(|op| punch_part(fs, op, &before, &apart, &bytes, &blocks))? {
            return Ok(());
        }
    }
}

/// Provides blocks from the front of a range, as many as one operation may. Returns the end of the provided blocks.
fn provide_part<F: ChangeFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    before: &F::Inode,
    apart: &F::Apart,
    blocks: &Range<LogicalBlock>,
    request: &AllocationRequest,
) -> Outcome<LogicalBlock> {
    let mut file = before.clone();
    fs.use_apart(op, &mut file, apart)?;
    let is_shown = request.mode == AllocateMode::Exposed;
    let mut runs = DataRuns::new();
    let (mut at, mut changes) = (blocks.start, 0);
    while at < blocks.end && changes < fs.changes_per_op() {
        let (want, limit) = wanted(fs, &file, at, blocks.end, request);
        let piece = fs.provide(op, &mut file, at, limit, want)?;
        changes += u32::from(piece.is_change());
        copy_edges(fs, at, &piece, &request.bytes)?;
        if piece.written && !is_shown && (request.mode.zeroes() || piece.is_exposed()) {
            push(&mut runs, DataRun::of(fs, at, &piece));
        }
        at = at.plus(piece.len);
    }
    let end = (at.0 << fs.block_size_log()).min(request.bytes.end);
    if end > file.size() {
        if request.mode.keeps_size() {
            fs.note_preallocated(&mut file);
        } else {
            if !is_shown {
                let grown = file.size()..end;
                zero_written(fs, op, &mut file, grown)?;
            }
            file.set_size(end);
        }
    }
    runs.iter().try_for_each(|run| zero_run(fs.engine(), run, &request.bytes))?;
    fs.stage_contents(op, file, before, apart);
    Ok(at)
}

/// Returns the state that a request needs for block `at`, and the end, at most `limit`, of the blocks with the same
/// need.
fn wanted<F: ChangeFiles>(
    fs: &F,
    file: &F::Inode,
    at: LogicalBlock,
    limit: LogicalBlock,
    request: &AllocationRequest,
) -> (Want, LogicalBlock) {
    if request.mode == AllocateMode::Exposed {
        return (Want::Written, limit);
    }
    if !request.mode.zeroes() || !fs.maps_unwritten(file) {
        return (Want::Allocated, limit);
    }
    // Blocks at the edges keep their bytes outside of the range.
    let log = fs.block_size_log();
    let whole_start = LogicalBlock(request.bytes.start.div_ceil(1 << log));
    let whole_end = LogicalBlock(request.bytes.end >> log);
    if at < whole_start || at >= whole_end {
        return (Want::Own, at.plus(1));
    }
    (Want::Zeroed, limit.min(whole_end))
}

/// Frees blocks from the end of a punched range, as many as one operation may. The operation that frees the last ones
/// zeroes the edges. Returns whether the range is done.
fn punch_part<F: ChangeFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    before: &F::Inode,
    apart: &F::Apart,
    bytes: &Range<u64>,
    blocks: &Range<LogicalBlock>,
) -> Outcome<bool> {
    let mut file = before.clone();
    fs.use_apart(op, &mut file, apart)?;
    let mut budget = fs.changes_per_op();
    let done = blocks.is_empty() || fs.remove(op, &mut file, blocks.clone(), &mut budget)?;
    if done {
        let log = fs.block_size_log();
        let head_end = (blocks.start.0 << log).min(bytes.end);
        let tail_start = (blocks.end.0 << log).max(head_end);
        zero_written(fs, op, &mut file, bytes.start..head_end)?;
        zero_written(fs, op, &mut file, tail_start..bytes.end)?;
    }
    fs.stage_contents(op, file, before, apart);
    Ok(done)
}
