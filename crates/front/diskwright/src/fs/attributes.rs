//! Reading and changing file attributes by path.

use vfs::Ino;
use vfs::path::LastLink;

use super::{AsImagePath, FileTimes, Image, Metadata, inode};
use crate::image::shared::PathContext;
use crate::{Error, Result};

impl Image {
    fn with_inode<R>(
        &self,
        path: &[u8],
        last: LastLink,
        act: impl FnOnce(&PathContext<'_>, Ino) -> vfs::Result<R>,
    ) -> Result<R> {
        self.shared.names(path, |names| act(&names, names.paths.resolve(path, last)?))
    }

    /// Returns the metadata of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn metadata(&self, path: impl AsImagePath) -> Result<Metadata> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            names.fs.attributes(ino).map(Metadata::new)
        })
    }

    /// Returns the metadata of a file. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn symlink_metadata(&self, path: impl AsImagePath) -> Result<Metadata> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            names.fs.attributes(ino).map(Metadata::new)
        })
    }

    /// Returns whether the path leads to an existing file.
    ///
    /// # Errors
    /// If the image is damaged or closed.
    pub fn exists(&self, path: impl AsImagePath) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::File { source: vfs::Error::NotFound, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the absolute path without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn canonicalize(&self, path: impl AsImagePath) -> Result<Vec<u8>> {
        let path = path.as_image_path();
        self.shared.names(path, |names| names.paths.canonicalize(path))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// If the file does not exist or is not a symbolic link.
    pub fn read_link(&self, path: impl AsImagePath) -> Result<Vec<u8>> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| names.fs.readlink(ino))
    }

    /// Sets the permission bits, at most `0o7777`. Symbolic links are followed.
    ///
    /// # Errors
    /// If the file does not exist or the image is read-only.
    pub fn set_permissions(&self, path: impl AsImagePath, mode: u32) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            inode::set_permissions(names.fs, ino, mode, names.now)
        })
    }

    /// Sets the owner, the group or both. As on Linux, this clears the set-user-ID and set-group-ID bits and the
    /// capabilities of a program. Symbolic links are followed.
    ///
    /// # Errors
    /// If the file does not exist or the image is read-only.
    pub fn chown(&self, path: impl AsImagePath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            inode::set_owner(names.fs, ino, (uid, gid), names.now)
        })
    }

    /// Same as [`Self::chown`], but a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// Same as [`Self::chown`].
    pub fn lchown(&self, path: impl AsImagePath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::set_owner(names.fs, ino, (uid, gid), names.now)
        })
    }

    /// Sets times. Symbolic links are followed.
    ///
    /// # Errors
    /// If the file does not exist or the image is read-only.
    pub fn set_times(&self, path: impl AsImagePath, times: FileTimes) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            names.fs.set_attributes(ino, &times.change(names.now))
        })
    }

    /// Same as [`Self::set_times`], but a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// Same as [`Self::set_times`].
    pub fn set_times_nofollow(&self, path: impl AsImagePath, times: FileTimes) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            names.fs.set_attributes(ino, &times.change(names.now))
        })
    }

    /// Returns the value of an extended attribute, or `None` if it does not exist. Names are the same as on Linux:
    /// `user.comment`, `security.capability`, …. This method and the other xattr methods do not follow a symbolic link
    /// at the end of the path; the methods of [`File`](super::File) do.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn get_xattr(
        &self,
        path: impl AsImagePath,
        name: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::get_xattr(names.fs, ino, name.as_ref())
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// If the file does not exist, the format cannot store the attribute, or the image is read-only.
    pub fn set_xattr(
        &self,
        path: impl AsImagePath,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::set_xattr(names.fs, ino, (name.as_ref(), value.as_ref()), names.now)
        })
    }

    /// Returns the names of a file's extended attributes, sorted.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn list_xattrs(&self, path: impl AsImagePath) -> Result<Vec<Vec<u8>>> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::list_xattrs(names.fs, ino)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// If the file or the attribute does not exist, or the image is read-only.
    pub fn remove_xattr(&self, path: impl AsImagePath, name: impl AsRef<[u8]>) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::remove_xattr(names.fs, ino, name.as_ref(), names.now)
        })
    }
}
