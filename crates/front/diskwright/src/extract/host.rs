//! Creates a file tree on Linux, safe against malicious names and links of an image.
//!
//! Every system call uses an open directory and one name without `/` that is neither `.` nor `..` (checked by the
//! walk), and never follows a symbolic link. At most [`OPEN_MAX`] directories are open, whatever the depth. Those
//! further up are opened again through `..`, and must then have the same identity as before.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use vfs::hint::Setting;

use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use vfs::FileType;

use super::names::{check_spelling, in_other_case};
use crate::claim::{self, LinkTreatment};
use crate::lock::LoopFiles;

/// Maximum number of open directories on the current path.
const OPEN_MAX: usize = 64;

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
const NEW_FILE: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::WRONLY);

/// True if symbolic links to directories have a separate type.
pub(super) const LINKS_HAVE_TYPES: bool = false;

/// Warning if owners are not restored.
pub(super) const OWNERS_ARE_LOST: &str = "owners are not restored, because this requires root; \
                                          set-user-id and set-group-id bits are dropped";

/// Tree on the host with its current directory.
pub(super) struct HostTree {
    root: OwnedFd,
    /// Path of the current directory below the root.
    path: Vec<u8>,
    /// Directories from the root, which is excluded, to the current one.
    levels: Vec<Level>,
    /// Open descriptors of the last directories; empty only if `levels` is.
    open: VecDeque<OwnedFd>,
    /// True if existing files are replaced.
    replace: bool,
    /// Files attached to loop devices, read when the first file is to be replaced.
    loops: OnceCell<LoopFiles>,
}

/// Directory on the current path.
struct Level {
    id: Id,
    /// Length of the directory's path.
    path_len: usize,
}

/// Device and inode number of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Id(u64, u64);

impl Id {
    fn of(dir: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(dir)?;
        Ok(Self(stat.st_dev, stat.st_ino))
    }
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
        // Links are followed here, because the user chose the path.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let (path, levels, open) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Self { root, path, levels, open, replace: force, loops: OnceCell::new() })
    }

    /// Returns the current directory.
    fn current(&self) -> BorrowedFd<'_> {
        self.open.back().unwrap_or(&self.root).as_fd()
    }

    /// Returns a handle to the current directory, for its attributes or for files in it.
    pub(super) fn handle(&self) -> io::Result<HostDirectory> {
        self.current().try_clone_to_owned().map(HostDirectory)
    }

    /// Returns the path of the current directory, relative to the top.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Creates a directory with access for its owner only, and enters it.
    pub(super) fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        let dir = self.current();
        let made = rustix::fs::mkdirat(dir, name, Mode::RWXU);
        if made == Err(Errno::EXIST) {
            self.check_spelling(name)?;
        }
        match made {
            Err(Errno::EXIST) if self.replace => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if HostType::from_raw_mode(stat.st_mode) != HostType::Directory {
                    self.make_way(name)?;
                    rustix::fs::mkdirat(dir, name, Mode::RWXU)?;
                }
            }
            made => made?,
        }
        let entered = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())?;
        let id = Id::of(&entered)?;
        self.open.push_back(entered);
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.levels.push(Level { id, path_len: self.path.len() });
        if self.open.len() > OPEN_MAX {
            self.open.pop_front();
        }
        Ok(())
    }

    /// Opens the parent of the current directory. Must be called before the current directory gets permissions that may
    /// deny the access through `..`.
    pub(super) fn hold_parent(&mut self) -> io::Result<()> {
        let (1, Some(above)) = (self.open.len(), self.levels.len().checked_sub(2)) else {
            return Ok(());
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let parent = rustix::fs::openat(self.current(), c"..", flags, Mode::empty())?;
        if Id::of(&parent)? != self.levels[above].id {
            return Err(io::Error::other("a directory was moved during extraction"));
        }
        self.open.push_front(parent);
        Ok(())
    }

    /// Returns to the parent directory.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.hold_parent()?;
        self.open.pop_back();
        self.levels.pop();
        self.path.truncate(self.levels.last().map_or(0, |level| level.path_len));
        Ok(())
    }

    /// Opens the directory at a path below the top, step by step from the nearest open directory.
    fn open_below(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let first_open = self.levels.len() - self.open.len();
        let mut open = self.levels[first_open..].iter().zip(&self.open).rev();
        let nearest = open.find_map(|(level, dir)| {
            let rest = path.strip_prefix(&self.path[..level.path_len])?;
            (rest.is_empty() || rest.starts_with(b"/")).then_some((dir, rest))
        });
        let (start, rest) = nearest.unwrap_or((&self.root, path));
        let mut dir = rustix::io::fcntl_dupfd_cloexec(start, 0)?;
        for name in rest.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            dir = rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?;
        }
        Ok(dir)
    }

    /// Creates a file. Replaces an existing file if allowed.
    fn replace<T>(&self, name: &[u8], make: impl Fn() -> rustix::io::Result<T>) -> io::Result<T> {
        match make() {
            Err(Errno::EXIST) => {
                self.check_spelling(name)?;
                if self.replace {
                    self.make_way(name)?;
                }
                Ok(make()?)
            }
            made => Ok(made?),
        }
    }

    /// Rejects replacing a file whose name differs only in case. A file with the name exists.
    fn check_spelling(&self, name: &[u8]) -> io::Result<()> {
        let dir = self.current();
        let Some(other) = in_other_case(name) else { return Ok(()) };
        if rustix::fs::statat(dir, &other[..], AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Ok(());
        }
        let present = rustix::fs::Dir::read_from(dir)?;
        let name_of = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
            Ok(Cow::Owned(entry?.file_name().to_bytes().to_vec()))
        };
        check_spelling(name, present.map(name_of))
    }

    /// Removes a file, unless it is an image in use.
    fn make_way(&self, name: &[u8]) -> io::Result<()> {
        // Hold the lock until the name is removed: a program waiting for the lock looks up the name afterwards.
        let _old = claim::claim(self.current(), name, LinkTreatment::Keep, &self.loops)?;
        match rustix::fs::unlinkat(self.current(), name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR) => Err(io::Error::other("a directory with this name exists")),
            other => Ok(other?),
        }
    }

    /// Creates a regular file in the current directory.
    pub(super) fn file(&self, name: &[u8]) -> io::Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        let file =
            self.replace(name, || rustix::fs::openat(self.current(), name, NEW_FILE, mode))?;
        Ok(file.into())
    }

    /// Creates a symbolic link in the current directory. The type of the target does not matter on Linux.
    pub(super) fn symlink(&self, name: &[u8], target: &[u8], _: bool) -> io::Result<()> {
        self.replace(name, || rustix::fs::symlinkat(target, self.current(), name))
    }

    /// Creates a special file in the current directory.
    pub(super) fn special(
        &self,
        name: &[u8],
        file_type: FileType,
        device: vfs::DeviceNumber,
    ) -> io::Result<()> {
        let file_type = match file_type {
            FileType::CharDevice => HostType::CharacterDevice,
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::Socket => HostType::Socket,
            _ => HostType::Fifo,
        };
        let device = rustix::fs::makedev(device.major, device.minor);
        let mode = Mode::RUSR | Mode::WUSR;
        self.replace(name, || rustix::fs::mknodat(self.current(), name, file_type, mode, device))
    }

    /// Creates a hard link in the current directory to the file at a path below the top.
    pub(super) fn link(&self, existing: &[u8], name: &[u8]) -> io::Result<()> {
        let slash = existing.iter().rposition(|&b| b == b'/');
        let parent = self.open_below(&existing[..slash.unwrap_or(0)])?;
        let existing = &existing[slash.map_or(0, |slash| slash + 1)..];
        self.replace(name, || {
            rustix::fs::linkat(&parent, existing, self.current(), name, AtFlags::empty())
        })
    }
}

/// Open directory of the tree.
pub(super) struct HostDirectory(OwnedFd);

/// New file whose attributes are to be set.
#[derive(Clone, Copy)]
pub(super) enum CreatedFile<'a> {
    /// By descriptor.
    Open(BorrowedFd<'a>),
    /// By directory and name; links are not followed.
    Named(BorrowedFd<'a>, &'a [u8]),
}

impl<'a> CreatedFile<'a> {
    /// Wraps an open file.
    pub(super) fn file(file: &'a File) -> Self {
        Self::Open(file.as_fd())
    }

    /// Wraps an open directory.
    pub(super) fn directory(directory: &'a HostDirectory) -> Self {
        Self::Open(directory.0.as_fd())
    }

    /// Wraps a file in a directory.
    pub(super) fn named(directory: &'a HostDirectory, name: &'a [u8]) -> Self {
        Self::Named(directory.0.as_fd(), name)
    }

    /// Sets user and group. They must not be `u32::MAX`, which the system call interprets as no change.
    pub(super) fn set_owner(self, uid: u32, gid: u32) -> io::Result<()> {
        let uid = Some(rustix::fs::Uid::from_raw(uid));
        let gid = Some(rustix::fs::Gid::from_raw(gid));
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, uid, gid)?,
            Self::Named(dir, name) => {
                rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(())
    }

    /// Sets the permission bits. Not valid for symbolic links, which have none.
    pub(super) fn set_permissions(self, permissions: u16) -> io::Result<()> {
        let mode = Mode::from_raw_mode(permissions.into());
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode)?,
            // The file was just created, so it is not a link.
            Self::Named(dir, name) => rustix::fs::chmodat(dir, name, mode, AtFlags::empty())?,
        }
        Ok(())
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(self, attribute: &[u8], value: &[u8]) -> io::Result<()> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, attribute, value, flags)?,
            Self::Named(dir, name) => {
                // Linux has no such call with directory and name.
                let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
                path.extend_from_slice(name);
                rustix::fs::lsetxattr(path, attribute, value, flags)?;
            }
        }
        Ok(())
    }

    /// Sets access and modification times.
    pub(super) fn set_times(self, atime: vfs::Timestamp, mtime: vfs::Timestamp) -> io::Result<()> {
        let [last_access, last_modification] = [atime, mtime].map(|time| Timespec {
            tv_sec: time.sec,
            // Larger values have special meanings in the system call.
            tv_nsec: time.nsec.min(999_999_999).into(),
        });
        let times = Timestamps { last_access, last_modification };
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, &times)?,
            Self::Named(dir, name) => {
                rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(())
    }
}

/// Returns the user and group of new files. Root can change them.
pub(super) fn user() -> Option<(u32, u32)> {
    Some((rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()))
}

/// Returns whether the host does not permit or support the operation, as opposed to a failure.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [Errno::PERM, Errno::ACCESS, Errno::NOTSUP, Errno::INVAL, Errno::NOSYS].contains(&errno)
    })
}

/// Returns whether the file system does not support symbolic links, which Linux reports as `EPERM`.
pub(super) fn is_refusal_of_links(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::PERM)
}

/// Returns whether the file system cannot store an attribute of this size. ext4 on Linux reports `ENOSPC`. If the file
/// system is really full, the next file fails too.
pub(super) fn is_too_large(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::TOOBIG, Errno::RANGE, Errno::NOSPC].contains(&errno))
}

/// Returns the umask of this process, or the default.
pub(super) fn umask() -> u16 {
    const USUAL: u16 = 0o022;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let said = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    said.and_then(|digits| u16::from_str_radix(digits.trim(), 8).ok()).unwrap_or(USUAL)
}
