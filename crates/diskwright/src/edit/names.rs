//! Making, moving and removing names.

use vfs::path::{LastLink, WalkError, split_last};
use vfs::{Error as FsError, FileType, Ino, RenameMode, Timestamp};

use super::{Editor, ModeChange};
use crate::list::{absolute, join};
use crate::{Error, Result};

/// Permissions of a new directory unless told otherwise.
const DIRECTORY_PERMISSIONS: u16 = 0o755;

/// Permission bits that symbolic links have.
const SYMLINK_PERMISSIONS: u16 = 0o777;

/// Most names tried for a temporary file.
const TEMPORARY_TRIES: u32 = 1000;

/// What a move does if the new name is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Move {
    /// Replaces what has the name, but a directory only by a directory, and only if it is empty.
    #[default]
    Replace,
    /// Refuses.
    NoReplace,
    /// Both change places.
    Exchange,
}

/// How to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveOptions {
    /// What is done if the new name is taken.
    pub mode: Move,
    /// The destination must be a directory, as several files go there.
    pub into_directory: bool,
}

setters!(MoveOptions { mode: Move, into_directory: bool });

fn at(path: &[u8]) -> impl Fn(FsError) -> Error + '_ {
    move |source| Error::file(path, source)
}

impl Editor<'_> {
    /// Makes a directory; with `parents`, also those above that are missing, and none if it is
    /// there already.
    ///
    /// # Errors
    /// If the name is taken or a directory above it is missing.
    pub fn make_directory(
        &self,
        path: &[u8],
        mode: Option<&ModeChange>,
        parents: bool,
    ) -> Result<()> {
        let permissions =
            mode.map_or(DIRECTORY_PERMISSIONS, |mode| mode.apply(0o777, FileType::Directory));
        if !parents {
            return self.make_one(path, permissions).map_err(at(path));
        }
        let mut prefix = Vec::new();
        let components = path.split(|&b| b == b'/').filter(|name| !name.is_empty());
        let components: Vec<&[u8]> = components.collect();
        for (position, name) in components.iter().enumerate() {
            prefix.push(b'/');
            prefix.extend_from_slice(name);
            let is_last = position + 1 == components.len();
            let permissions = if is_last { permissions } else { DIRECTORY_PERMISSIONS };
            self.make_missing(&prefix, permissions).map_err(at(&prefix))?;
        }
        Ok(())
    }

    fn make_missing(&self, path: &[u8], permissions: u16) -> vfs::Result<()> {
        let found = match self.paths.resolve(path, LastLink::Follow) {
            Err(FsError::NotFound) => return self.make_one(path, permissions),
            found => self.fs().attributes(found?)?,
        };
        if found.file_type == FileType::Directory { Ok(()) } else { Err(FsError::NotADirectory) }
    }

    fn make_one(&self, path: &[u8], permissions: u16) -> vfs::Result<()> {
        if split_last(path).is_none() {
            return Err(FsError::Exists);
        }
        let (dir, name) = self.paths.parent(path)?;
        let new = self.new_inode(dir, permissions, FileType::Directory)?;
        self.fs().mkdir(dir, name, &new).map(|_| ())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If it is not there, no directory, or not empty.
    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.paths.remove_dir(path, self.time()).map_err(at(path))
    }

    /// Removes a file of any type but a directory.
    ///
    /// # Errors
    /// If it is not there, or a directory.
    pub fn remove_file(&self, path: &[u8]) -> Result<()> {
        self.paths.remove_file(path, self.time()).map_err(at(path))
    }

    /// Removes a file or a directory with all that is in it. `each` hears of every name that is
    /// gone.
    ///
    /// # Errors
    /// If something cannot be removed; what was removed before it stays so.
    pub fn remove_all(&self, path: &[u8], each: &mut dyn FnMut()) -> Result<()> {
        let removed = self.paths.remove_all(path, self.time(), each);
        removed.map_err(|WalkError { path: below, error }| {
            let path = if below.is_empty() { path.to_vec() } else { join(&absolute(path), &below) };
            Error::file(&path, error)
        })
    }

    /// Moves a file or directory to another name, or into a directory. Links are not followed,
    /// except one to the directory it goes into. In a directory that folds names, a file can move to
    /// another spelling of its name.
    ///
    /// # Errors
    /// If there is nothing to move, or what has the new name cannot be replaced.
    pub fn rename(&self, from: &[u8], to: &[u8], options: MoveOptions) -> Result<()> {
        let (from_dir, from_name) = self.paths.parent(from).map_err(at(from))?;
        let ino = self.fs().lookup(from_dir, from_name).map_err(at(from))?;
        // A directory does not move into itself if the new name only spells its name differently.
        let is_respelling = !options.into_directory
            && self.is_respelling((from_dir, from_name), to).map_err(at(to))?;
        let to = match options.mode {
            Move::Exchange => to.to_vec(),
            // A file whose new name ends in a slash is refused there.
            _ if is_respelling && !to.ends_with(b"/") => to.to_vec(),
            _ if is_respelling && self.is_directory(ino).map_err(at(to))? => to.to_vec(),
            _ => self.destination(from_name, to, options.into_directory, Some(ino))?,
        };
        let mode = match options.mode {
            Move::Replace => RenameMode::Replace,
            Move::NoReplace => RenameMode::NoReplace,
            Move::Exchange => RenameMode::Exchange,
        };
        let moved = self.paths.parent(&to).and_then(|target| {
            if target == (from_dir, from_name) {
                return Err(FsError::Invalid("both names are the same"));
            }
            let taken = self.fs().lookup(target.0, target.1);
            let is_respelling =
                target.0 == from_dir && self.fs().is_same_name(from_dir, from_name, target.1)?;
            if options.mode == Move::Replace
                && !is_respelling
                && taken.is_ok_and(|taken| taken == ino)
            {
                // For two names of one file, a rename would do nothing.
                return self.fs().unlink(from_dir, from_name, self.time());
            }
            self.fs().rename((from_dir, from_name), target, mode, self.time())
        });
        moved.map_err(at(&to))
    }

    /// Returns whether the last name of `to` is another spelling of a name, in the same directory.
    fn is_respelling(&self, (dir, name): (Ino, &[u8]), to: &[u8]) -> vfs::Result<bool> {
        if !self.fs().folds_names() || split_last(to).is_none() {
            return Ok(false);
        }
        match self.paths.parent(to) {
            Ok((to_dir, to_name)) => Ok(to_dir == dir
                && to_name != name
                && self.fs().is_same_name(dir, name, to_name)?),
            // The move itself tells.
            Err(_) => Ok(false),
        }
    }

    fn is_directory(&self, ino: Ino) -> vfs::Result<bool> {
        Ok(self.fs().attributes(ino)?.file_type == FileType::Directory)
    }

    /// Where something of this name goes that is moved, linked or copied to `to`: into it, if it is
    /// a directory. `ino` is what goes there, if that is known.
    pub(crate) fn destination(
        &self,
        name: &[u8],
        to: &[u8],
        must_be_directory: bool,
        ino: Option<Ino>,
    ) -> Result<Vec<u8>> {
        let found = match self.paths.resolve(to, LastLink::Follow) {
            Ok(found) => self.is_directory(found).map_err(at(to))?,
            Err(FsError::NotFound) if must_be_directory => return Err(at(to)(FsError::NotFound)),
            Err(FsError::NotFound) => false,
            Err(error) => return Err(at(to)(error)),
        };
        if found {
            return Ok(join(&absolute(to), name));
        }
        let is_file = match ino {
            Some(ino) => !self.is_directory(ino).map_err(at(to))?,
            None => false,
        };
        if must_be_directory || (is_file && to.ends_with(b"/")) {
            return Err(at(to)(FsError::NotADirectory));
        }
        Ok(to.to_vec())
    }

    /// Gives a file another name, or its own name in a directory. A symbolic link at `existing` is
    /// given the name itself.
    ///
    /// # Errors
    /// If there is no such file, it is a directory, or the name is taken (unless `replace`).
    pub fn hard_link(&self, existing: &[u8], name: &[u8], replace: bool) -> Result<()> {
        let found = self.paths.parent(existing).and_then(|(dir, name)| {
            let ino = self.fs().lookup(dir, name)?;
            match self.fs().attributes(ino)?.file_type {
                FileType::Directory => Err(FsError::IsADirectory),
                _ => Ok((ino, name)),
            }
        });
        let (ino, own_name) = found.map_err(at(existing))?;
        let name = self.destination(own_name, name, false, Some(ino))?;
        let linked = self.paths.parent(&name).and_then(|(dir, name)| {
            if replace {
                return self.put(ino, dir, name);
            }
            self.fs().link(ino, dir, name, self.time())
        });
        linked.map_err(at(&name))
    }

    /// Makes a symbolic link to `target`, of the target's last name if `name` is a directory.
    ///
    /// # Errors
    /// If the name is taken (unless `replace`), or a directory above it is missing.
    pub fn symlink(&self, target: &[u8], name: &[u8], replace: bool) -> Result<()> {
        let own_name = split_last(target).map_or(&b""[..], |(_, name)| name);
        let name = match own_name {
            b"" => name.to_vec(),
            _ => self.destination(own_name, name, false, None)?,
        };
        let made = self.paths.parent(&name).and_then(|(dir, name)| {
            let new = self.new_inode(dir, SYMLINK_PERMISSIONS, FileType::Symlink)?;
            let make = |name: &[u8]| self.fs().symlink(dir, name, target, &new).map(|_| ());
            if replace { self.replace(dir, name, &make) } else { make(name) }
        });
        made.map_err(at(&name))
    }

    /// Gives a file a name, which leads to the old file or to this one at any moment.
    pub(crate) fn put(&self, ino: Ino, dir: Ino, name: &[u8]) -> vfs::Result<()> {
        match self.fs().link_over(ino, dir, name, self.time()) {
            Err(FsError::NotFound) => self.fs().link(ino, dir, name, self.time()),
            other => other,
        }
    }

    /// Makes something of a name that may be taken: under a temporary name first, if it is.
    pub(crate) fn replace(
        &self,
        dir: Ino,
        name: &[u8],
        make: &dyn Fn(&[u8]) -> vfs::Result<()>,
    ) -> vfs::Result<()> {
        self.replace_at(dir, name, make, self.time())
    }

    /// The same, with another time for what changes beside it; `None` leaves it.
    pub(crate) fn replace_at(
        &self,
        dir: Ino,
        name: &[u8],
        make: &dyn Fn(&[u8]) -> vfs::Result<()>,
        time: Option<Timestamp>,
    ) -> vfs::Result<()> {
        match make(name) {
            Err(FsError::Exists) => {}
            other => return other,
        }
        let taken = self.fs().lookup(dir, name)?;
        if self.fs().attributes(taken)?.file_type == FileType::Directory {
            return Err(FsError::IsADirectory);
        }
        let temporary = Self::make_temporary(make)?;
        let (from, to) = ((dir, temporary.as_slice()), (dir, name));
        let renamed = self.fs().rename(from, to, RenameMode::Replace, time);
        if renamed.is_err() {
            // The first error is the one to tell.
            let _ = self.fs().unlink(dir, &temporary, time);
        }
        renamed
    }

    /// Makes something under a name that was free; returns the name.
    fn make_temporary(make: &dyn Fn(&[u8]) -> vfs::Result<()>) -> vfs::Result<Vec<u8>> {
        for number in 0..TEMPORARY_TRIES {
            let name = format!(".diskwright-{number}").into_bytes();
            match make(&name) {
                Err(FsError::Exists) => {}
                made => return made.map(|()| name),
            }
        }
        Err(FsError::Exists)
    }
}
