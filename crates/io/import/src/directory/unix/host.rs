//! The root of a directory source, and files below it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use super::os::{PATH_LEN_MAX, SEARCH, device};
use super::unsized_files::UnsizedFiles;
use crate::directory::file::FileStamp;
use crate::host::as_path;
use crate::{FileId, SourceError, Time};

/// The directory of a source.
#[derive(Debug)]
pub(in crate::directory) struct Root {
    pub(super) fd: OwnedFd,
    /// Absolute and without symbolic links, so that it stays valid if the working directory changes.
    pub(super) path: PathBuf,
    /// Excluded files and directories.
    pub(super) exclude: Vec<FileId>,
    /// Number of names in it, once it has been listed.
    pub(super) names: AtomicU64,
    /// Contents of files without a reported size.
    pub(super) unsized_files: UnsizedFiles,
}

impl Root {
    pub(in crate::directory) fn open(
        path: &Path,
        exclude: Vec<FileId>,
    ) -> Result<Self, SourceError> {
        let resolved = std::fs::canonicalize(path).map_err(|e| SourceError::io("open", path, e))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, &resolved, flags, Mode::empty())
            .map_err(|e| SourceError::io("open directory", path, e))?;
        Ok(Self {
            fd,
            path: resolved,
            exclude,
            names: AtomicU64::new(0),
            unsized_files: UnsizedFiles::default(),
        })
    }

    /// Returns the host path of a file for messages.
    pub(in crate::directory) fn shown_path(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.path.clone() } else { self.path.join(as_path(path)) }
    }

    /// Opens a file with a path of any length. Does not follow a symbolic link at its end, and does not block on a
    /// pipe.
    pub(in crate::directory) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut at: Option<OwnedFd> = None;
        let mut rest = path;
        while rest.len() >= PATH_LEN_MAX {
            let cut = rest[..PATH_LEN_MAX - 1].iter().rposition(|&b| b == b'/');
            let (head, tail) = rest.split_at(cut.ok_or(Errno::NAMETOOLONG)?);
            let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(fd_or(&at, &self.fd), head, flags, Mode::empty())?;
            at = Some(next);
            rest = &tail[1..];
        }
        Ok(openat(fd_or(&at, &self.fd), rest, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

fn fd_or<'a>(fd: &'a Option<OwnedFd>, root: &'a OwnedFd) -> BorrowedFd<'a> {
    fd.as_ref().unwrap_or(root).as_fd()
}

/// Returns the state that detects changes of an open file.
pub(in crate::directory) fn state_of(file: &File) -> io::Result<FileStamp> {
    Ok(state(&fstat(file)?))
}

/// Returns the same state from a `stat`.
pub(super) fn state(stat: &Stat) -> FileStamp {
    FileStamp { id: file_id(stat), size: stat.st_size as u64, mtime: mtime(stat) }
}

/// Returns the identity of a file from a `stat`.
pub(super) fn file_id(stat: &Stat) -> FileId {
    FileId { dev: device(stat), ino: stat.st_ino }
}

/// Returns the modification time.
pub(super) fn mtime(stat: &Stat) -> Time {
    Time { sec: stat.st_mtime, nsec: stat.st_mtime_nsec as u32 }
}
