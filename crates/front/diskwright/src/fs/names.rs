//! Creating, moving and removing names.

use vfs::path::{Circle, LastLink, WalkError, split_last};
use vfs::{Error as FsError, FileType, Ino, RenameMode, SpecialFile};

use super::path::join;
use super::{AsImagePath, Image};
use crate::image::shared::{Owner, PathContext};
use crate::{Error, Result};

/// Permissions of a new directory.
const DIRECTORY_PERMISSIONS: u32 = 0o755;

/// Permissions of symbolic links.
const SYMLINK_PERMISSIONS: u32 = 0o777;

/// Last component of a path and its directory.
struct ParentAndName<'p> {
    dir: Ino,
    name: &'p [u8],
    /// True if the path ends in `/`, which is valid for directories only.
    is_of_directory: bool,
}

impl<'p> ParentAndName<'p> {
    fn find(names: &PathContext<'_>, path: &'p [u8]) -> vfs::Result<Self> {
        let place = Self::find_any(names, path)?;
        place.check().map(|()| place)
    }

    /// Same as [`Self::find`], but accepts names that cannot exist.
    fn find_any(names: &PathContext<'_>, path: &'p [u8]) -> vfs::Result<Self> {
        let (dir, name) = names.paths.parent(path)?;
        Ok(Self { dir, name, is_of_directory: path.ends_with(b"/") })
    }

    fn check(&self) -> vfs::Result<()> {
        if self.name.len() > vfs::NAME_LEN_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
    }

    /// Same as [`Self::find`], but for a new file that is not a directory.
    fn for_new_file(names: &PathContext<'_>, path: &'p [u8]) -> vfs::Result<Self> {
        if split_last(path).is_none() {
            return Err(FsError::Exists);
        }
        let place = Self::find(names, path)?;
        if place.is_of_directory {
            names.fs.lookup(place.dir, place.name)?;
            return Err(FsError::Exists);
        }
        Ok(place)
    }

    fn file_type(&self, names: &PathContext<'_>) -> vfs::Result<FileType> {
        Ok(names.fs.attributes(names.fs.lookup(self.dir, self.name)?)?.file_type)
    }

    /// Returns whether the named file is `dir` or one of its ancestors.
    fn is_above(&self, names: &PathContext<'_>, mut dir: Ino) -> vfs::Result<bool> {
        let ino = names.fs.lookup(self.dir, self.name)?;
        let mut circle = Circle::default();
        while dir != ino {
            if dir == names.fs.root() || circle.closes_at(dir) {
                return Ok(false);
            }
            dir = names.fs.lookup(dir, b"..")?;
        }
        Ok(true)
    }
}

/// Rejects an invalid second path before the first path is followed.
fn check_second(path: &[u8]) -> Result<()> {
    if path.contains(&0) {
        let problem = FsError::Invalid("a path must not contain NUL");
        return Err(Error::file(path, problem));
    }
    Ok(())
}

fn make_directory(names: &PathContext<'_>, path: &[u8], mode: u32) -> vfs::Result<()> {
    if split_last(path).is_none() {
        names.paths.resolve(path, LastLink::Follow)?;
        return Err(FsError::Exists);
    }
    let ParentAndName { dir, name, .. } = ParentAndName::find(names, path)?;
    let new = names.new_inode(dir, mode, FileType::Directory)?;
    names.fs.mkdir(dir, name, &new).map(|_| ())
}

/// Creates a directory unless it exists.
fn make_or_find(names: &PathContext<'_>, path: &[u8], mode: u32) -> vfs::Result<()> {
    let made = make_directory(names, path, mode);
    match (&made, names.paths.metadata(path)) {
        (Err(_), Ok(found)) if found.file_type == FileType::Directory => Ok(()),
        _ => made,
    }
}

/// Creates a directory and its missing parents.
fn make_all(names: &PathContext<'_>, path: &[u8], mode: u32) -> vfs::Result<()> {
    // Walk up to the first existing parent, then down again. Same order of attempts as `std`, because it determines
    // the error.
    let mut missing = vec![path];
    while let Some(&below) = missing.last() {
        match make_or_find(names, below, mode) {
            Err(FsError::NotFound) => match split_parent(below) {
                Some(parent) => missing.push(parent),
                None => return Err(FsError::NotFound),
            },
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    missing.pop();
    missing.iter().rev().try_for_each(|path| make_or_find(names, path, mode))
}

/// Returns the path without its last component, or `None` if there is no parent component.
fn split_parent(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|&byte| byte != b'/')?;
    let slash = path[..end].iter().rposition(|&byte| byte == b'/')?;
    let end = path[..slash].iter().rposition(|&byte| byte != b'/')?;
    Some(&path[..=end])
}

/// Options for creating directories, with the meaning of `std::fs::DirBuilder`.
#[derive(Clone, Debug)]
pub struct DirBuilder {
    is_recursive: bool,
    mode: u32,
    owner: Option<Owner>,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self { is_recursive: false, mode: DIRECTORY_PERMISSIONS, owner: None }
    }
}

impl DirBuilder {
    /// Creates options for one directory with permissions `0o755`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether missing parents are created, and existing directories accepted.
    #[must_use]
    pub fn recursive(mut self, is_recursive: bool) -> Self {
        self.is_recursive = is_recursive;
        self
    }

    /// Sets the permissions of new directories. An image has no umask.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets user and group of new directories, instead of those of the image's options. Directories created in a
    /// set-group-ID directory inherit its group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// Same as [`Image::create_dir`], or [`Image::create_dir_all`] if recursive.
    pub fn create(&self, image: &Image, path: impl AsImagePath) -> Result<()> {
        let path = path.as_image_path();
        if self.is_recursive && path.is_empty() {
            return Ok(());
        }
        image.shared.names(path, |names| {
            let names = names.owned_by(self.owner);
            let make = if self.is_recursive { make_all } else { make_directory };
            make(&names, path, self.mode)
        })
    }
}

impl Image {
    /// Creates a directory with permissions `0o755`.
    ///
    /// # Errors
    /// If the name exists or the parent directory is missing.
    pub fn create_dir(&self, path: impl AsImagePath) -> Result<()> {
        DirBuilder::new().create(self, path)
    }

    /// Creates a directory and its missing parents. Existing directories are unchanged.
    ///
    /// # Errors
    /// If a component is not a directory. Directories created before remain.
    pub fn create_dir_all(&self, path: impl AsImagePath) -> Result<()> {
        DirBuilder::new().recursive(true).create(self, path)
    }

    /// Removes a name of a file that is not a directory. The file is freed with its last name, or when its last open
    /// handle is dropped. A symbolic link is not followed.
    ///
    /// # Errors
    /// If it does not exist or is a directory.
    pub fn remove_file(&self, path: impl AsImagePath) -> Result<()> {
        let path = path.as_image_path();
        self.shared.removing(path, |names| {
            if split_last(path).is_none() {
                return Err(FsError::IsADirectory);
            }
            let place = ParentAndName::find(&names, path)?;
            if place.is_of_directory && place.file_type(&names)? != FileType::Directory {
                return Err(FsError::NotADirectory);
            }
            names.fs.unlink(place.dir, place.name, Some(names.now))
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// If it does not exist, is not a directory, or is not empty.
    pub fn remove_dir(&self, path: impl AsImagePath) -> Result<()> {
        let path = path.as_image_path();
        self.shared.removing(path, |names| {
            let place = ParentAndName::find(&names, path)?;
            names.fs.rmdir(place.dir, place.name, Some(names.now))
        })
    }

    /// Removes a directory recursively. Symbolic links are not followed; if `path` is a link, the link is removed.
    /// Other threads cannot follow paths meanwhile.
    ///
    /// # Errors
    /// The first error, with the path of the file that could not be removed. Files removed before are gone.
    pub fn remove_dir_all(&self, path: impl AsImagePath) -> Result<()> {
        let path = path.as_image_path();
        let mut failed = None;
        self.shared.removing(path, |names| {
            let place = ParentAndName::find(&names, path)?;
            let file_type = place.file_type(&names)?;
            let is_link = file_type == FileType::Symlink && !place.is_of_directory;
            if file_type != FileType::Directory && !is_link {
                return Err(FsError::NotADirectory);
            }
            let removed = names.paths.remove_all(path, Some(names.now), &mut || ());
            failed = removed
                .err()
                .map(|WalkError { path: below, error }| Error::file(&join(path, &below), error));
            Ok(())
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Renames a file or directory. An existing target is replaced, but a directory only by a directory, and only if it
    /// is empty. Symbolic links at the end of both paths are not followed.
    ///
    /// # Errors
    /// If the source does not exist, the target is below the source, or the existing target cannot be replaced.
    pub fn rename(&self, from: impl AsImagePath, to: impl AsImagePath) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Same as [`Self::rename`], but `mode` selects whether an existing target is replaced, exchanged or an error.
    ///
    /// # Errors
    /// Same as [`Self::rename`].
    pub fn rename_with(
        &self,
        from: impl AsImagePath,
        to: impl AsImagePath,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_image_path(), to.as_image_path());
        check_second(to)?;
        self.shared.removing(from, |names| {
            let from = ParentAndName::find_any(&names, from)?;
            if to.is_empty() {
                return Err(FsError::NotFound);
            }
            let to = ParentAndName::find_any(&names, to)?;
            from.check()?;
            let file_type = from.file_type(&names)?;
            to.check()?;
            let is_of_directory = from.is_of_directory || to.is_of_directory;
            if is_of_directory && file_type != FileType::Directory {
                return Err(FsError::NotADirectory);
            }
            let (old, new) = ((from.dir, from.name), (to.dir, to.name));
            match names.fs.rename(old, new, mode, Some(names.now)) {
                // As on the host: the target is a directory that contains the source, so it is not empty.
                Err(FsError::IsADirectory) if to.is_above(&names, from.dir)? => {
                    Err(FsError::NotEmpty)
                }
                renamed => renamed,
            }
        })
    }

    /// Creates a hard link. A symbolic link at `original` is not followed; the link itself gets the new name.
    ///
    /// # Errors
    /// If the file does not exist or is a directory, or the name exists.
    pub fn hard_link(&self, original: impl AsImagePath, link: impl AsImagePath) -> Result<()> {
        let (original, link) = (original.as_image_path(), link.as_image_path());
        check_second(link)?;
        self.shared.names(original, |names| {
            let ino = names.paths.resolve(original, LastLink::Keep)?;
            if link.is_empty() {
                return Err(FsError::NotFound);
            }
            let ParentAndName { dir, name, .. } = ParentAndName::for_new_file(&names, link)?;
            if names.fs.attributes(ino)?.file_type == FileType::Directory {
                return Err(match names.fs.lookup(dir, name) {
                    Ok(_) => FsError::Exists,
                    Err(_) => FsError::NotPermitted("directories cannot have hard links"),
                });
            }
            names.fs.link(ino, dir, name, Some(names.now))
        })
    }

    /// Creates a symbolic link to `target`, which is not checked.
    ///
    /// # Errors
    /// If the name exists or the parent directory is missing.
    pub fn symlink(&self, target: impl AsImagePath, link: impl AsImagePath) -> Result<()> {
        self.make_symlink(target.as_image_path(), link.as_image_path(), None)
    }

    /// Same as [`Self::symlink`], but with this user and group.
    ///
    /// # Errors
    /// Same as [`Self::symlink`].
    pub fn symlink_owned(
        &self,
        target: impl AsImagePath,
        link: impl AsImagePath,
        (uid, gid): (u32, u32),
    ) -> Result<()> {
        self.make_symlink(target.as_image_path(), link.as_image_path(), Some((uid, gid)))
    }

    fn make_symlink(&self, target: &[u8], link: &[u8], owner: Option<Owner>) -> Result<()> {
        self.shared.names(link, |names| {
            let names = names.owned_by(owner);
            if target.is_empty() {
                return Err(FsError::NotFound);
            }
            if target.contains(&0) {
                return Err(FsError::Invalid("a target must not contain NUL"));
            }
            let ParentAndName { dir, name, .. } = ParentAndName::for_new_file(&names, link)?;
            let new = names.new_inode(dir, SYMLINK_PERMISSIONS, FileType::Symlink)?;
            names.fs.symlink(dir, name, target, &new).map(|_| ())
        })
    }

    /// Creates a device file, named pipe or socket with these permissions.
    ///
    /// # Errors
    /// If the name exists or the parent directory is missing.
    pub fn create_special(
        &self,
        path: impl AsImagePath,
        file: SpecialFile,
        mode: u32,
    ) -> Result<()> {
        let path = path.as_image_path();
        self.shared.names(path, |names| {
            let ParentAndName { dir, name, .. } = ParentAndName::for_new_file(&names, path)?;
            let new = names.new_inode(dir, mode, FileType::Regular)?;
            names.fs.mknod(dir, name, file, &new).map(|_| ())
        })
    }
}
