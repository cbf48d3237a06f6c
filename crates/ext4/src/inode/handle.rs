//! Finding an inode and telling what it is.

use vfs::{Attributes, Corruption, DeviceNumber, Error, FileType, Ino, Protection, Result};

use crate::Ext4;
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, GOOD_OLD_INODE_SIZE, Inode, Owner, Time, flags};
use crate::kind::Kind;

/// An inode in use: its number, its place and a copy of its fixed fields.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    pub(crate) owner: Owner,
    pub(crate) inode: Inode,
    /// Where its slot is.
    pub(crate) block: Block,
    pub(crate) offset: usize,
}

impl Handle {
    pub(crate) fn ino(&self) -> Ino {
        self.owner.ino
    }

    /// Damage to this inode or what belongs to it.
    pub(crate) fn corrupt(&self, structure: &'static str, problem: &'static str) -> Error {
        Corruption::new(structure, problem).of_inode(self.ino().0).into()
    }

    /// Its type. A mode that names none is damage.
    pub(crate) fn file_type(&self) -> Result<FileType> {
        self.inode.file_type().ok_or_else(|| {
            let damage = Corruption::new("inode", "its mode names no file type");
            damage
                .of_inode(self.ino().0)
                .mismatch("a type", format!("{:#o}", self.inode.mode()))
                .into()
        })
    }

    /// What its flags forbid.
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

impl Ext4 {
    /// An inode in use. `NotFound` if it is not.
    pub(crate) fn load(&self, ino: Ino) -> Result<Handle> {
        load(self, ino)
    }
}

/// Reads an inode and checks it. `NotFound` if there is no such inode, or it has no links and nobody
/// has it open.
pub(crate) fn load(fs: &Ext4, ino: Ino) -> Result<Handle> {
    let handle = load_unlinked(fs, ino)?;
    if handle.inode.links_count() == 0 && !fs.orphans.is_open(ino) {
        return Err(Error::NotFound);
    }
    Ok(handle)
}

/// Reads an inode that may have lost its last link but is not free yet. `NotFound` if there is no
/// such inode or its slot is empty.
pub(crate) fn load_unlinked(fs: &Ext4, ino: Ino) -> Result<Handle> {
    let geometry = &fs.volume.geometry;
    let (group, index) = geometry.place_of(ino).ok_or(Error::NotFound)?;
    let (block, offset) = geometry.inode_position(fs.volume.groups.inode_table(group), index);
    let table = fs.block(block, Kind::InodeTable.plain())?;
    let slot = slot(fs, &table, offset).ok_or(Error::NotFound)?;
    let inode = Inode::from_slot(slot);
    if inode.mode() == 0 && inode.links_count() == 0 {
        return Err(Error::NotFound);
    }
    let at = |c: Corruption| c.of_inode(ino.0).at_block(block.0);
    let sb = &fs.volume.sb;
    let seed = inode_seed(sb.checksum_seed, ino, inode.generation());
    if sb.features.metadata_csum() {
        let (computed, stored) = inode::slot_checksums(seed, slot);
        if computed != stored {
            return Err(at(Corruption::checksum("inode", computed, stored)).into());
        }
    }
    let extra = inode.extra_isize();
    if !extra.is_multiple_of(4) || GOOD_OLD_INODE_SIZE + usize::from(extra) > slot.len() {
        let range = format!("a multiple of 4 up to {}", slot.len() - GOOD_OLD_INODE_SIZE);
        return Err(at(Corruption::new("inode", "extra_isize").mismatch(range, extra)).into());
    }
    Ok(Handle { owner: Owner { ino, seed }, inode, block, offset })
}

/// The slot at `offset` of a block of an inode table.
pub(crate) fn slot<'t>(fs: &Ext4, table: &'t [u8], offset: usize) -> Option<&'t [u8]> {
    table.get(offset..offset + usize::from(fs.volume.geometry.inode_size))
}

/// The attributes of an inode.
pub(crate) fn attributes(fs: &Ext4, handle: &Handle) -> Result<Attributes> {
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
