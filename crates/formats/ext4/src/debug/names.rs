//! Changes of names without their link counts, and freeing of an inode that still has names.

use operations::RunOperations;
use operations::inode::{Inodes, load_dir};
use operations::names::{Directories, Entry};
use operations::orphans::inactivate;
use vfs::names::check_name;
use vfs::{Error, FileType, Ino, Result};

use crate::Ext4Core;
use crate::dir;

impl Ext4Core {
    /// Adds a name of an inode to a directory without changing the inode's link count.
    ///
    /// # Errors
    /// `Exists` if the name exists; `NotFound` and `NotADirectory` for `dir`; `NoSpace`; `ReadOnly`; errors of reading.
    pub fn enter_name(&self, dir: Ino, name: &[u8], ino: Ino) -> Result<()> {
        self.check_writable()?;
        check_name(name)?;
        let file_type = self.any_inode(ino)?.inode.file_type().unwrap_or(FileType::Regular);
        let _lock = Inodes::locks(self).exclusive(&[dir]);
        let before = load_dir(self, dir)?;
        if self.find_entry(&before, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.atomically(|op| {
            let mut parent = before;
            op.add_entry(&mut parent, Entry { name, ino, file_type })?;
            <Self as Directories>::stage_dir(op, parent, &before)
        })
    }

    /// Removes a name from a directory. Neither changes the inode's link count nor frees the inode.
    ///
    /// # Errors
    /// `NotFound` if the name does not exist; `ReadOnly`; errors of reading.
    pub fn remove_name(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        let _lock = Inodes::locks(self).exclusive(&[dir]);
        let before = load_dir(self, dir)?;
        let found = dir::find(&mut &*self, &before, name)?.ok_or(Error::NotFound)?;
        self.atomically_freeing(|op| {
            let mut parent = before;
            op.remove_entry(&mut parent, name, &found)?;
            <Self as Directories>::stage_dir(op, parent, &before)
        })
    }

    /// Frees an inode and its contents. Names that lead to it stay.
    ///
    /// # Errors
    /// `NotFound` if it is not in use; `ReadOnly`; errors of reading.
    pub fn free_inode(&self, ino: Ino) -> Result<()> {
        self.check_writable()?;
        let inactivation = {
            let _lock = Inodes::locks(self).exclusive(&[ino]);
            let mut gone = self.load(ino)?;
            gone.inode.set_links_count(0);
            self.atomically_freeing(|op| op.let_go(gone))?
        };
        inactivate(self, inactivation);
        Ok(())
    }
}
