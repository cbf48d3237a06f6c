//! Changing permissions, owners, extended attributes and sizes.

use vfs::path::{LastLink, Order};
use vfs::{Attributes, Error as FsError, FileType, Ino, SetAttributes};

use super::{Editor, ModeChange, OwnerChange, SizeChange};
use crate::inode::change_owner;
use crate::list::{absolute, join};
use crate::{Error, Result};

/// Permissions of a file that `truncate` makes.
const FILE_PERMISSIONS: u16 = 0o644;

/// Whether a symbolic link that is named itself is followed. Links below a directory never are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// It is followed.
    #[default]
    Follow,
    /// It is changed itself.
    Keep,
}

impl Editor<'_> {
    /// Changes permissions; with `recursive`, also of everything below. Symbolic links have none.
    ///
    /// # Errors
    /// If a file cannot be read or written; those before it are changed.
    pub fn change_mode(&self, path: &[u8], mode: &ModeChange, recursive: bool) -> Result<u64> {
        self.each(path, Links::Follow, recursive, &|old| {
            if old.file_type == FileType::Symlink {
                return Ok(());
            }
            let permissions = Some(mode.apply(old.permissions, old.file_type));
            let ctime = self.time();
            self.fs().set_attributes(
                old.ino,
                &SetAttributes { permissions, ctime, ..SetAttributes::default() },
            )
        })
    }

    /// Changes owners; with `recursive`, also of everything below. As in Linux, a file that is not a
    /// directory loses its set-user-id bit, its set-group-id bit if the group may execute it, and
    /// its capabilities.
    ///
    /// # Errors
    /// If a file cannot be read or written; those before it are changed.
    pub fn change_owner(
        &self,
        path: &[u8],
        owner: OwnerChange,
        links: Links,
        recursive: bool,
    ) -> Result<u64> {
        self.each(path, links, recursive, &|old| {
            change_owner(self.fs(), old, (owner.uid, owner.gid), self.policy().time)
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// If the file is not there, or the format cannot hold the attribute.
    pub fn set_xattr(&self, path: &[u8], links: Links, name: &[u8], value: &[u8]) -> Result<()> {
        self.each(path, links, false, &|old| {
            self.fs().set_xattr(old.ino, name, value)?;
            self.touch(old.ino)
        })?;
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// If the file or the attribute is not there.
    pub fn remove_xattr(&self, path: &[u8], links: Links, name: &[u8]) -> Result<()> {
        self.each(path, links, false, &|old| {
            self.fs().remove_xattr(old.ino, name)?;
            self.touch(old.ino)
        })?;
        Ok(())
    }

    /// Sets the size of a regular file. One that is missing is made if `create`; with `create` off
    /// it is left alone.
    ///
    /// # Errors
    /// If it is no regular file, or the size is more than the format can hold.
    pub fn truncate(&self, path: &[u8], size: SizeChange, create: bool) -> Result<()> {
        let truncated = match self.paths.resolve(path, LastLink::Follow) {
            Ok(ino) => self.fs().attributes(ino).and_then(|old| self.resize(&old, size)),
            Err(FsError::NotFound) if create => self.make_sized(path, size),
            Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error),
        };
        truncated.map_err(|e| Error::file(path, e))
    }

    fn resize(&self, old: &Attributes, size: SizeChange) -> vfs::Result<()> {
        match old.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::Invalid("this is not a regular file")),
        }
        self.fs().truncate(old.ino, size.apply(old.size).ok_or(FsError::FileTooLarge)?, None)?;
        let (mtime, ctime) = (self.time(), self.time());
        self.fs().set_attributes(old.ino, &SetAttributes { mtime, ctime, ..Default::default() })
    }

    fn make_sized(&self, path: &[u8], size: SizeChange) -> vfs::Result<()> {
        if path.ends_with(b"/") {
            return Err(FsError::NotFound);
        }
        let (dir, name) = self.paths.parent_of_target(path)?;
        let new = self.new_inode(dir, FILE_PERMISSIONS, FileType::Regular)?;
        let ino = self.fs().create(dir, &name, &new)?;
        match size.apply(0).ok_or(FsError::FileTooLarge)? {
            0 => Ok(()),
            size => self.fs().truncate(ino, size, None),
        }
    }

    fn touch(&self, ino: Ino) -> vfs::Result<()> {
        let ctime = self.time();
        self.fs().set_attributes(ino, &SetAttributes { ctime, ..SetAttributes::default() })
    }

    /// Applies a change to a file, or to it and everything below it; returns to how many.
    pub(super) fn each(
        &self,
        path: &[u8],
        links: Links,
        recursive: bool,
        change: &dyn Fn(&Attributes) -> vfs::Result<()>,
    ) -> Result<u64> {
        let at = |source| Error::file(path, source);
        let last = if links == Links::Follow { LastLink::Follow } else { LastLink::Keep };
        let top = self.paths.resolve(path, last).map_err(at)?;
        if !recursive {
            self.fs().attributes(top).and_then(|old| change(&old)).map_err(at)?;
            return Ok(1);
        }
        let mut count = 0;
        let mut walk = self.paths.walk(top, Order::Physical);
        while let Some(visit) = walk.advance() {
            let changed = visit.and_then(|visit| change(&visit.attributes));
            changed.map_err(|e| Error::file(&join(&absolute(path), walk.path()), e))?;
            count += 1;
        }
        Ok(count)
    }
}
