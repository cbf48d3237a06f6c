//! What is known of files, and changing it, by path.

use vfs::Ino;
use vfs::path::LastLink;

use super::shared::Names;
use super::{AsImagePath, FileTimes, Image, Metadata, inode};
use crate::{Error, Result};

impl Image {
    fn with_inode<R>(
        &self,
        path: &[u8],
        last: LastLink,
        act: impl FnOnce(&Names<'_>, Ino) -> vfs::Result<R>,
    ) -> Result<R> {
        self.shared.names(path, |names| act(&names, names.paths.resolve(path, last)?))
    }

    /// What is known of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// If it is not there.
    pub fn metadata(&self, path: impl AsImagePath) -> Result<Metadata> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            names.fs.attributes(ino).map(Metadata::new)
        })
    }

    /// What is known of a file. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// If it is not there.
    pub fn symlink_metadata(&self, path: impl AsImagePath) -> Result<Metadata> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            names.fs.attributes(ino).map(Metadata::new)
        })
    }

    /// Whether the path leads to a file.
    ///
    /// # Errors
    /// If that cannot be told, because the image is damaged or closed.
    pub fn exists(&self, path: impl AsImagePath) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::File { source: vfs::Error::NotFound, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The path of what a path leads to, from the root, without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// If it is not there.
    pub fn canonicalize(&self, path: impl AsImagePath) -> Result<Vec<u8>> {
        let path = path.as_image_path();
        self.shared.names(path, |names| names.paths.canonicalize(path))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// If it is not there, or no symbolic link.
    pub fn read_link(&self, path: impl AsImagePath) -> Result<Vec<u8>> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| names.fs.readlink(ino))
    }

    /// Sets the permission bits, which are below `0o10000`. Symbolic links are followed.
    ///
    /// # Errors
    /// If it is not there, or the image cannot be changed.
    pub fn set_permissions(&self, path: impl AsImagePath, mode: u32) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            inode::set_permissions(names.fs, ino, mode, names.now)
        })
    }

    /// Sets owner and group, each if one is given. As in Linux, set-user-id and set-group-id and capabilities of a
    /// program go. Symbolic links are followed.
    ///
    /// # Errors
    /// If it is not there, or the image cannot be changed.
    pub fn chown(&self, path: impl AsImagePath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            inode::set_owner(names.fs, ino, (uid, gid), names.now)
        })
    }

    /// The same, but a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Self::chown`].
    pub fn lchown(&self, path: impl AsImagePath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::set_owner(names.fs, ino, (uid, gid), names.now)
        })
    }

    /// Sets times. Symbolic links are followed.
    ///
    /// # Errors
    /// If it is not there, or the image cannot be changed.
    pub fn set_times(&self, path: impl AsImagePath, times: FileTimes) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Follow, |names, ino| {
            names.fs.set_attributes(ino, &times.change(names.now))
        })
    }

    /// The same, but a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Self::set_times`].
    pub fn set_times_nofollow(&self, path: impl AsImagePath, times: FileTimes) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            names.fs.set_attributes(ino, &times.change(names.now))
        })
    }

    /// The value of an extended attribute; `None` if the file has none of that name. Names are as Linux has them:
    /// `user.comment`, `security.capability`, …. Here and below, a symbolic link at the end of the path is not
    /// followed: [`File`](super::File) has the same methods for what it leads to.
    ///
    /// # Errors
    /// If the file is not there.
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
    /// If the file is not there, the format cannot hold the attribute, or the image cannot be changed.
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

    /// The names of a file's extended attributes, sorted.
    ///
    /// # Errors
    /// If the file is not there.
    pub fn list_xattrs(&self, path: impl AsImagePath) -> Result<Vec<Vec<u8>>> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::list_xattrs(names.fs, ino)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// If the file or the attribute is not there, or the image cannot be changed.
    pub fn remove_xattr(&self, path: impl AsImagePath, name: impl AsRef<[u8]>) -> Result<()> {
        self.with_inode(path.as_image_path(), LastLink::Keep, |names, ino| {
            inode::remove_xattr(names.fs, ino, name.as_ref(), names.now)
        })
    }
}
