//! Contents of regular files and targets of symbolic links.
//!
//! Data is not journaled. What a file gets new goes to the device before the operation that shows
//! it commits, so that nothing old is ever seen; bytes written over others, and zeros in the blocks
//! at the edges of what is cut, go there at the end of the operation, when nothing but the device
//! can fail any more. So an operation that fails for want of space leaves all contents as they were.
//!
//! A request is one operation unless it changes more than one should hold
//! ([`Xfs::changes_per_op`], [`WRITTEN_PER_OP_MAX`]); then it is several, from front to back, each of
//! which leaves a sound file. A file that grows shows zeros where nothing was written, whatever the
//! device holds between its old and its new end.

mod allocate;
mod data;
mod hints;
mod read;
mod resize;
mod symlink;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;

use vfs::{Error, Ino, Result};

use crate::Xfs;
use crate::format::address::FileBlock;
use crate::format::geometry::Geometry;
use crate::format::inode::flags;
use crate::inode::Handle;

pub(crate) use hints::Hints;
pub(crate) use read::{extent_map, read};
pub(crate) use symlink::readlink;

/// Runs that one operation maps or frees at most, where the log is large.
const CHANGES_PER_OP_MAX: usize = 128;

/// Runs that one operation may map or free whatever the log.
const CHANGES_PER_OP_MIN: usize = 4;

/// Shares of the largest checkpoint that are blocks for one run: each may change some eight blocks of
/// trees, and what is open when a checkpoint is about to be closed must fit an eighth of it, of several
/// threads.
const CHANGE_SHARES: usize = 256;

/// Bytes of data that one operation writes at most, so that none takes long.
const WRITTEN_PER_OP_MAX: u64 = 16 << 20;

/// Largest size of a file in bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

impl Xfs {
    /// Runs that one operation maps or frees at most, so that several of them fit what the log has left
    /// for operations that are open when a checkpoint is full.
    pub(crate) fn changes_per_op(&self) -> u32 {
        let fits = self.engine.log_blocks_max() / CHANGE_SHARES;
        fits.clamp(CHANGES_PER_OP_MIN, CHANGES_PER_OP_MAX) as u32
    }

    /// A regular file whose contents may be changed.
    fn load_file(&self, ino: Ino) -> Result<Handle> {
        let file = self.load(ino)?;
        read::require_regular(&file)?;
        if file.inode.flags() & flags::REALTIME != 0 {
            let what = format!("changing inode {ino}, whose data is on the realtime device");
            return Err(Error::unsupported(what, "copy the file and change the copy"));
        }
        Ok(file)
    }
}

/// The blocks of a file that hold the bytes `offset..offset + len`; `FileTooLarge` past the largest
/// size.
fn blocks_of(geometry: &Geometry, offset: u64, len: u64) -> Result<Range<FileBlock>> {
    let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)?;
    let last = FileBlock(end.div_ceil(1 << geometry.block_log));
    if last > FileBlock::END {
        return Err(Error::FileTooLarge);
    }
    Ok(FileBlock(offset >> geometry.block_log)..last)
}
