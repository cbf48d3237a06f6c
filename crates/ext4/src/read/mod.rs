//! Reading: file data, directories, symbolic links and extended attributes.
//!
//! Blocks come verified from the engine. Code here relies on that for its results but not for its
//! safety: offsets are still checked, and every loop is bounded by what the inode maps, never by
//! what a field claims.
//!
//! At most one block is held at a time, and none while a callback runs.

mod casefold;
mod directory;
mod file;
mod index;
mod inline;
mod listing;
mod map;
mod names;
mod xattr;

#[cfg(test)]
mod tests;

use transaction::{BufferRef, Corruption, Tag};
use vfs::{Error, FileType, Result};

use crate::Ext4;
use crate::format::address::Block;
use crate::op::Handle;

pub(crate) use directory::lookup;
pub(crate) use file::{extent_map, read, readlink};
pub(crate) use listing::{Scratch, for_each_entry, readdir};
pub(crate) use xattr::{get as get_xattr, list as list_xattrs};

impl Ext4 {
    /// A verified metadata block.
    fn block(&self, block: Block, tag: Tag) -> Result<BufferRef> {
        Ok(self.engine.read(block.0, tag)?)
    }

    /// Reads file data from byte `offset` of the device.
    fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.engine.device().read_at(offset, buf).map_err(Error::Device)
    }
}

impl Handle {
    /// Damage to this inode or what belongs to it.
    fn corrupt(&self, structure: &'static str, problem: &'static str) -> Error {
        Corruption::new(structure, problem).of_inode(self.ino().0).into()
    }

    /// Its type. A mode that names none is damage.
    fn file_type(&self) -> Result<FileType> {
        let none = || self.corrupt("inode", "its mode names no file type");
        self.inode.file_type().ok_or_else(none)
    }

    /// `NotADirectory` unless it is one.
    fn require_directory(&self) -> Result<()> {
        if self.inode.is_dir() { Ok(()) } else { Err(Error::NotADirectory) }
    }

    fn has_flag(&self, flag: u32) -> bool {
        self.inode.has_flag(flag)
    }
}
