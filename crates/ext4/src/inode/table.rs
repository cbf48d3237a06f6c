//! Reading inodes from their tables.

use transaction::{BufferRef, Corruption};
use vfs::{Error, Ino, Result};

use crate::Ext4;
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, Inode, Owner};
use crate::kind::Kind;
use crate::op::Handle;

impl Ext4 {
    /// An inode in use. `NotFound` if it is not.
    pub(crate) fn load(&self, ino: Ino) -> Result<Handle> {
        let (handle, _) = self.load_slot(ino)?;
        Ok(handle)
    }

    /// An inode in use, and the block of the inode table that holds its slot.
    pub(crate) fn load_slot(&self, ino: Ino) -> Result<(Handle, BufferRef)> {
        let (block, offset) = self.inode_position(ino)?;
        let buffer = self.engine.read(block.0, Kind::Pieces.plain())?;
        let slot = &buffer[offset..offset + usize::from(self.volume.geometry.inode_size)];
        let inode = Inode::from_slot(slot);
        if inode.mode() == 0 && inode.links_count() == 0 {
            return Err(Error::NotFound);
        }
        let seed = inode_seed(self.volume.sb.checksum_seed, ino, inode.generation());
        let damage = |c: Corruption| c.of_inode(ino.0).at_block(block.0);
        if self.volume.checksums {
            let (computed, stored) = inode::slot_checksums(seed, slot);
            if computed != stored {
                return Err(damage(Corruption::checksum("inode", computed, stored)).into());
            }
        }
        if inode.links_count() == 0 && inode.dtime() != 0 {
            return Err(Error::NotFound);
        }
        let handle = Handle { owner: Owner { ino, seed }, inode, block, offset };
        Ok((handle, buffer))
    }

    /// The block of the inode table that holds an inode, and the byte of it where the slot starts.
    fn inode_position(&self, ino: Ino) -> Result<(Block, usize)> {
        let Some((group, index)) = self.volume.geometry.place_of(ino) else {
            return Err(Error::NotFound);
        };
        let table = self.volume.groups.inode_table(group);
        Ok(self.volume.geometry.inode_position(table, index))
    }

    /// A directory in use.
    pub(crate) fn load_dir(&self, ino: Ino) -> Result<Handle> {
        let handle = self.load(ino)?;
        if handle.inode.is_dir() { Ok(handle) } else { Err(Error::NotADirectory) }
    }
}
