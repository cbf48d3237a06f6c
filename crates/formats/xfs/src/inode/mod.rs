//! Inodes: lookup and handles.

mod allocate;
mod attributes;
mod change;
mod chunk;
mod file_attributes;
mod gone;
pub(crate) mod inherit;
mod keep;
mod known;
mod known_chunks;
#[cfg(test)]
mod known_tests;
pub(crate) mod project;
mod release;
mod reserved;
#[cfg(test)]
mod tests;

pub(crate) use gone::{ChunkChanges, GoneChunks, InodeBlock};
pub(crate) use known_chunks::{ChunkTree, KnownChunks};
pub(crate) use reserved::ReservedInodes;

use engine::slot_mark;
use vfs::{Attributes, Corruption, DeviceNumber, Error, FileType, Ino, Protection, Result};

use crate::XfsCore;
use crate::format::address::Block;
use crate::format::inode::{Inode, Time, flags};
use crate::kind::BlockKind;

/// An inode: its number, its location and a copy of its slot. Operations change the copy and stage it.
#[derive(Clone, Debug)]
pub struct Handle {
    ino: Ino,
    pub(crate) inode: Inode,
    /// Location of its slot.
    pub(crate) block: Block,
    pub(crate) offset: usize,
}

impl Handle {
    pub(crate) fn new(ino: Ino, inode: Inode, block: Block, offset: usize) -> Self {
        Self { ino, inode, block, offset }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns a corruption error about this inode or its contents.
    pub(crate) fn corrupt(&self, structure: &'static str, problem: impl Into<String>) -> Error {
        Corruption::new(structure, problem).of_inode(self.ino.0).into()
    }

    /// Returns the file type. An unknown type in the mode is damage.
    pub(crate) fn file_type(&self) -> Result<FileType> {
        self.inode
            .file_type()
            .ok_or_else(|| self.corrupt("inode", "its mode has no valid file type"))
    }

    /// Returns what the inode's flags forbid.
    pub(crate) fn protection(&self) -> Protection {
        let own = self.inode.flags();
        Protection {
            is_immutable: own & flags::IMMUTABLE != 0,
            is_append_only: own & flags::APPEND != 0,
        }
    }
}

/// Reads an inode in use and checks it. Fails with `NotFound` if it is free or does not exist. Must not be called by a
/// thread with a running operation.
pub(crate) fn load(fs: &XfsCore, ino: Ino) -> Result<Handle> {
    let geometry = &fs.volume.geometry;
    let (ag, ag_ino) = geometry.split_ino(ino).ok_or(Error::NotFound)?;
    let (block, offset) = geometry.inode_place(ag_ino);
    let block = geometry.block_of(ag, block);
    let table = fs.block(block, BlockKind::Inodes.plain())?;
    let slot = &table[offset..offset + geometry.inode_size()];
    if slot[2..4] == [0, 0] || fs.gone.contains(block) {
        return Err(Error::NotFound);
    }
    // A marked slot has a valid checksum: it was verified since the block was read, or computed here.
    let mark = slot_mark(offset, geometry.inode_size());
    let is_sealed = table.marks() & mark != 0;
    let parse = if is_sealed { Inode::parse_sealed } else { Inode::parse };
    let parsed = parse(geometry, ino, slot);
    if !is_sealed && mark != 0 && parsed.is_ok() {
        table.mark(mark);
    }
    drop(table);
    match parsed {
        Ok(inode) => Ok(Handle { ino, inode, block, offset }),
        // The number may come from anywhere. A slot outside of the inode trees is not a damaged inode.
        Err(_) if matches!(fs.inode_in_use(ino), Ok(false)) => Err(Error::NotFound),
        Err(damage) => Err(damage.at_block(block.0).into()),
    }
}

/// Returns the attributes of an inode.
pub(crate) fn attributes(fs: &XfsCore, handle: &Handle) -> Result<Attributes> {
    let inode = &handle.inode;
    let file_type = handle.file_type()?;
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    let time = |which| inode.time(which).unwrap_or_default();
    Ok(Attributes {
        ino: handle.ino(),
        generation: inode.generation(),
        file_type,
        permissions: inode.mode() & 0o7777,
        links: inode.nlink(),
        uid: inode.uid(),
        gid: inode.gid(),
        size: inode.size(),
        blocks_512: inode.nblocks() << (fs.volume.geometry.block_log - 9),
        device: if is_device { inode.device() } else { DeviceNumber::default() },
        atime: time(Time::Access),
        mtime: time(Time::Modify),
        ctime: time(Time::Change),
        crtime: inode.time(Time::Create),
        protection: handle.protection(),
        is_noatime: inode.flags() & flags::NOATIME != 0,
    })
}
