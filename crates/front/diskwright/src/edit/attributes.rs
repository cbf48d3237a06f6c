//! Changes of permissions, owners, extended attributes and sizes.

use vfs::path::{LastLink, Order};
use vfs::{Attributes, Error as FsError, FileType, Ino, SetAttributes};

use super::{Editor, ModeChange, OwnerChange, SizeChange};
use crate::inode::change_owner;
use crate::list::{absolute, join};
use crate::{Error, Result};

/// Permissions of a file created by `truncate`.
const FILE_PERMISSIONS: u16 = 0o644;

/// Treatment of a symbolic link given as the path. Links below a directory are not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinkPolicy {
    /// Follow the link.
    #[default]
    Follow,
    /// Change the link itself.
    Keep,
}

impl Editor<'_> {
    /// Changes permissions, with `recursive` also of all files below. Symbolic links are skipped, because they have no
    /// permissions.
    ///
    /// # Errors
    /// If a file cannot be read or written. Files before it are changed.
    pub fn change_mode(&self, path: &[u8], mode: &ModeChange, recursive: bool) -> Result<u64> {
        self.each(path, SymlinkPolicy::Follow, recursive, &|old| {
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

    /// Changes owners, with `recursive` also of all files below. As on Linux, files except directories lose their
    /// set-user-ID bit, their set-group-ID bit if they are group-executable, and their capabilities.
    ///
    /// # Errors
    /// If a file cannot be read or written. Files before it are changed.
    pub fn change_owner(
        &self,
        path: &[u8],
        owner: OwnerChange,
        links: SymlinkPolicy,
        recursive: bool,
    ) -> Result<u64> {
        self.each(path, links, recursive, &|old| {
            change_owner(self.fs(), old, (owner.uid, owner.gid), self.policy().time)
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// If the file does not exist, or the format cannot store the attribute.
    pub fn set_xattr(
        &self,
        path: &[u8],
        links: SymlinkPolicy,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.each(path, links, false, &|old| {
            self.fs().set_xattr(old.ino, name, value)?;
            self.touch(old.ino)
        })?;
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// If the file or the attribute does not exist.
    pub fn remove_xattr(&self, path: &[u8], links: SymlinkPolicy, name: &[u8]) -> Result<()> {
        self.each(path, links, false, &|old| {
            self.fs().remove_xattr(old.ino, name)?;
            self.touch(old.ino)
        })?;
        Ok(())
    }

    /// Sets the size of a regular file. A missing file is created if `create`, and ignored otherwise.
    ///
    /// # Errors
    /// If it is not a regular file, or the format does not support the size.
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
            _ => return Err(FsError::Invalid("not a regular file")),
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

    /// Applies a change to a file, with `recursive` also to all files below. Returns the number of files.
    pub(super) fn each(
        &self,
        path: &[u8],
        links: SymlinkPolicy,
        recursive: bool,
        change: &dyn Fn(&Attributes) -> vfs::Result<()>,
    ) -> Result<u64> {
        let at = |source| Error::file(path, source);
        let last = if links == SymlinkPolicy::Follow { LastLink::Follow } else { LastLink::Keep };
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
