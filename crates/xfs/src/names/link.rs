//! Counts of links, and giving an inode one more name.

use vfs::names::{check_name, taken_first};
use vfs::{Error, FileType, Ino, Result, Timestamp};

use super::entry::Names;
use crate::Xfs;
use crate::attr::parent::Link;
use crate::dir::Entry;
use crate::format::inode::{Inode, Time};
use crate::inode::Handle;
use crate::op::Op;

/// Most links of an inode (`XFS_MAXLINK`).
pub(super) const LINKS_MAX: u32 = i32::MAX as u32;

/// Links of a directory without subdirectories.
const LINKS_EMPTY_DIR: u32 = 2;

/// Notes a change of a directory's contents.
pub(super) fn touch(dir: &mut Inode, time: Timestamp) {
    dir.set_time(Time::Modify, time);
    dir.set_time(Time::Change, time);
}

impl Handle {
    /// Counts the `..` of a new subdirectory.
    pub(super) fn add_subdirectory(&mut self) -> Result<()> {
        let links = self.inode.nlink();
        if links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.inode.set_nlink(links + 1);
        Ok(())
    }

    /// Counts the `..` of a subdirectory off.
    pub(super) fn drop_subdirectory(&mut self) {
        let links = self.inode.nlink();
        if links > LINKS_EMPTY_DIR {
            self.inode.set_nlink(links - 1);
        }
    }
}

impl Xfs {
    pub(crate) fn add_link(
        &self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.check_writable()?;
        check_name(name)?;
        let _lock = self.locks.exclusive(&[ino, dir]);
        let before = self.load_dir(dir)?;
        let added = self.add_link_in(&before, name, ino, time);
        taken_first::<Names, _>(self, (&before, name), added)
    }

    fn add_link_in(
        &self,
        dir: &Handle,
        name: &[u8],
        ino: Ino,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let file = self.load_linkable(ino)?;
        let file_type = file.file_type()?;
        dir.protection().check_addition()?;
        self.check_project(dir, &file)?;
        self.atomically(|op| {
            let mut parent = dir.clone();
            op.add_entry(&mut parent, Entry { name, ino, file_type })?;
            op.stage_named(parent, file.clone(), name, time)
        })
    }

    /// An inode that can have one more name.
    fn load_linkable(&self, ino: Ino) -> Result<Handle> {
        // One without names is in use as long as somebody has it open.
        let file = self.load(ino)?;
        if file.file_type()? == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        file.protection().check_change()?;
        if file.inode.nlink() >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        Ok(file)
    }

    pub(crate) fn replace_link(
        &self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.check_writable()?;
        if matches!(name, b"." | b"..") {
            return Err(Error::IsADirectory);
        }
        let (_locked, before, found) = self.lock_entry(dir, name, Some(ino))?;
        let file = self.load_linkable(ino)?;
        self.check_project(&before, &file)?;
        let taken = self.load_named(&before, &found)?;
        if taken.inode.is_dir() {
            return Err(Error::IsADirectory);
        }
        if found.ino == ino {
            return Ok(());
        }
        before.protection().check_removal(taken.protection())?;
        let entry = Entry { name, ino, file_type: file.file_type()? };
        let fate = self.atomically(|op| {
            let mut parent = before.clone();
            op.replace_entry(&mut parent, entry)?;
            op.stage_named(parent, file.clone(), name, time)?;
            op.take_name(&taken, Link::new(&before, name), time)
        })?;
        self.reap(fate);
        Ok(())
    }
}

impl Op<'_> {
    /// Writes a directory and an inode that got one more name in it when the operation commits.
    fn stage_named(
        &mut self,
        mut dir: Handle,
        mut file: Handle,
        name: &[u8],
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.add_parent(&mut file, Link::new(&dir, name))?;
        let links = file.inode.nlink();
        file.inode.set_nlink(links + 1);
        if links == 0 {
            self.remove_unlinked(&file);
        }
        if let Some(time) = time {
            touch(&mut dir.inode, time);
            file.inode.set_time(Time::Change, time);
        }
        self.stage(dir);
        self.stage(file);
        Ok(())
    }
}
