//! Uploads, which get their name when they are complete.

use dav_server::fs::{FsError, FsResult};
use vfs::ownership::without_set_id;
use vfs::path::{LastLink, split_last};
use vfs::{Attributes, ChangePurpose, Error, FileType, Ino, Paths, Result, SetAttributes};

use crate::names;
use crate::options::Symlinks;
use crate::volume::{FILE_PERMISSIONS, Volume, joined};

/// The attribute in which Linux stores the capabilities of a file. A change of the contents removes it.
const CAPABILITIES: &[u8] = b"security.capability";

/// Attempts to give an upload its name, while other clients create and remove that name.
const ATTEMPTS: usize = 8;

impl Volume<'_> {
    /// Creates a file without a name, for an upload to a path. The caller must close it. `size` is the expected size.
    ///
    /// # Errors
    /// `InsufficientStorage` if the file system has less space.
    pub(crate) fn begin_upload(&self, path: &[u8], size: Option<u64>) -> FsResult<Ino> {
        let free = self.quota()?;
        let free = free.1.map_or(0, |total| total.saturating_sub(free.0));
        if size.is_some_and(|size| size > free) {
            return Err(FsError::InsufficientStorage);
        }
        self.change(|| {
            let names = names::of_path(path)?;
            let (dir, _) = self.parent(&names)?;
            match self.find(&names, LastLink::Follow) {
                Ok(found) if found.file_type.is_dir() => return Err(Error::IsADirectory),
                Ok(found) => found.protection.check_write(0, found.size)?,
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
            let (new, lists) = self.initial(&dir, FileType::Regular, FILE_PERMISSIONS)?;
            let ino = self.fs().create_unlinked(dir.ino, &new)?;
            self.set_lists(ino, &lists).inspect_err(|_| self.close(ino))?;
            Ok(ino)
        })
    }

    /// Gives an upload its name. It replaces a file of that name in one step, and gets its owner, permissions and extended
    /// attributes.
    pub(crate) fn finish_upload(
        &self,
        ino: Ino,
        path: &[u8],
        is_new: bool,
    ) -> FsResult<Attributes> {
        self.change(|| {
            let names = names::of_path(path)?;
            for _ in 0..ATTEMPTS {
                match self.try_finish(ino, &names, is_new) {
                    // Another client was faster.
                    Err(Error::Exists) if !is_new => {}
                    Err(Error::NotFound) if self.parent(&names).is_ok() => {}
                    finished => return finished.and_then(|()| self.fs().attributes(ino)),
                }
            }
            Err(Error::Exists)
        })
    }

    fn try_finish(&self, ino: Ino, names: &[Vec<u8>], is_new: bool) -> Result<()> {
        let (dir, name) = self.parent(names)?;
        let now = Some(self.served.now());
        match self.find(names, LastLink::Follow) {
            Ok(_) if is_new => Err(Error::Exists),
            Ok(old) if old.file_type.is_dir() => Err(Error::IsADirectory),
            Ok(old) => {
                self.take_over(&old, ino)?;
                let (dir, name) = self.target(dir.ino, name, names)?;
                self.fs().link_over(ino, dir, &name, now)
            }
            Err(Error::NotFound) => match self.fs().link(ino, dir.ino, name, now) {
                // A link without target, or a file that clients cannot see.
                Err(Error::Exists) if self.find(names, LastLink::Follow).is_err() => {
                    Err(Error::NotPermitted("a hidden file has this name"))
                }
                linked => linked,
            },
            Err(error) => Err(error),
        }
    }

    /// Returns the directory and name of the file at a path, behind a symbolic link at its end.
    fn target(&self, dir: Ino, name: &[u8], names: &[Vec<u8>]) -> Result<(Ino, Vec<u8>)> {
        if self.options.symlinks == Symlinks::Hide {
            return Ok((dir, name.to_vec()));
        }
        let paths = Paths::new(self.fs());
        let path = paths.canonicalize(&joined(names))?;
        let (parent, name) = split_last(&path).ok_or(Error::IsADirectory)?;
        Ok((paths.resolve(parent, LastLink::Keep)?, name.to_vec()))
    }

    /// Gives a file the owner, permissions, creation time and extended attributes of the file that it replaces.
    fn take_over(&self, old: &Attributes, ino: Ino) -> Result<()> {
        old.protection.check_write(0, old.size)?;
        self.copy_xattrs(old.ino, ino)?;
        let change = SetAttributes {
            permissions: Some(without_set_id(old.permissions, || false)),
            uid: Some(old.uid),
            gid: Some(old.gid),
            crtime: old.crtime,
            purpose: ChangePurpose::Consequence,
            ..SetAttributes::default()
        };
        self.fs().set_attributes(ino, &change)
    }

    /// Copies extended attributes, without capabilities.
    pub(crate) fn copy_xattrs(&self, from: Ino, to: Ino) -> Result<()> {
        let mut all = Vec::new();
        match self.fs().list_xattrs(from, &mut |name| all.push(name.to_vec())) {
            Err(Error::Unsupported(_)) => return Ok(()),
            listed => listed?,
        }
        for name in all.iter().filter(|name| *name != CAPABILITIES) {
            match self.fs().get_xattr(from, name) {
                Ok(value) => self.fs().set_xattr(to, name, &value)?,
                // Removed in the meantime.
                Err(Error::NoAttribute) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens a file whose contents clients change in place. The caller must close it. Creates the file if it is missing and
    /// `create` is set.
    pub(crate) fn open_in_place(
        &self,
        path: &[u8],
        create: bool,
        is_new: bool,
    ) -> FsResult<Attributes> {
        self.change(|| {
            let names = names::of_path(path)?;
            let file = match self.find(&names, LastLink::Follow) {
                Ok(_) if is_new => return Err(Error::Exists),
                Err(Error::NotFound) if create => self.create_empty(&names)?,
                found => found?,
            };
            if file.file_type != FileType::Regular {
                return Err(Error::IsADirectory);
            }
            file.protection.check_addition()?;
            self.fs().open(file.ino)?;
            self.drop_privileges(&file).inspect_err(|_| self.close(file.ino))?;
            Ok(file)
        })
    }

    fn create_empty(&self, names: &[Vec<u8>]) -> Result<Attributes> {
        let (dir, name) = self.parent(names)?;
        let (new, lists) = self.initial(&dir, FileType::Regular, FILE_PERMISSIONS)?;
        let ino = self.fs().create(dir.ino, name, &new)?;
        self.set_lists(ino, &lists).inspect_err(|_| {
            // The first error is more informative for the client.
            let _ = self.fs().unlink(dir.ino, name, None);
        })?;
        self.fs().attributes(ino)
    }

    /// Removes set-id bits and capabilities of a file whose contents will change.
    fn drop_privileges(&self, file: &Attributes) -> Result<()> {
        let permissions = without_set_id(file.permissions, || false);
        if permissions != file.permissions {
            let change = SetAttributes {
                permissions: Some(permissions),
                ctime: Some(self.served.now()),
                purpose: ChangePurpose::Consequence,
                ..SetAttributes::default()
            };
            self.fs().set_attributes(file.ino, &change)?;
        }
        match self.fs().get_xattr(file.ino, CAPABILITIES) {
            Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
            value => value.and_then(|_| self.fs().remove_xattr(file.ino, CAPABILITIES)),
        }
    }
}
