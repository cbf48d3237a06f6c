//! The layer of deferred creates, through which all methods of a mounted file system reach the format.
//!
//! The format is private here, and each way to it first flushes what the caller must not miss. So a new method cannot
//! reach a file or a directory before its deferred changes are on disk: its author has to choose one of these ways.

use vfs::{Attributes, Ino, NewInode, Result};

use super::flush::{
    attributes, flush_all, flush_dir, flush_file, flush_inode, flush_named_dir, open,
    retry_after_flush,
};
use super::{DeferCreates, create};
use crate::inode::{look_at, look_at_dir};
use crate::names::Name;

/// A format below the layer of deferred creates.
///
/// Methods that change something run again if space or inodes run out while files are deferred.
pub(crate) struct Layer<F>(F);

impl<F> Layer<F> {
    /// Puts the layer over a format.
    pub(crate) fn new(format: F) -> Self {
        Self(format)
    }

    /// Returns the format for methods that concern no particular inode, and for those that only one format has.
    pub(crate) fn format(&self) -> &F {
        &self.0
    }

    /// Like [`Self::format`], for exclusive access.
    pub(crate) fn format_mut(&mut self) -> &mut F {
        &mut self.0
    }

    /// Removes the layer. Deferred files are lost.
    pub(crate) fn into_format(self) -> F {
        self.0
    }
}

impl<F: DeferCreates> Layer<F> {
    /// Returns the number of deferred files, including those about to be deferred.
    pub(crate) fn files(&self) -> usize {
        self.0.deferred().files()
    }

    /// Reads a file or symbolic link after flushing it.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `read`.
    pub(crate) fn read_file<R>(&self, ino: Ino, read: impl FnOnce(&F) -> Result<R>) -> Result<R> {
        flush_file(&self.0, ino)?;
        read(&self.0)
    }

    /// Lists a directory after flushing it. No create in it is deferred until `list` returns.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `list`.
    pub(crate) fn list_dir<R>(&self, dir: Ino, list: impl FnOnce(&F) -> Result<R>) -> Result<R> {
        let _flushed = flush_dir(&self.0, dir)?;
        list(&self.0)
    }

    /// Changes the contents of a file after flushing it.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `change`.
    pub(crate) fn change_file<R>(
        &self,
        ino: Ino,
        mut change: impl FnMut(&F) -> Result<R>,
    ) -> Result<R> {
        flush_file(&self.0, ino)?;
        retry_after_flush(&self.0, || change(&self.0))
    }

    /// Changes the contents of two files after flushing them.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `change`.
    pub(crate) fn change_files<R>(
        &self,
        (one, two): (Ino, Ino),
        change: impl FnMut(&F) -> Result<R>,
    ) -> Result<R> {
        flush_file(&self.0, one)?;
        self.change_file(two, change)
    }

    /// Changes the attributes of an inode after flushing it. It may be a file or a directory.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `change`.
    pub(crate) fn change_inode<R>(
        &self,
        ino: Ino,
        mut change: impl FnMut(&F) -> Result<R>,
    ) -> Result<R> {
        let _flushed = flush_inode(&self.0, ino)?;
        retry_after_flush(&self.0, || change(&self.0))
    }

    /// Changes the names of a directory after flushing it.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `change`.
    pub(crate) fn change_dir<R>(
        &self,
        dir: Ino,
        mut change: impl FnMut(&F) -> Result<R>,
    ) -> Result<R> {
        let _flushed = flush_dir(&self.0, dir)?;
        retry_after_flush(&self.0, || change(&self.0))
    }

    /// Gives a file another name after flushing it and the directory.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `change`.
    pub(crate) fn link_file<R>(
        &self,
        ino: Ino,
        dir: Ino,
        change: impl FnMut(&F) -> Result<R>,
    ) -> Result<R> {
        flush_file(&self.0, ino)?;
        self.change_dir(dir, change)
    }

    /// Moves names after flushing both directories, and the named ones if they are directories.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `change`.
    pub(crate) fn move_names<R>(
        &self,
        (from, to): (Name<'_>, Name<'_>),
        mut change: impl FnMut(&F) -> Result<R>,
    ) -> Result<R> {
        let fs = &self.0;
        let _flushed = (flush_dir(fs, from.0)?, flush_dir(fs, to.0)?);
        let _moved = (flush_named_dir(fs, from)?, flush_named_dir(fs, to)?);
        retry_after_flush(fs, || change(fs))
    }

    /// Runs `sync` after flushing everything: a deferred file cannot be found after a crash without its name.
    ///
    /// # Errors
    /// Returns the errors of flushing and of `sync`.
    pub(crate) fn sync(&self, sync: impl FnOnce(&F) -> Result<()>) -> Result<()> {
        flush_all(&self.0)?;
        sync(&self.0)
    }

    /// Creates a regular file, which may be deferred. Otherwise `now` creates it in the flushed directory.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::create`].
    pub(crate) fn create(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        now: impl FnMut(&F) -> Result<Ino>,
    ) -> Result<Ino> {
        match create::create(&self.0, dir, name, new)? {
            Some(ino) => Ok(ino),
            None => self.change_dir(dir, now),
        }
    }

    /// Returns the inode of a name. `stored` looks up a name that is not deferred.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::lookup`].
    pub(crate) fn lookup(
        &self,
        dir: Ino,
        name: &[u8],
        stored: impl FnOnce(&F, &F::Inode) -> Result<Ino>,
    ) -> Result<Ino> {
        let fs = &self.0;
        look_at_dir(fs, dir, |inode| match fs.deferred().find(dir, name) {
            Some(ino) => Ok(ino),
            None => stored(fs, inode),
        })
    }

    /// Returns the attributes of an inode. `stored` reads those of an inode that is not deferred.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::attributes`].
    pub(crate) fn attributes(
        &self,
        ino: Ino,
        stored: impl FnOnce(&F, &F::Inode) -> Result<Attributes>,
    ) -> Result<Attributes> {
        let fs = &self.0;
        if let Some(attributes) = attributes(fs, ino)? {
            return Ok(attributes);
        }
        look_at(fs, ino, |inode| {
            let mut attributes = stored(fs, inode)?;
            if let Some(time) = fs.deferred().time(ino) {
                (attributes.mtime, attributes.ctime) = (time, time);
            }
            Ok(attributes)
        })
    }

    /// Adds a reference to an inode. `stored` does so for an inode that is not deferred.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::open`].
    pub(crate) fn open(&self, ino: Ino, stored: impl FnOnce(&F) -> Result<()>) -> Result<()> {
        if open(&self.0, ino)? { Ok(()) } else { stored(&self.0) }
    }
}
