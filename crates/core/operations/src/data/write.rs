//! Writes of file contents.

use smallvec::SmallVec;
use vfs::{ExtentPlace, Ino, Result, Timestamp};

use super::device::{copy_edges, push, write_data};
use super::{
    ChangeFiles, DataRun, DataRuns, FileHandle, WRITTEN_PER_OP_MAX, Want, bytes_at, write_run,
    zero_written,
};
use crate::inode::InodeHandle;
use crate::{Operation, Outcome};

/// Writes `data` at byte `offset` of a regular file, as [`vfs::FileSystem::write`] specifies. Each operation sets the
/// times. If the write needs no operation, one follows that only sets the times.
///
/// # Errors
/// Returns the errors of [`ChangeFiles::load_file`], `FileTooLarge`, `NotPermitted`, `NoSpace`, `Corrupt`, `Device`.
/// Operations before the failed one stay.
pub fn write<F: ChangeFiles>(
    fs: &F,
    ino: Ino,
    offset: u64,
    data: &[u8],
    time: Option<Timestamp>,
) -> Result<()> {
    fs.mode().check_writable()?;
    if data.is_empty() {
        return Ok(());
    }
    let _lock = fs.locks().exclusive(&[ino]);
    let len = data.len() as u64;
    fs.check_end(offset, len)?;
    let (mut done, mut is_timed) = (0, time.is_none());
    while done < data.len() {
        let before = fs.load_file(ino)?;
        fs.blocks_of(&before, offset, len)?;
        let at = offset + done as u64;
        before.protection().check_write(at, before.size())?;
        let apart = fs.read_apart(&before)?;
        let part = &data[done..];
        // Parts end at block boundaries.
        let len_max = WRITTEN_PER_OP_MAX - at % (1 << fs.block_size_log());
        let part = &part[..part.len().min(len_max as usize)];
        if overwrite(fs, &before, at, part)? {
            done += part.len();
            if done == data.len() && !is_timed {
                set_times(fs, &before, time)?;
            }
            continue;
        }
        let (len, _) = fs.atomically_then(
            |op| prepare_part(fs, op, (&before, &apart), at, part.len() as u64, time),
            |(len, runs)| runs.iter().try_for_each(|run| write_run(fs, run, at, &part[..*len])),
        )?;
        done += len;
        is_timed = true;
    }
    Ok(())
}

/// Sets the times of a file whose contents changed without an operation.
fn set_times<F: ChangeFiles>(fs: &F, before: &F::Inode, time: Option<Timestamp>) -> Result<()> {
    fs.atomically(|op| {
        let mut file = before.clone();
        file.touch(time);
        op.set_minor();
        F::stage(op, file);
        Ok(())
    })
}

/// Overwrites written bytes of a file without an operation, because only data changes. Returns false, and writes
/// nothing, if some bytes are past the size or in blocks without written data, or if the format refuses. The caller
/// holds the file's lock exclusively.
fn overwrite<F: ChangeFiles>(fs: &F, file: &F::Inode, offset: u64, data: &[u8]) -> Result<bool> {
    let end = offset + data.len() as u64;
    if end > file.size() || !fs.can_overwrite(file, offset..end)? {
        return Ok(false);
    }
    let mut runs: SmallVec<[(u64, usize); 4]> = SmallVec::new();
    let mut at = offset;
    while at < end {
        let (ExtentPlace::Device(place), len) = bytes_at(fs, file, at)? else {
            return Ok(false);
        };
        let len = len.min(end - at);
        runs.push((place, len as usize));
        at += len;
    }
    let engine = fs.engine();
    engine.check_alive()?;
    let mut rest = data;
    for (place, len) in runs {
        let part;
        (part, rest) = rest.split_at(len);
        write_data(engine, place, part)?;
    }
    Ok(true)
}

/// Provides blocks for at most `len` bytes, as many as one operation may write. Returns the number of bytes and their
/// runs.
fn prepare_part<F: ChangeFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    (before, apart): (&F::Inode, &F::Apart),
    offset: u64,
    len: u64,
    time: Option<Timestamp>,
) -> Outcome<(usize, DataRuns)> {
    let mut file = before.clone();
    fs.use_apart(op, &mut file, apart)?;
    let blocks = fs.blocks_of(&file, offset, len)?;
    let mut runs = DataRuns::new();
    let (mut at, mut changes) = (blocks.start, 0);
    while at < blocks.end && changes < fs.changes_per_op() {
        let piece = fs.provide(op, &mut file, at, blocks.end, Want::Written)?;
        changes += u32::from(piece.is_change());
        copy_edges(fs, at, &piece, &(offset..offset + len))?;
        push(&mut runs, DataRun::of(fs, at, &piece));
        at = at.plus(piece.len);
    }
    let end = (at.0 << fs.block_size_log()).min(offset + len);
    // Before the data, because a new first block is among the zeroed ones.
    let gap = file.size()..offset;
    zero_written(fs, op, &mut file, gap)?;
    file.set_size(file.size().max(end));
    file.touch(time);
    fs.stage_contents(op, file, before, apart);
    Ok(((end - offset) as usize, runs))
}
