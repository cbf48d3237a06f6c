//! Finds, reads and verifies inodes.

use engine::slot_mark;
use vfs::{Attributes, Corruption, DeviceNumber, Error, FileType, Ino, Protection, Result};

use crate::Ext4Core;
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, BlockOwner, GOOD_OLD_INODE_SIZE, Inode, Time, flags};
use crate::kind::BlockKind;

/// An inode in use: its number, the position of its slot and a copy of its fixed fields.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    pub(crate) owner: BlockOwner,
    pub(crate) inode: Inode,
    /// Block of its slot.
    pub(crate) block: Block,
    pub(crate) offset: usize,
}

impl Handle {
    pub(crate) fn ino(&self) -> Ino {
        self.owner.ino
    }

    /// Returns an error about damage of this inode or of a structure that belongs to it.
    pub(crate) fn corrupt(&self, structure: &'static str, problem: &'static str) -> Error {
        Corruption::new(structure, problem).of_inode(self.ino().0).into()
    }

    /// Returns the file type. A mode without a valid type is damage.
    pub(crate) fn file_type(&self) -> Result<FileType> {
        self.inode.file_type().ok_or_else(|| {
            let damage = Corruption::new("inode", "its mode has no valid file type");
            damage
                .of_inode(self.ino().0)
                .mismatch("a type", format!("{:#o}", self.inode.mode()))
                .into()
        })
    }

    /// Returns the protection that its flags define.
    pub(crate) fn protection(&self) -> Protection {
        Protection {
            is_immutable: self.has_flag(flags::IMMUTABLE),
            is_append_only: self.has_flag(flags::APPEND),
        }
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.inode.has_flag(flag)
    }
}

impl Ext4Core {
    /// Reads an inode in use. Returns `NotFound` if it is free.
    pub(crate) fn load(&self, ino: Ino) -> Result<Handle> {
        load(self, ino)
    }
}

/// Reads and verifies an inode. Returns `NotFound` if there is no such inode, or if it has no links and is not open.
pub(crate) fn load(fs: &Ext4Core, ino: Ino) -> Result<Handle> {
    let handle = load_unlinked(fs, ino)?;
    if handle.inode.links_count() == 0 && !fs.orphans.is_open(ino) {
        return Err(Error::NotFound);
    }
    Ok(handle)
}

/// Reads an inode that may have no links but is not free yet. Returns `NotFound` if there is no such inode or its slot
/// is empty.
pub(crate) fn load_unlinked(fs: &Ext4Core, ino: Ino) -> Result<Handle> {
    let geometry = &fs.volume.geometry;
    let (group, index) = geometry.place_of(ino).ok_or(Error::NotFound)?;
    let (block, offset) = geometry.inode_position(fs.volume.groups.inode_table(group), index);
    let table = fs.block(block, BlockKind::InodeTable.plain())?;
    let slot = slot(fs, &table, offset).ok_or(Error::NotFound)?;
    let inode = Inode::from_slot(slot);
    if inode.mode() == 0 && inode.links_count() == 0 {
        return Err(Error::NotFound);
    }
    let at = |c: Corruption| c.of_inode(ino.0).at_block(block.0);
    let sb = &fs.volume.sb;
    let seed = inode_seed(sb.checksum_seed, ino, inode.generation());
    // A marked slot has a valid checksum: it was verified since the block was read, or computed here.
    let mark = slot_mark(offset, geometry.inode_size.into());
    if sb.features.metadata_csum() && table.marks() & mark == 0 {
        let (computed, stored) = inode::slot_checksums(seed, slot);
        if computed != stored {
            return Err(at(Corruption::checksum("inode", computed, stored)).into());
        }
        table.mark(mark);
    }
    let extra = inode.extra_isize();
    if !extra.is_multiple_of(4) || GOOD_OLD_INODE_SIZE + usize::from(extra) > slot.len() {
        let range = format!("a multiple of 4 up to {}", slot.len() - GOOD_OLD_INODE_SIZE);
        return Err(at(Corruption::new("inode", "extra_isize").mismatch(range, extra)).into());
    }
    Ok(Handle { owner: BlockOwner { ino, seed }, inode, block, offset })
}

/// Returns the slot at `offset` of an inode table block.
pub(crate) fn slot<'t>(fs: &Ext4Core, table: &'t [u8], offset: usize) -> Option<&'t [u8]> {
    table.get(offset..offset + usize::from(fs.volume.geometry.inode_size))
}

/// Returns the attributes of an inode.
pub(crate) fn attributes(fs: &Ext4Core, handle: &Handle) -> Result<Attributes> {
    let inode = &handle.inode;
    let file_type = handle.file_type()?;
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    Ok(Attributes {
        ino: handle.ino(),
        generation: inode.generation(),
        file_type,
        permissions: inode.permissions(),
        links: inode.links_count().into(),
        uid: inode.uid(),
        gid: inode.gid(),
        size: inode.size(),
        blocks_512: inode.blocks_512(fs.volume.geometry.block_size()),
        device: if is_device { inode.device() } else { DeviceNumber::default() },
        atime: inode.time(Time::Access),
        mtime: inode.time(Time::Modify),
        ctime: inode.time(Time::Change),
        crtime: inode.crtime(),
        protection: handle.protection(),
        is_noatime: handle.has_flag(flags::NOATIME),
    })
}
