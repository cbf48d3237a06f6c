//! Operations on files by their paths. They block, and run on the threads of the pool.

use dav_server::fs::{FsError, FsResult};
use vfs::acl;
use vfs::ownership::inherited_group;
use vfs::path::LastLink;
use vfs::served::Served;
use vfs::{Attributes, Error, FileSystem, FileType, Ino, NewInode, Paths, RenameMode, Result};

use crate::options::{Symlinks, WebdavOptions};
use crate::{names, status};

/// Permissions of new files and directories.
pub(crate) const FILE_PERMISSIONS: u16 = 0o644;
const DIRECTORY_PERMISSIONS: u16 = 0o755;
/// Permissions of symbolic links, which have no meaning.
const SYMLINK_PERMISSIONS: u16 = 0o777;

/// The served file system.
pub(crate) struct Volume<'a> {
    pub(crate) served: Served<'a>,
    pub(crate) options: WebdavOptions,
}

impl<'a> Volume<'a> {
    pub(crate) fn new(fs: &'a dyn FileSystem, options: WebdavOptions) -> Self {
        Self { served: Served::new(fs, options.read_only), options }
    }

    pub(crate) fn fs(&self) -> &'a dyn FileSystem {
        self.served.fs()
    }

    /// Converts an error of the file system. Every error passes through here.
    pub(crate) fn failed(&self, error: &Error) -> FsError {
        if self.served.note(error) {
            // The client gets a status; the log gets the details.
            tracing::error!("{error}");
        }
        status::of(error)
    }

    /// Converts a result of the file system.
    pub(crate) fn result<T>(&self, result: Result<T>) -> FsResult<T> {
        result.map_err(|error| self.failed(&error))
    }

    /// Runs a change, if changes are permitted.
    ///
    /// # Errors
    /// `Forbidden` if they are not, or no longer; those of the change.
    pub(crate) fn change<T>(&self, act: impl FnOnce() -> Result<T>) -> FsResult<T> {
        if !self.served.is_writable() {
            return Err(FsError::Forbidden);
        }
        // A change that fails may have changed something before.
        self.served.set_changed();
        self.result(act())
    }

    /// Makes the changes of a request durable, unless the server is asynchronous.
    pub(crate) fn make_durable(&self) -> FsResult<()> {
        if !self.options.sync || self.options.read_only {
            return Ok(());
        }
        if self.served.is_damaged() {
            return Err(FsError::GeneralFailure);
        }
        // The inode does not matter: both formats store all changes up to this moment.
        self.fs().fsync(self.fs().root()).map_err(|error| {
            tracing::error!("a change could not be stored: {error}");
            self.failed(&error);
            FsError::GeneralFailure
        })
    }

    /// Returns the attributes of the file at a path.
    pub(crate) fn metadata(&self, path: &[u8], last: LastLink) -> FsResult<Attributes> {
        self.result(names::of_path(path).and_then(|names| self.find(&names, last)))
    }

    /// Returns the attributes of a file. Files that clients cannot use are not found: devices, FIFOs, sockets, and
    /// depending on the options symbolic links and files of macOS.
    pub(crate) fn find(&self, names: &[Vec<u8>], last: LastLink) -> Result<Attributes> {
        if self.is_rejected(names) {
            return Err(Error::NotFound);
        }
        let found = self.locate(names, last)?;
        match found.file_type {
            FileType::Regular | FileType::Directory => Ok(found),
            FileType::Symlink if last == LastLink::Keep => Ok(found),
            _ => Err(Error::NotFound),
        }
    }

    /// Returns the attributes of a file, also of one that clients cannot use.
    pub(crate) fn locate(&self, names: &[Vec<u8>], last: LastLink) -> Result<Attributes> {
        match self.options.symlinks {
            Symlinks::Follow => {
                let ino = Paths::new(self.fs()).resolve(&joined(names), last)?;
                self.fs().attributes(ino)
            }
            Symlinks::Hide => self.find_without_links(names),
        }
    }

    fn find_without_links(&self, names: &[Vec<u8>]) -> Result<Attributes> {
        let mut found = self.fs().attributes(self.fs().root())?;
        for name in names {
            if !found.file_type.is_dir() {
                return Err(Error::NotADirectory);
            }
            found = self.fs().attributes(self.fs().lookup(found.ino, name)?)?;
            if found.file_type == FileType::Symlink {
                return Err(Error::NotFound);
            }
        }
        Ok(found)
    }

    /// Returns whether a path contains the name of a file of macOS, and the options reject these.
    pub(crate) fn is_rejected(&self, names: &[Vec<u8>]) -> bool {
        self.options.reject_macos_files && names.iter().any(|name| names::is_of_macos(name))
    }

    /// Returns the directory of a new name.
    ///
    /// # Errors
    /// `NotPermitted` for the root, and for names that the options reject.
    pub(crate) fn parent<'n>(&self, names: &'n [Vec<u8>]) -> Result<(Attributes, &'n [u8])> {
        let (name, parents) = names.split_last().ok_or(Error::NotPermitted("it is the root"))?;
        if self.is_rejected(names) {
            return Err(Error::NotPermitted("the server rejects files of macOS"));
        }
        self.directory_of(parents).map(|dir| (dir, name.as_slice()))
    }

    fn directory_of(&self, parents: &[Vec<u8>]) -> Result<Attributes> {
        let dir = self.locate(parents, LastLink::Follow)?;
        if dir.file_type.is_dir() { Ok(dir) } else { Err(Error::NotADirectory) }
    }

    /// Creates a directory, if requested instead of a file.
    pub(crate) fn create_dir(&self, path: &[u8], replaces_file: bool) -> FsResult<()> {
        self.change(|| {
            let names = names::of_path(path)?;
            if names.is_empty() {
                return Err(Error::Exists);
            }
            let (dir, name) = self.parent(&names)?;
            if replaces_file {
                self.fs().unlink(dir.ino, name, Some(self.served.now()))?;
            }
            let (new, lists) = self.initial(&dir, FileType::Directory, DIRECTORY_PERMISSIONS)?;
            let ino = self.fs().mkdir(dir.ino, name, &new)?;
            self.set_lists(ino, &lists).inspect_err(|_| {
                // The first error is more informative for the client.
                let _ = self.fs().rmdir(dir.ino, name, None);
            })
        })
    }

    pub(crate) fn create_symlink(&self, names: &[Vec<u8>], target: &[u8]) -> Result<()> {
        let (dir, name) = self.parent(names)?;
        let new = self.initial(&dir, FileType::Symlink, SYMLINK_PERMISSIONS)?.0;
        self.fs().symlink(dir.ino, name, target, &new).map(drop)
    }

    /// Removes a file or an empty directory. Names that are hidden are removed with their directory.
    pub(crate) fn remove(&self, path: &[u8], is_directory: bool) -> FsResult<()> {
        self.change(|| {
            let names = names::of_path(path)?;
            let (name, parents) =
                names.split_last().ok_or(Error::NotPermitted("it is the root"))?;
            let dir = self.directory_of(parents)?.ino;
            let now = Some(self.served.now());
            match is_directory {
                true => self.fs().rmdir(dir, name, now),
                false => self.fs().unlink(dir, name, now),
            }
        })
    }

    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> FsResult<()> {
        self.change(|| {
            let (from, to) = (names::of_path(from)?, names::of_path(to)?);
            let ((from_dir, from), (to_dir, to)) = (self.parent(&from)?, self.parent(&to)?);
            let (from, to) = ((from_dir.ino, from), (to_dir.ino, to));
            let now = Some(self.served.now());
            match self.fs().rename(from, to, RenameMode::Replace, now) {
                // A directory replaces a file.
                Err(Error::NotADirectory) => {
                    self.fs().unlink(to.0, to.1, now)?;
                    self.fs().rename(from, to, RenameMode::NoReplace, now)
                }
                renamed => renamed,
            }
        })
    }

    /// Returns used and total space in bytes.
    pub(crate) fn quota(&self) -> FsResult<(u64, Option<u64>)> {
        let totals = self.result(self.fs().statfs())?;
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(totals.block_size));
        let available = totals.blocks_available.min(totals.blocks_for_contents);
        let used = totals.blocks.saturating_sub(totals.blocks_free);
        Ok((bytes(used), Some(bytes(used.saturating_add(available)))))
    }

    /// Returns the initial attributes and lists of an inode, according to acl(5), open(2) and mkdir(2).
    pub(crate) fn initial(
        &self,
        dir: &Attributes,
        file_type: FileType,
        permissions: u16,
    ) -> Result<(NewInode, acl::InheritedAcl)> {
        let (uid, gid) = self.options.owner;
        let (gid, set_group_id) = inherited_group(dir, file_type, gid);
        let permissions = permissions | set_group_id;
        let lists = match acl::default_of(self.fs(), dir.ino)? {
            Some(list) if file_type != FileType::Symlink => list.inherit(permissions, file_type),
            _ => acl::InheritedAcl { permissions, access: None, default: None },
        };
        let time = self.served.now();
        let permissions = lists.permissions;
        Ok((NewInode { permissions, uid, gid, time, parent_time: Some(time) }, lists))
    }

    pub(crate) fn set_lists(&self, ino: Ino, lists: &acl::InheritedAcl) -> Result<()> {
        for (name, value) in [(acl::ACCESS, &lists.access), (acl::DEFAULT, &lists.default)] {
            if let Some(value) = value {
                self.fs().set_xattr(ino, name, value)?;
            }
        }
        Ok(())
    }

    /// Drops a reference of an inode.
    pub(crate) fn close(&self, ino: Ino) {
        if let Err(error) = self.fs().close(ino) {
            self.failed(&error);
            tracing::error!("inode {ino}: {error}");
        }
    }
}

/// Returns the path of these names, from the root.
pub(crate) fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    let mut path = vec![b'/'];
    path.extend_from_slice(&names.join(&b'/'));
    path
}
