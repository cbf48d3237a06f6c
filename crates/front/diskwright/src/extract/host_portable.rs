//! Creates a file tree with the standard library only, as on Windows.
//!
//! Names contain no separator and are neither `.` nor `..` (checked by the walk and by the host's name rules). Entered
//! directories were created here or verified not to be links. Images therefore cannot redirect paths. A program that
//! moves directories of the tree concurrently can.

use std::borrow::Cow;
use std::fs::{File, FileTimes, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vfs::hint::Setting;

use vfs::{FileType, Timestamp};

use super::names::{check_spelling, in_other_case};
use crate::{host, replace};

/// True if symbolic links to directories have a separate type.
pub(super) const LINKS_HAVE_TYPES: bool = cfg!(windows);

/// Warning if owners are not restored.
pub(super) const OWNERS_ARE_LOST: &str = if cfg!(windows) {
    "owners and permissions are not restored, because Windows has different ones; a file without write \
     permission becomes read-only"
} else {
    "owners are not restored, because this is supported only on Linux; set-user-id and \
     set-group-id bits are dropped"
};

/// Tree on the host with its current directory.
pub(super) struct HostTree {
    root: PathBuf,
    /// Path of the current directory below the root.
    path: Vec<u8>,
    /// Lengths of the paths of the directories down to the current one.
    levels: Vec<usize>,
    /// Host path of the current directory.
    current: PathBuf,
    /// True if existing files are replaced.
    replace: bool,
}

impl HostTree {
    /// Opens or creates the destination directory.
    pub(super) fn open(path: &Path, force: bool) -> io::Result<Self> {
        match std::fs::create_dir(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        if !force && std::fs::read_dir(path)?.next().is_some() {
            let problem =
                format!("the directory is not empty; use {} to extract into it", Setting::FORCE);
            return Err(io::Error::other(problem));
        }
        // On Windows this returns a verbatim path, which may be long and has no special names.
        let root = path.canonicalize()?;
        let (path, levels, current) = (Vec::new(), Vec::new(), root.clone());
        Ok(Self { root, path, levels, current, replace: force })
    }

    /// Returns a handle to the current directory, for its attributes or for files in it.
    pub(super) fn handle(&self) -> io::Result<HostDirectory> {
        Ok(HostDirectory(self.current.clone()))
    }

    /// Returns the path of the current directory, relative to the top.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    fn at(&self, name: &[u8]) -> io::Result<PathBuf> {
        Ok(self.current.join(host::path(name)?))
    }

    /// Creates a directory and enters it.
    pub(super) fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        let path = self.at(name)?;
        let made = std::fs::create_dir(&path);
        if made.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists) {
            self.check_spelling(name)?;
        }
        match made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.replace => {
                if !std::fs::symlink_metadata(&path)?.is_dir() {
                    self.make_way(&path)?;
                    std::fs::create_dir(&path)?;
                }
            }
            made => made?,
        }
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.levels.push(self.path.len());
        self.current = path;
        Ok(())
    }

    /// Does nothing, because the parent is accessible by path.
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "versions for other hosts use self and can fail"
    )]
    pub(super) fn hold_parent(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns to the parent directory.
    #[expect(clippy::unnecessary_wraps, reason = "versions for other hosts can fail")]
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.levels.pop();
        self.path.truncate(self.levels.last().copied().unwrap_or(0));
        self.current.pop();
        Ok(())
    }

    /// Creates a file. Replaces an existing file if allowed.
    fn replace<T>(&self, name: &[u8], make: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
        let path = self.at(name)?;
        match make(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.check_spelling(name)?;
                if self.replace {
                    self.make_way(&path)?;
                }
                make(&path)
            }
            made => made,
        }
    }

    /// Rejects replacing a file whose name differs only in case. A file with the name exists.
    fn check_spelling(&self, name: &[u8]) -> io::Result<()> {
        let Some(other) = in_other_case(name) else { return Ok(()) };
        let Ok(other) = self.at(&other) else { return Ok(()) };
        if std::fs::symlink_metadata(other).is_err() {
            return Ok(());
        }
        let present = std::fs::read_dir(&self.current)?;
        let name_of = |entry: io::Result<std::fs::DirEntry>| {
            Ok(Cow::Owned(entry?.file_name().into_encoded_bytes()))
        };
        check_spelling(name, present.map(name_of))
    }

    /// Removes a file, unless it is an image in use.
    fn make_way(&self, path: &Path) -> io::Result<()> {
        let found = match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        if found.is_dir() {
            return Err(io::Error::other("a directory with this name exists"));
        }
        if found.is_file() {
            allow_removal(path, &found)?;
            replace::refuse_used(path)?;
        }
        remove(path, &found)
    }

    /// Creates a regular file in the current directory.
    pub(super) fn file(&self, name: &[u8]) -> io::Result<File> {
        self.replace(name, |path| {
            host::private(OpenOptions::new().write(true).create_new(true)).open(path)
        })
    }

    /// Creates a symbolic link in the current directory. `is_directory` is the type of its target.
    pub(super) fn symlink(&self, name: &[u8], target: &[u8], is_directory: bool) -> io::Result<()> {
        self.replace(name, |path| symlink(target, path, is_directory))?;
        let path = self.at(name)?;
        // Some Windows-compatible systems report success without creating the link.
        match std::fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "the host did not create the link"))
            }
            made => made.map(drop),
        }
    }

    /// Fails, because this host has no special files.
    #[expect(clippy::unused_self, reason = "versions for other hosts use self")]
    pub(super) fn special(&self, _: &[u8], _: FileType, _: vfs::DeviceNumber) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this host does not support such files"))
    }

    /// Creates a hard link in the current directory to the file at a path below the top.
    pub(super) fn link(&self, existing: &[u8], name: &[u8]) -> io::Result<()> {
        let mut from = self.root.clone();
        for name in existing.split(|&byte| byte == b'/') {
            from.push(host::path(name)?);
        }
        self.replace(name, |path| std::fs::hard_link(&from, path))
    }
}

#[cfg(windows)]
fn symlink(target: &[u8], path: &Path, is_directory: bool) -> io::Result<()> {
    use std::os::windows::fs::{symlink_dir, symlink_file};
    // On Windows, links with slashes in the target do not work.
    let target: PathBuf = target.split(|&b| b == b'/').try_fold(
        if target.starts_with(b"/") { PathBuf::from("\\") } else { PathBuf::new() },
        |path, name| Ok::<_, io::Error>(path.join(host::path(name)?)),
    )?;
    if is_directory { symlink_dir(target, path) } else { symlink_file(target, path) }
}

#[cfg(unix)]
fn symlink(target: &[u8], path: &Path, _: bool) -> io::Result<()> {
    std::os::unix::fs::symlink(host::path(target)?, path)
}

/// Clears the read-only attribute, because Windows does not remove read-only files.
fn allow_removal(path: &Path, found: &Metadata) -> io::Result<()> {
    let mut permissions = found.permissions();
    if cfg!(windows) && permissions.readonly() {
        #[expect(clippy::permissions_set_readonly_false, reason = "the file is removed next")]
        permissions.set_readonly(false);
        std::fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

/// Removes a file or link. Windows removes directory links with another call.
fn remove(path: &Path, found: &Metadata) -> io::Result<()> {
    let removed = std::fs::remove_file(path);
    if removed.is_err() && found.is_symlink() { std::fs::remove_dir(path) } else { removed }
}

/// Directory of the tree.
pub(super) struct HostDirectory(PathBuf);

/// New file whose attributes are to be set.
#[derive(Clone, Copy)]
pub(super) enum CreatedFile<'a> {
    File(&'a File),
    Directory(&'a Path),
    /// By directory and name; links are not followed.
    #[cfg_attr(windows, expect(dead_code, reason = "attributes of links are not set on Windows"))]
    Named(&'a Path, &'a [u8]),
}

impl<'a> CreatedFile<'a> {
    /// Wraps an open file.
    pub(super) fn file(file: &'a File) -> Self {
        Self::File(file)
    }

    /// Wraps a directory.
    pub(super) fn directory(directory: &'a HostDirectory) -> Self {
        Self::Directory(&directory.0)
    }

    /// Wraps a file in a directory.
    pub(super) fn named(directory: &'a HostDirectory, name: &'a [u8]) -> Self {
        Self::Named(&directory.0, name)
    }

    /// Sets user and group.
    #[cfg(unix)]
    pub(super) fn set_owner(self, uid: u32, gid: u32) -> io::Result<()> {
        use std::os::unix::fs::{chown, fchown, lchown};
        let (uid, gid) = (Some(uid), Some(gid));
        match self {
            Self::File(file) => fchown(file, uid, gid),
            Self::Directory(path) => chown(path, uid, gid),
            Self::Named(directory, name) => lchown(directory.join(host::path(name)?), uid, gid),
        }
    }

    /// Fails, because this host has no Unix users and groups.
    #[cfg(not(unix))]
    pub(super) fn set_owner(self, _: u32, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the permission bits. Not valid for symbolic links, which have none.
    #[cfg(unix)]
    pub(super) fn set_permissions(self, permissions: u16) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let permissions = std::fs::Permissions::from_mode(permissions.into());
        match self {
            Self::File(file) => file.set_permissions(permissions),
            Self::Directory(path) => std::fs::set_permissions(path, permissions),
            Self::Named(directory, name) => {
                std::fs::set_permissions(directory.join(host::path(name)?), permissions)
            }
        }
    }

    /// Marks a file without write permissions as read-only. Other permissions do not exist here.
    #[cfg(not(unix))]
    pub(super) fn set_permissions(self, permissions: u16) -> io::Result<()> {
        /// Write permissions of all classes.
        const WRITE: u16 = 0o222;
        let Self::File(file) = self else { return Ok(()) };
        let mut found = file.metadata()?.permissions();
        if permissions & WRITE == 0 {
            found.set_readonly(true);
            file.set_permissions(found)?;
        }
        Ok(())
    }

    /// Fails, because extended attributes are not supported here.
    pub(super) fn set_xattr(self, _: &[u8], _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this host does not support them"))
    }

    /// Sets access and modification times, except those of links and special files.
    pub(super) fn set_times(self, atime: Timestamp, mtime: Timestamp) -> io::Result<()> {
        let times =
            FileTimes::new().set_accessed(system_time(atime)?).set_modified(system_time(mtime)?);
        match self {
            Self::File(file) => file.set_times(times),
            Self::Directory(path) => open_directory(path)?.set_times(times),
            Self::Named(..) => Ok(()),
        }
    }
}

#[cfg(windows)]
fn open_directory(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    /// `FILE_FLAG_BACKUP_SEMANTICS`, which is required to open directories.
    const DIRECTORIES_TOO: u32 = 0x0200_0000;
    OpenOptions::new().write(true).custom_flags(DIRECTORIES_TOO).open(path)
}

#[cfg(unix)]
fn open_directory(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Converts a time for the host. Windows times start in 1601.
fn system_time(time: Timestamp) -> io::Result<SystemTime> {
    let distance = Duration::from_secs(time.sec.unsigned_abs());
    let second = if time.sec < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    };
    // Larger values occur in damaged images.
    let part = Duration::from_nanos(time.nsec.min(999_999_999).into());
    let time = second.and_then(|second| second.checked_add(part));
    time.ok_or_else(|| {
        io::Error::new(io::ErrorKind::Unsupported, "the time is out of range on this host")
    })
}

/// Returns the user and group of new files, if known.
pub(super) fn user() -> Option<(u32, u32)> {
    None
}

/// Returns whether the host does not permit or support the operation, as opposed to a failure.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

/// Returns whether symbolic links are unsupported or not permitted for this user.
pub(super) fn is_refusal_of_links(error: &io::Error) -> bool {
    /// `ERROR_PRIVILEGE_NOT_HELD`: Windows permits links to some users only.
    const PRIVILEGE_NOT_HELD: i32 = 1314;
    is_refusal(error) || cfg!(windows) && error.raw_os_error() == Some(PRIVILEGE_NOT_HELD)
}

/// Returns false, because extended attributes are not supported here.
pub(super) fn is_too_large(_: &io::Error) -> bool {
    false
}

/// Returns the default umask.
pub(super) fn umask() -> u16 {
    0o022
}
