//! Creating, moving and removing names.

use vfs::path::{LastLink, WalkError, split_last};
use vfs::{Error as FsError, FileType, Ino, RenameMode, Timestamp};

use super::{Editor, ModeChange};
use crate::list::{absolute, join};
use crate::{Error, Result};

/// Default permissions of a new directory.
const DIRECTORY_PERMISSIONS: u16 = 0o755;

/// Permissions of symbolic links.
const SYMLINK_PERMISSIONS: u16 = 0o777;

/// Maximum number of temporary names tried.
const TEMPORARY_TRIES: u32 = 1000;

/// Behaviour of a move if the new name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Move {
    /// Replaces the existing file, but a directory only by a directory, and only if it is empty.
    #[default]
    Replace,
    /// Fails.
    NoReplace,
    /// Exchanges both files.
    Exchange,
}

/// Options of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveOptions {
    /// Behaviour if the new name exists.
    pub mode: Move,
    /// The destination must be a directory, because there are several sources.
    pub into_directory: bool,
}

setters!(MoveOptions { mode: Move, into_directory: bool });

fn at(path: &[u8]) -> impl Fn(FsError) -> Error + '_ {
    move |source| Error::file(path, source)
}

impl Editor<'_> {
    /// Creates a directory. With `parents`, also creates missing parents and accepts an existing directory.
    ///
    /// # Errors
    /// If the name exists or a parent is missing.
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
    /// If it does not exist, is not a directory, or is not empty.
    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.paths.remove_dir(path, self.time()).map_err(at(path))
    }

    /// Removes a file that is not a directory.
    ///
    /// # Errors
    /// If it does not exist or is a directory.
    pub fn remove_file(&self, path: &[u8]) -> Result<()> {
        self.paths.remove_file(path, self.time()).map_err(at(path))
    }

    /// Removes a file, or a directory recursively. Calls `each` for every removed name.
    ///
    /// # Errors
    /// If something cannot be removed. Files removed before are gone.
    pub fn remove_all(&self, path: &[u8], each: &mut dyn FnMut()) -> Result<()> {
        let removed = self.paths.remove_all(path, self.time(), each);
        removed.map_err(|WalkError { path: below, error }| {
            let path = if below.is_empty() { path.to_vec() } else { join(&absolute(path), &below) };
            Error::file(&path, error)
        })
    }

    /// Moves a file or directory to another name or into a directory. Links are not followed, except a link to the
    /// destination directory. In a directory that folds names, a file can be renamed to another spelling of its name.
    ///
    /// # Errors
    /// If the source does not exist, or the existing target cannot be replaced.
    pub fn rename(&self, from: &[u8], to: &[u8], options: MoveOptions) -> Result<()> {
        let (from_dir, from_name) = self.paths.parent(from).map_err(at(from))?;
        let ino = self.fs().lookup(from_dir, from_name).map_err(at(from))?;
        // Another spelling of a directory's own name is a rename, not a move into itself.
        let is_respelling = !options.into_directory
            && self.is_respelling((from_dir, from_name), to).map_err(at(to))?;
        let to = match options.mode {
            Move::Exchange => to.to_vec(),
            // A file whose new name ends in a slash is rejected there.
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
                // A rename between two names of one file has no effect, so remove the old name.
                return self.fs().unlink(from_dir, from_name, self.time());
            }
            self.fs().rename((from_dir, from_name), target, mode, self.time())
        });
        moved.map_err(at(&to))
    }

    /// Returns whether `to` is another spelling of a name in the same directory.
    fn is_respelling(&self, (dir, name): (Ino, &[u8]), to: &[u8]) -> vfs::Result<bool> {
        if !self.fs().folds_names() || split_last(to).is_none() {
            return Ok(false);
        }
        match self.paths.parent(to) {
            Ok((to_dir, to_name)) => Ok(to_dir == dir
                && to_name != name
                && self.fs().is_same_name(dir, name, to_name)?),
            // The rename reports the error.
            Err(_) => Ok(false),
        }
    }

    fn is_directory(&self, ino: Ino) -> vfs::Result<bool> {
        Ok(self.fs().attributes(ino)?.file_type == FileType::Directory)
    }

    /// Returns the destination path for a file of this name: inside `to` if that is a directory. `ino` is the file
    /// itself, if known.
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

    /// Creates a hard link, with its old name if `name` is a directory. A symbolic link at `existing` is not followed.
    ///
    /// # Errors
    /// If the file does not exist or is a directory, or the name exists (unless `replace`).
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

    /// Creates a symbolic link to `target`, with the target's last name if `name` is a directory.
    ///
    /// # Errors
    /// If the name exists (unless `replace`), or a parent directory is missing.
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

    /// Names a file atomically, replacing an existing file.
    pub(crate) fn put(&self, ino: Ino, dir: Ino, name: &[u8]) -> vfs::Result<()> {
        match self.fs().link_over(ino, dir, name, self.time()) {
            Err(FsError::NotFound) => self.fs().link(ino, dir, name, self.time()),
            other => other,
        }
    }

    /// Creates a file under a name. If the name exists, the file is created under a temporary name and renamed.
    pub(crate) fn replace(
        &self,
        dir: Ino,
        name: &[u8],
        make: &dyn Fn(&[u8]) -> vfs::Result<()>,
    ) -> vfs::Result<()> {
        self.replace_at(dir, name, make, self.time())
    }

    /// Same as [`Self::replace`], but with another time for the directory; `None` keeps its times.
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
            // Report the first error.
            let _ = self.fs().unlink(dir, &temporary, time);
        }
        renamed
    }

    /// Creates a file under an unused temporary name and returns the name.
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
