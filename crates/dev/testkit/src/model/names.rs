//! Names: creating, linking, removing and moving entries.

use vfs::{Error, FileType, Ino, NewInode, RenameMode, Result, Timestamp};

use super::state::{Body, ModelState};

/// An entry: its directory and its name.
type DirentKey<'n> = (Ino, &'n [u8]);

impl ModelState {
    pub(super) fn make(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        file_type: FileType,
        body: Body,
    ) -> Result<Ino> {
        self.check_new(dir, name)?;
        let ino = self.add_inode(file_type, body, new);
        if file_type == FileType::Directory {
            self.inode_mut(ino)?.attributes.links = 2;
            self.inode_mut(dir)?.attributes.links += 1;
        }
        self.directory_mut(dir)?.insert(name, ino);
        self.touch(dir, new.parent_time)?;
        Ok(ino)
    }

    pub(super) fn make_unlinked(&mut self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.directory(dir)?;
        let ino = self.add_inode(FileType::Regular, Body::Regular([].into()), new);
        let inode = self.inode_mut(ino)?;
        inode.attributes.links = 0;
        inode.open_count = 1;
        Ok(ino)
    }

    pub(super) fn link(
        &mut self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        time: Option<Timestamp>,
    ) -> Result<()> {
        let is_directory = self.inode(ino)?.is_directory();
        self.check_new(dir, name)?;
        if is_directory {
            return Err(Error::IsADirectory);
        }
        self.directory_mut(dir)?.insert(name, ino);
        let attributes = &mut self.inode_mut(ino)?.attributes;
        attributes.links += 1;
        attributes.ctime = time.unwrap_or(attributes.ctime);
        self.touch(dir, time)
    }

    pub(super) fn link_over(
        &mut self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        time: Option<Timestamp>,
    ) -> Result<()> {
        let taken = self.entry(dir, name)?;
        if self.inode(ino)?.is_directory() || self.inode(taken)?.is_directory() {
            return Err(Error::IsADirectory);
        }
        if taken == ino {
            return Ok(());
        }
        let stored = self.stored(dir, name)?;
        self.remove_entry((dir, name), taken, time)?;
        self.link(ino, dir, &stored, time)
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        let ino = self.entry(dir, name)?;
        if self.inode(ino)?.is_directory() {
            return Err(Error::IsADirectory);
        }
        self.remove_entry((dir, name), ino, time)
    }

    pub(super) fn rmdir(&mut self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        let ino = self.entry(dir, name)?;
        self.check_empty(ino)?;
        self.remove_entry((dir, name), ino, time)
    }

    /// Returns the stored spelling of a name.
    pub(super) fn stored(&self, dir: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.directory(dir)?.stored(name).map(<[u8]>::to_vec).ok_or(Error::NotFound)
    }

    /// Returns whether two names lead to the same existing entry.
    pub(super) fn is_one_entry(&self, a: DirentKey<'_>, b: DirentKey<'_>) -> bool {
        let directory = if a.0 == b.0 { self.directory(a.0).ok() } else { None };
        directory.is_some_and(|found| {
            found.stored(a.1).is_some() && found.stored(a.1) == found.stored(b.1)
        })
    }

    fn check_empty(&self, dir: Ino) -> Result<()> {
        match self.directory(dir)?.is_empty() {
            true => Ok(()),
            false => Err(Error::NotEmpty),
        }
    }

    /// Removes a name, and its inode if nothing else refers to it.
    fn remove_entry(
        &mut self,
        from: DirentKey<'_>,
        ino: Ino,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let (dir, name) = from;
        self.directory_mut(dir)?.remove(name);
        self.touch(dir, time)?;
        let inode = self.inode_mut(ino)?;
        inode.attributes.ctime = time.unwrap_or(inode.attributes.ctime);
        if inode.is_directory() {
            inode.attributes.links = 0;
            self.inode_mut(dir)?.attributes.links -= 1;
        } else {
            inode.attributes.links -= 1;
        }
        self.drop_if_unused(ino);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        from: DirentKey<'_>,
        to: DirentKey<'_>,
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let moved = self.entry(from.0, from.1)?;
        let taken = match self.entry(to.0, to.1) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        match (taken, mode) {
            (Some(_), RenameMode::NoReplace) => Err(Error::Exists),
            (None, RenameMode::Exchange) => Err(Error::NotFound),
            (Some(taken), RenameMode::Exchange) => self.exchange((from, moved), (to, taken), time),
            (Some(taken), RenameMode::Replace) => self.replace((from, moved), (to, taken), time),
            (None, _) => {
                self.check_new(to.0, to.1)?;
                self.check_not_below(moved, to.0)?;
                self.move_entry((from, moved), to, time)
            }
        }
    }

    /// `Invalid` if `dir` is `moved` or below it.
    fn check_not_below(&self, moved: Ino, dir: Ino) -> Result<()> {
        let mut at = dir;
        loop {
            if at == moved {
                return Err(Error::Invalid("a directory cannot move below itself"));
            }
            let parent = self.directory(at)?.parent;
            if parent == at {
                return Ok(());
            }
            at = parent;
        }
    }

    fn replace(
        &mut self,
        (from, moved): (DirentKey<'_>, Ino),
        (to, taken): (DirentKey<'_>, Ino),
        time: Option<Timestamp>,
    ) -> Result<()> {
        let stored = self.stored(to.0, to.1)?;
        if self.is_one_entry(from, to) && stored != to.1 {
            return self.move_entry((from, moved), to, time);
        }
        if moved == taken {
            return Ok(());
        }
        self.check_not_below(moved, to.0)?;
        match (self.inode(moved)?.is_directory(), self.inode(taken)?.is_directory()) {
            (true, true) => self.check_empty(taken)?,
            (true, false) => return Err(Error::NotADirectory),
            (false, true) => return Err(Error::IsADirectory),
            (false, false) => {}
        }
        self.remove_entry(to, taken, time)?;
        self.move_entry((from, moved), (to.0, &stored), time)
    }

    /// Moves an entry to a free name.
    fn move_entry(
        &mut self,
        (from, moved): (DirentKey<'_>, Ino),
        to: DirentKey<'_>,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.directory_mut(from.0)?.remove(from.1);
        self.directory_mut(to.0)?.insert(to.1, moved);
        self.moved(moved, from.0, to.0, time)?;
        self.touch(from.0, time)?;
        self.touch(to.0, time)
    }

    fn exchange(
        &mut self,
        (from, moved): (DirentKey<'_>, Ino),
        (to, taken): (DirentKey<'_>, Ino),
        time: Option<Timestamp>,
    ) -> Result<()> {
        if moved == taken {
            return Ok(());
        }
        self.check_not_below(moved, to.0)?;
        self.check_not_below(taken, from.0)?;
        // Each keeps the other's cookie, so both names keep their position in listings.
        for ((dir, name), ino) in [(from, taken), (to, moved)] {
            self.directory_mut(dir)?.set(name, ino);
        }
        self.moved(moved, from.0, to.0, time)?;
        self.moved(taken, to.0, from.0, time)?;
        self.touch(from.0, time)?;
        self.touch(to.0, time)
    }

    /// Updates an inode whose entry moved to another directory.
    fn moved(&mut self, ino: Ino, from: Ino, to: Ino, time: Option<Timestamp>) -> Result<()> {
        let inode = self.inode_mut(ino)?;
        inode.attributes.ctime = time.unwrap_or(inode.attributes.ctime);
        if let Body::Directory(directory) = &mut inode.body {
            directory.parent = to;
            self.inode_mut(from)?.attributes.links -= 1;
            self.inode_mut(to)?.attributes.links += 1;
        }
        Ok(())
    }
}
