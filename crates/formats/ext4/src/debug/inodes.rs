//! Access to inode table slots without checks of their contents.

use disk::BlockDevice;
use operations::RunOperations;
use operations::inode::Inodes;
use vfs::{Error, Ino, Result};

use crate::Ext4Core;
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::group::GroupDescriptor;
use crate::format::inode::{self, BlockOwner, Inode};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::params::{Params, read_superblock};
use crate::quota::Account;

/// Writes an inode's slot, with its checksum, on the device of a closed file system. Unlike the journal, it accepts an
/// inode with an invalid structure.
///
/// # Errors
/// `NotFound` if the inode does not exist; `Invalid` if `new` has another length; `Corrupt` for a damaged group
/// descriptor; `Device`.
pub fn write_inode_slot(device: &dyn BlockDevice, ino: Ino, new: &[u8]) -> Result<()> {
    let params = Params::of(read_superblock(device)?);
    let geometry = &params.geometry;
    if new.len() != usize::from(geometry.inode_size) {
        return Err(Error::Invalid(WRONG_LENGTH));
    }
    let (group, index) = geometry.place_of(ino).ok_or(Error::NotFound)?;
    let (block, offset) = geometry.descriptor_position(group);
    let mut bytes = vec![0; usize::from(geometry.desc_size)];
    let at = geometry.byte_of(block) + offset as u64;
    device.read_at(at, &mut bytes).map_err(Error::Device)?;
    let table = GroupDescriptor::parse(&bytes, &params.sb, group)?.inode_table;
    let (block, offset) = geometry.inode_position(table, index);
    let mut slot = new.to_vec();
    if params.checksums {
        let generation = Inode::from_slot(&slot).generation();
        inode::seal_slot(inode_seed(params.sb.checksum_seed, ino, generation), &mut slot);
    }
    device.write_at(geometry.byte_of(block) + offset as u64, &slot).map_err(Error::Device)
}

/// Message for a slot of the wrong length.
const WRONG_LENGTH: &str = "the length must equal the inode size of the superblock";

impl Ext4Core {
    /// Returns the group of an inode, the block of its slot, and the slot's byte offset in that block.
    ///
    /// # Errors
    /// `NotFound` if the inode does not exist.
    pub fn inode_place(&self, ino: Ino) -> Result<(Group, Block, usize)> {
        let geometry = self.geometry();
        let (group, index) = geometry.place_of(ino).ok_or(Error::NotFound)?;
        let (block, offset) = geometry.inode_position(self.volume.groups.inode_table(group), index);
        Ok((group, block, offset))
    }

    /// Returns the bytes of an inode's slot. Its checksum is not verified.
    ///
    /// # Errors
    /// `NotFound` if the inode does not exist; `Device` if it cannot be read.
    pub fn inode_slot(&self, ino: Ino) -> Result<Vec<u8>> {
        let (_, block, offset) = self.inode_place(ino)?;
        let table = self.block(block, BlockKind::InodeTable.plain())?;
        let size = usize::from(self.geometry().inode_size);
        table.get(offset..offset + size).map(<[u8]>::to_vec).ok_or(Error::NotFound)
    }

    /// Replaces an inode's slot and updates its checksum and the usage of its owners.
    ///
    /// # Errors
    /// `NotFound` if the inode does not exist; `ReadOnly`; `Invalid` if `new` has another length; `Device`.
    pub fn replace_inode_slot(&self, ino: Ino, new: &[u8]) -> Result<()> {
        self.check_writable()?;
        let (_, block, offset) = self.inode_place(ino)?;
        let size = usize::from(self.geometry().inode_size);
        if new.len() != size {
            return Err(Error::Invalid(WRONG_LENGTH));
        }
        let _lock = Inodes::locks(self).exclusive(&[ino]);
        let inode = Inode::from_slot(new);
        self.provide_quota(Some(inode.uid()), Some(inode.gid()), Some(inode.projid()))?;
        // Damaged attributes refer to no values.
        let values = self.count_values(&self.any_inode(ino)?).unwrap_or(0);
        self.atomically(|op| {
            let id = op.txn.buffer(block.0, BlockKind::InodeTable.plain())?;
            let slot = op.txn.edit(id, offset..offset + size);
            if let Some(quota) = op.usage.quota() {
                let account = |inode: &Inode| Account::of(quota, &self.volume, ino, inode);
                op.usage.count_values(ino, values);
                op.usage.note(ino, account(&Inode::from_slot(slot)), account(&inode));
            }
            slot.copy_from_slice(new);
            if self.volume.checksums {
                let seed = inode_seed(self.superblock().checksum_seed, ino, inode.generation());
                inode::seal_slot(seed, slot);
            }
            Ok(())
        })
    }

    /// Returns an inode's handle, even if the inode is free or its checksum is wrong.
    pub(crate) fn any_inode(&self, ino: Ino) -> Result<Handle> {
        let (_, block, offset) = self.inode_place(ino)?;
        let inode = Inode::from_slot(&self.inode_slot(ino)?);
        let seed = inode_seed(self.superblock().checksum_seed, ino, inode.generation());
        Ok(Handle { owner: BlockOwner { ino, seed }, inode, block, offset })
    }
}
