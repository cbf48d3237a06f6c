//! The root of a directory source, and files beneath it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use super::os::{PATH_LEN_MAX, SEARCH, device};
use super::unsized_files::UnsizedFiles;
use crate::content::size_changed;
use crate::host::as_path;
use crate::{Change, FileId, SourceError, Time};

/// The directory a source reads.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) fd: OwnedFd,
    /// Absolute and without symbolic links, so that it stays right if the process moves.
    pub(super) path: PathBuf,
    /// Files and directories that are left out.
    pub(super) exclude: Vec<FileId>,
    /// Names in it, as soon as it has been listed.
    pub(super) names: AtomicU64,
    /// Contents of files that do not say how long they are.
    pub(super) unsized_files: UnsizedFiles,
}

impl Root {
    pub(super) fn open(path: &Path, exclude: Vec<FileId>) -> Result<Self, SourceError> {
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

    /// Where a file of the source is on the host.
    pub(super) fn host_path(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.path.clone() } else { self.path.join(as_path(path)) }
    }

    /// Opens a file of the source, whatever the length of its path. Never follows a symbolic link
    /// at its end, and never waits for the other end of a pipe.
    fn open_file(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
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
        openat(fd_or(&at, &self.fd), rest, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

fn fd_or<'a>(fd: &'a Option<OwnedFd>, root: &'a OwnedFd) -> BorrowedFd<'a> {
    fd.as_ref().unwrap_or(root).as_fd()
}

/// A regular file of the source, as it was when it was listed.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    pub(super) root: Arc<Root>,
    pub(super) path: Box<[u8]>,
    pub(super) id: FileId,
    pub(crate) size: u64,
    pub(super) mtime: Time,
}

impl HostFile {
    pub(crate) fn host_path(&self) -> PathBuf {
        self.root.host_path(&self.path)
    }

    /// Opens the file and confirms that it is still the one that was listed.
    pub(crate) fn open(&self) -> Result<File, SourceError> {
        let fd = self
            .root
            .open_file(&self.path)
            .map_err(|e| SourceError::io("open", &self.host_path(), e))?;
        let file = File::from(fd);
        self.check(&file)?;
        Ok(file)
    }

    /// Opens the file whatever has become of it: where sizes are not true, times and numbers need not be
    /// either. It must be a regular file still.
    pub(super) fn open_as_it_is(&self) -> Result<File, SourceError> {
        let io = |e: Errno| SourceError::io("open", &self.host_path(), e);
        let file = File::from(self.root.open_file(&self.path).map_err(io)?);
        let stat = fstat(&file).map_err(io)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SourceError::Changed { path: self.host_path(), change: Change::Type });
        }
        Ok(file)
    }

    /// Confirms that the open file is still in the state that was listed.
    pub(crate) fn check(&self, file: &File) -> Result<(), SourceError> {
        let stat = fstat(file).map_err(|e| SourceError::io("read", &self.host_path(), e))?;
        let same = file_id(&stat) == self.id
            && stat.st_size as u64 == self.size
            && mtime(&stat) == self.mtime;
        if same {
            return Ok(());
        }
        Err(size_changed(&self.host_path(), self.size, stat.st_size as u64))
    }

    /// The error for a file that ended too early.
    pub(crate) fn shrunk(&self, file: &File) -> SourceError {
        let found = fstat(file).map_or(0, |stat| stat.st_size as u64);
        if found == self.size {
            let change = Change::Short { said: found };
            return SourceError::Changed { path: self.host_path(), change };
        }
        size_changed(&self.host_path(), self.size, found)
    }
}

/// What identifies the file `stat` is about.
pub(super) fn file_id(stat: &Stat) -> FileId {
    FileId { dev: device(stat), ino: stat.st_ino }
}

/// Time of the last change of contents.
pub(super) fn mtime(stat: &Stat) -> Time {
    Time { sec: stat.st_mtime, nsec: stat.st_mtime_nsec as u32 }
}
