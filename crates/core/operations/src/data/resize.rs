//! Changes of a file's size.

use vfs::{Ino, Result, Timestamp};

use super::{ChangeFiles, FileHandle, LogicalBlock, zero_past_size, zero_written};
use crate::Outcome;
use crate::inode::InodeHandle;

/// Sets the size of a regular file in bytes, as [`vfs::FileSystem::truncate`] specifies. Space past the new size is
/// freed, in several operations if necessary; the first one sets the size and the times.
///
/// # Errors
/// Returns the errors of [`super::write`].
pub fn resize<F: ChangeFiles>(fs: &F, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()> {
    fs.mode().check_writable()?;
    let _lock = fs.locks().exclusive(&[ino]);
    fs.check_end(0, size)?;
    let before = fs.load_file(ino)?;
    before.protection().check_change()?;
    fs.blocks_of(&before, 0, size)?;
    let apart = fs.read_apart(&before)?;
    if size > before.size() {
        return fs.atomically(|op| grow_to(fs, op, (&before, &apart), size, time));
    }
    if !fs.atomically_freeing(|op| cut_to(fs, op, (&before, &apart), size, time))? {
        fs.finish_truncation(ino, size)?;
    }
    Ok(())
}

fn grow_to<F: ChangeFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    (before, apart): (&F::Inode, &F::Apart),
    size: u64,
    time: Option<Timestamp>,
) -> Outcome<()> {
    let mut file = before.clone();
    fs.use_apart(op, &mut file, apart)?;
    let grown = file.size()..size;
    zero_written(fs, op, &mut file, grown)?;
    file.set_size(size);
    file.touch(time);
    fs.stage_contents(op, file, before, apart);
    Ok(())
}

/// Sets the size and frees space past it, as much as one operation can. Returns whether that was all.
///
/// # Errors
/// Returns the errors of [`super::MapFiles::remove`].
pub fn cut_to<F: ChangeFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    (before, apart): (&F::Inode, &F::Apart),
    size: u64,
    time: Option<Timestamp>,
) -> Outcome<bool> {
    let mut file = before.clone();
    fs.use_apart(op, &mut file, apart)?;
    file.set_size(size);
    file.touch(time);
    let is_done = cut_past_size(fs, op, &mut file)?;
    if size < before.size() {
        zero_past_size(fs, op, &mut file)?;
    }
    fs.stage_contents(op, file, before, apart);
    Ok(is_done)
}

/// Frees space past the size of a file, as much as one operation can, and records whether that was all.
///
/// # Errors
/// Returns the errors of [`super::MapFiles::remove`].
pub fn cut_past_size<F: ChangeFiles>(
    fs: &F,
    op: &mut F::Op<'_>,
    file: &mut F::Inode,
) -> Outcome<bool> {
    let first = LogicalBlock(file.size().div_ceil(1 << fs.block_size_log()));
    let mut budget = fs.changes_per_op();
    let is_done = fs.remove(op, file, first..LogicalBlock::END, &mut budget)?;
    fs.note_cut(op, file, is_done);
    Ok(is_done)
}
