//! Changing the contents of files.
//!
//! Data is not journaled. What a file gets new goes to the device before the operation that shows
//! it commits, so that nothing old is ever seen; bytes written over others, and zeros in the blocks
//! at the edges of what is cut, go there at the end of the operation, when nothing but the device
//! can fail any more. So an operation that fails for want of space leaves all contents as they were.
//!
//! A request is one operation unless it changes more than one should hold
//! ([`CHANGES_PER_OP_MAX`], [`WRITTEN_PER_OP_MAX`]); then it is several, from front to back, each of
//! which leaves a sound file. A file that grows shows zeros where nothing was written, whatever the
//! device holds between its old and its new end.

mod allocate;
mod data;
mod inline;
mod resize;
mod write;

use std::ops::Range;

use vfs::{Error, FileType, Ino, Result};

use crate::Ext4;
use crate::block_map::Want;
use crate::format::address::FileBlock;
use crate::format::indirect::Path;
use crate::format::inode::flags;
use crate::op::{Handle, Op};

/// Runs that one operation maps or frees at most, and with them about as many blocks of metadata, so
/// that none is too large for a small journal.
pub(crate) const CHANGES_PER_OP_MAX: u32 = 128;

/// Bytes of data that one operation writes at most, so that none takes long.
const WRITTEN_PER_OP_MAX: u64 = 16 << 20;

/// Size from which a file needs the feature large_file, in bytes.
const LARGE_FILE_FROM: u64 = 1 << 31;

impl Op<'_> {
    /// Gives a new file its first block, with `data` at its start and zeros behind.
    pub(crate) fn write_new_block(&mut self, file: &mut Handle, data: &[u8]) -> Result<()> {
        let piece = self.provide(file, FileBlock(0), 1, Want::Written)?;
        self.fs.write_data(piece.start, 0, data)?;
        self.fs.write_zeros(piece.start, data.len() as u64, self.fs.volume.block_size() as u64)
    }
}

impl Ext4 {
    /// A regular file whose contents may be changed.
    fn load_file(&self, ino: Ino) -> Result<Handle> {
        let mut file = self.load(ino)?;
        if self.resume_truncation(&file)? {
            file = self.load(ino)?;
        }
        match file.file_type()? {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        if file.has_flag(flags::ENCRYPT) {
            return Err(Error::Encrypted);
        }
        if file.has_flag(flags::VERITY) {
            return Err(Error::NotPermitted(
                "fs-verity protects the contents: copy it, change the copy",
            ));
        }
        Ok(file)
    }

    /// The blocks of a file that hold the bytes `offset..offset + len`; `FileTooLarge` past the
    /// largest size.
    fn blocks_of(&self, file: &Handle, offset: u64, len: u64) -> Result<Range<u32>> {
        let geometry = &self.volume.geometry;
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let last = end.div_ceil(u64::from(geometry.block_size()));
        // The last block number means "none" in places, so that it cannot be used.
        let end_block = u32::try_from(last).map_err(|_| Error::FileTooLarge)?;
        let in_map = |block| Path::to(FileBlock(block), geometry.block_size()).is_some();
        let is_mapped = self.maps_extents(file) || end_block == 0 || in_map(end_block - 1);
        if !is_mapped || (end >= LARGE_FILE_FROM && !self.volume.large_file) {
            return Err(Error::FileTooLarge);
        }
        Ok((offset >> geometry.block_size_log) as u32..end_block)
    }

    /// Whether a file has an extent tree, or will have one when it gets blocks.
    fn maps_extents(&self, file: &Handle) -> bool {
        file.has_flag(flags::EXTENTS) || file.has_flag(flags::INLINE_DATA) && self.volume.extents
    }

    /// The first byte of a block of a file.
    fn byte_of(&self, block: u32) -> u64 {
        u64::from(block) << self.volume.geometry.block_size_log
    }
}
