//! Counts of links, and giving an inode one more name.

use vfs::names::{check_name, taken_first};
use vfs::{Error, FileType, Ino, Result, Timestamp};

use crate::Ext4;
use crate::dir::Entry;
use crate::format::inode::{Inode, Time, flags};
use crate::op::{Handle, Op};
use crate::rename::Names;

/// Most links of an inode (`EXT4_LINK_MAX`).
const LINKS_MAX: u16 = 65_000;

/// Links of a directory that has more subdirectories than can be counted.
const LINKS_UNCOUNTED: u16 = 1;

/// Links of a directory without subdirectories.
const LINKS_EMPTY_DIR: u16 = 2;

/// Notes a change of a directory's contents.
pub(crate) fn touch(dir: &mut Inode, time: Timestamp) {
    dir.set_time(Time::Modify, time);
    dir.set_time(Time::Change, time);
}

impl Ext4 {
    /// Counts the `..` of a new subdirectory. A directory with too many to count shows 1.
    pub(crate) fn add_subdirectory(&self, parent: &mut Handle) -> Result<()> {
        let links = parent.inode.links_count();
        if links == LINKS_UNCOUNTED {
            return Ok(());
        }
        let links = if links < LINKS_MAX {
            links + 1
        } else if self.volume.dir_nlink() && parent.has_flag(flags::INDEX) {
            LINKS_UNCOUNTED
        } else {
            return Err(Error::TooManyLinks);
        };
        parent.inode.set_links_count(links);
        Ok(())
    }

    /// Counts the `..` of a subdirectory off, unless they are too many to count.
    pub(crate) fn drop_subdirectory(&self, parent: &mut Handle) {
        let links = parent.inode.links_count();
        if links > LINKS_EMPTY_DIR {
            parent.inode.set_links_count(links - 1);
        }
    }

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
        let (file, links) = self.load_linkable(ino, time)?;
        let file_type = file.file_type()?;
        dir.protection().check_addition()?;
        self.check_project(dir, &file)?;
        self.atomically(|op| {
            let mut parent = *dir;
            op.add_entry(&mut parent, Entry { name, ino, file_type })?;
            op.stage_named((parent, dir), (file, links), time)
        })
    }

    /// An inode as it is with one more name, and how many it has.
    fn load_linkable(&self, ino: Ino, time: Option<Timestamp>) -> Result<(Handle, u16)> {
        // One without names is in use as long as somebody has it open.
        let mut file = self.load(ino)?;
        if file.file_type()? == FileType::Directory {
            return Err(Error::IsADirectory);
        }
        file.protection().check_change()?;
        let links = file.inode.links_count();
        if links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        file.inode.set_links_count(links + 1);
        if let Some(time) = time {
            file.inode.set_time(Time::Change, time);
        }
        Ok((file, links))
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
        let (file, links) = self.load_linkable(ino, time)?;
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
        let gone = self.without_name(&taken, time);
        let fate = self.atomically(|op| {
            let mut parent = before;
            op.replace_entry(&mut parent, &found, entry)?;
            op.stage_named((parent, &before), (file, links), time)?;
            op.let_go(gone)
        })?;
        self.reap(fate);
        Ok(())
    }
}

impl Op<'_> {
    /// Writes a directory, given as it is and as it was, and an inode that got one more name in it
    /// than the `links` it had, when the operation commits.
    fn stage_named(
        &mut self,
        (mut dir, before): (Handle, &Handle),
        (file, links): (Handle, u16),
        time: Option<Timestamp>,
    ) -> Result<()> {
        if let Some(time) = time {
            touch(&mut dir.inode, time);
        }
        self.stage_dir(dir, before)?;
        if links == 0 {
            self.remove_orphan(&file);
        }
        self.stage(file);
        Ok(())
    }
}
