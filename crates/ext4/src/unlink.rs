//! Removing names.

use vfs::locks::Locked;
use vfs::names;
use vfs::{Corruption, Error, FileType, Ino, NAME_LEN_MAX, Result, Timestamp};

use crate::Ext4;
use crate::format::inode::{Time, flags};
use crate::link::touch;
use crate::op::Handle;
use crate::read::directory::{self, Found};
use crate::rename::Names;

impl Ext4 {
    pub(crate) fn remove_file(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.check_writable()?;
        if matches!(name, b"." | b"..") {
            return Err(Error::IsADirectory);
        }
        let (_locked, parent, found) = self.lock_entry(dir, name, None)?;
        let child = self.load_named(&parent, &found)?;
        parent.protection().check_removal(child.protection())?;
        if child.file_type()? == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        self.remove_found(&parent, name, &found, &child, time)
    }

    pub(crate) fn remove_dir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.check_writable()?;
        match name {
            b"." => return Err(Error::Invalid("a directory cannot be removed as '.'")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let (_locked, parent, found) = self.lock_entry(dir, name, None)?;
        let child = self.load_named(&parent, &found)?;
        parent.protection().check_removal(child.protection())?;
        child.require_directory()?;
        self.require_empty(&child)?;
        self.remove_found(&parent, name, &found, &child, time)
    }

    /// Removes a name from a directory and what it stands for, both locked.
    fn remove_found(
        &self,
        before: &Handle,
        name: &[u8],
        found: &Found,
        child: &Handle,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let gone = self.without_name(child, time);
        let is_dir = child.inode.is_dir();
        let fate = self.atomically_freeing(|op| {
            let mut parent = *before;
            op.remove_entry(&mut parent, name, found)?;
            if is_dir {
                self.drop_subdirectory(&mut parent);
            }
            if let Some(time) = time {
                touch(&mut parent.inode, time);
            }
            op.stage_dir(parent, before)?;
            op.let_go(gone)
        })?;
        self.reap(fate);
        Ok(())
    }

    /// An inode as it is once one of its names is gone. A directory has only one.
    pub(crate) fn without_name(&self, inode: &Handle, time: Option<Timestamp>) -> Handle {
        let mut gone = *inode;
        let links = gone.inode.links_count();
        gone.inode.set_links_count(if gone.inode.is_dir() { 0 } else { links - 1 });
        if let Some(time) = time {
            gone.inode.set_time(Time::Change, time);
        }
        gone
    }

    /// Locks a directory and the inode that `name` stands for in it; and another inode.
    pub(crate) fn lock_entry(
        &self,
        dir: Ino,
        name: &[u8],
        also: Option<Ino>,
    ) -> Result<(Locked<'_>, Handle, Found)> {
        names::lock_entry::<Names>(self, (dir, name), also)
    }

    /// The entry of a name that is to be changed.
    pub(crate) fn find_named(&self, dir: &Handle, name: &[u8]) -> Result<Option<Found>> {
        if name.len() > NAME_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        if dir.has_flag(flags::ENCRYPT) {
            return Err(Error::Encrypted);
        }
        let found = directory::find(&mut &*self, dir, name)?;
        if found.is_some_and(|found| found.ino == dir.ino()) {
            return Err(dir.corrupt("directory", "it is its own subdirectory"));
        }
        Ok(found)
    }

    /// The inode that an entry names, which must be in use.
    pub(crate) fn load_named(&self, dir: &Handle, found: &Found) -> Result<Handle> {
        let unused = || {
            Corruption::new("directory entry", "its inode is not in use")
                .of_inode(dir.ino().0)
                .mismatch("an inode with links", found.ino)
        };
        match self.load(found.ino) {
            Ok(inode) if inode.inode.links_count() > 0 => Ok(inode),
            Ok(_) | Err(Error::NotFound) => Err(unused().into()),
            Err(other) => Err(other),
        }
    }

    /// `NotEmpty` if a directory, which is locked, has entries.
    pub(crate) fn require_empty(&self, dir: &Handle) -> Result<()> {
        if directory::is_empty(&mut &*self, dir)? { Ok(()) } else { Err(Error::NotEmpty) }
    }
}
