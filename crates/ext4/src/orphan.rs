//! What becomes of inodes without names. To be replaced: only inodes whose blocks are few go.

use vfs::{Error, Result};

use crate::Ext4;
use crate::format::address::FileBlock;
use crate::format::inode::flags;
use crate::op::{Handle, Op};

/// What becomes of an inode that lost its last name.
pub(crate) struct Fate(());

impl Op<'_> {
    /// Frees an inode without names.
    pub(crate) fn abandon(&mut self, mut inode: Handle) -> Result<Fate> {
        let block_size = self.fs.volume.geometry.block_size();
        let count = inode.inode.blocks_512(block_size) * 512 / u64::from(block_size);
        let blocks = inode.inode.size().div_ceil(u64::from(block_size));
        if count > 0 {
            for block in (0..blocks as u32).map(FileBlock) {
                if let Some(found) = self.find_block(&inode, block)? {
                    if inode.inode.is_dir() {
                        self.free_metadata(&mut inode, found)?;
                    } else {
                        self.free_blocks(&mut inode, found, 1)?;
                    }
                }
            }
        }
        if inode.inode.blocks_512(block_size) > 0 || inode.inode.has_flag(flags::EA_INODE) {
            return Err(Error::unsupported("freeing a large inode", "wait for it"));
        }
        self.free_inode(inode);
        Ok(Fate(()))
    }

    /// Takes an inode that has a name again from the orphans.
    pub(crate) fn remove_orphan(&mut self, _inode: &mut Handle) -> Result<()> {
        Err(Error::NotFound)
    }
}

impl Ext4 {
    /// Does what is left to do after the name is gone.
    pub(crate) fn reap(&self, _fate: Fate) -> Result<()> {
        Ok(())
    }
}
