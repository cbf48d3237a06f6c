//! Reading the files of a batch: attributes, link targets, holes, extended attributes.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, accessat, fstat, major, minor, openat,
    readlinkat, seek, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::host::{Root, file_id, mtime, state};
use super::listing::Hint;
use super::os::{self, PATH_LEN_MAX};
use super::unsized_files::Sizes;
use super::walk::{Batch, OpenDirectory, join};
use super::xattr::XattrReader;
use crate::directory::READ_ATTRIBUTES;
use crate::directory::file::HostFile;
use crate::directory::found::Scanned;
use crate::{Content, DataRun, Entry, EntryKind, Metadata, SourceChange, SourceError, Time};

/// Unit of `st_blocks` in bytes, the same for all file systems.
const STAT_BLOCK_BYTES: u64 = 512;

/// The entries of a batch in order, and the error that ended it, if any.
#[derive(Debug, Default)]
pub(super) struct ScannedBatch {
    /// `None` for an excluded file.
    pub(super) entries: Vec<Option<Scanned>>,
    pub(super) error: Option<SourceError>,
}

/// Reads files of a source. Each thread has its own.
pub(super) struct Scanner {
    root: Arc<Root>,
    xattrs: XattrReader,
    /// Host path of the current directory with a final slash, then the name of a file, then a NUL.
    host_path: Vec<u8>,
    /// True if permissions of files are not enforced for this process.
    is_superuser: bool,
    sizes: Sizes,
}

impl Scanner {
    pub(super) fn new(root: Arc<Root>) -> Self {
        let is_superuser = geteuid().is_root();
        Self {
            root,
            xattrs: XattrReader::new(),
            host_path: Vec::new(),
            is_superuser,
            sizes: Sizes::default(),
        }
    }

    /// Reads the root directory.
    pub(super) fn scan_root(&mut self) -> Result<Scanned, SourceError> {
        let path = self.root.path.clone();
        let stat = fstat(&self.root.fd).map_err(|e| SourceError::io(READ_ATTRIBUTES, &path, e))?;
        let mut name = path.as_os_str().as_bytes().to_vec();
        name.push(0);
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        let xattrs = self.xattrs.read(name, || path.clone())?;
        let kind = EntryKind::Directory;
        let metadata = metadata(&stat);
        let entry = Entry { path: Vec::new(), kind, metadata, xattrs, inode: None };
        Ok(Scanned { entry, id: file_id(&stat), links: stat.st_nlink as u64 })
    }

    /// Reads the files of a batch, up to the first error.
    pub(super) fn scan(&mut self, batch: Batch) -> ScannedBatch {
        let count = batch.runs.iter().map(|run| run.names.len()).sum();
        let mut scanned = ScannedBatch { entries: Vec::with_capacity(count), error: None };
        for run in &batch.runs {
            self.enter(&run.node);
            for index in run.names.clone() {
                match self.scan_file(&run.node, index) {
                    Ok(entry) => scanned.entries.push(entry),
                    Err(error) => {
                        scanned.error = Some(error);
                        return scanned;
                    }
                }
            }
        }
        scanned.error = batch.error;
        scanned
    }

    /// Sets the directory's host path.
    fn enter(&mut self, node: &OpenDirectory) {
        self.host_path.clear();
        let root = self.root.path.as_os_str().as_bytes();
        let is_short = root.len() + node.path.len() + 2 + 256 < PATH_LEN_MAX;
        // Too long for one system call, so the open directory's short path is used if the host has one.
        let short = if is_short { None } else { os::short_name(node.fd.as_fd()) };
        if let Some(name) = short {
            self.host_path.extend_from_slice(name.as_bytes());
            self.host_path.push(b'/');
        } else {
            self.host_path.extend_from_slice(root);
            if !root.ends_with(b"/") {
                self.host_path.push(b'/');
            }
            if !node.path.is_empty() {
                self.host_path.extend_from_slice(&node.path);
                self.host_path.push(b'/');
            }
        }
    }

    fn scan_file(
        &mut self,
        node: &OpenDirectory,
        index: usize,
    ) -> Result<Option<Scanned>, SourceError> {
        let name = node.listing.c_name(index);
        let path = join(&node.path, name.to_bytes());
        let root = &self.root;
        let stat = statat(&node.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| SourceError::io(READ_ATTRIBUTES, &root.shown_path(&path), e))?;
        let id = file_id(&stat);
        // The excluded file may be the image that is being written, which changes constantly, so nothing else of it is
        // read.
        if root.exclude.contains(&id) {
            return Ok(None);
        }
        let kind = self.kind(node, index, &path, &stat)?;
        let xattrs = {
            let directory_len = self.host_path.len();
            self.host_path.extend_from_slice(name.to_bytes_with_nul());
            let host_name = CStr::from_bytes_until_nul(&self.host_path).unwrap_or_default();
            // The user's path, built only for an error.
            let shown = || self.root.shown_path(&path);
            let xattrs = self.xattrs.read(host_name, shown);
            self.host_path.truncate(directory_len);
            xattrs?
        };
        let entry = Entry { path, kind, metadata: metadata(&stat), xattrs, inode: None };
        Ok(Some(Scanned { entry, id, links: stat.st_nlink as u64 }))
    }

    fn kind(
        &self,
        node: &OpenDirectory,
        index: usize,
        path: &[u8],
        stat: &Stat,
    ) -> Result<EntryKind, SourceError> {
        let name = node.listing.c_name(index);
        let io = |operation, e: Errno| SourceError::io(operation, &self.root.shown_path(path), e);
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let is_directory = file_type == FileType::Directory;
        // The walk has already decided whether to enter it.
        let hint = node.listing.hint(index);
        if hint != Hint::Unknown && is_directory != (hint == Hint::Directory) {
            let path = self.root.shown_path(path);
            return Err(SourceError::Changed { path, change: SourceChange::Type });
        }
        let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
        Ok(match file_type {
            FileType::Directory => EntryKind::Directory,
            FileType::RegularFile => EntryKind::File(self.content(node, name, path, stat)?),
            FileType::Symlink => {
                let target =
                    readlinkat(&node.fd, name, Vec::new()).map_err(|e| io("read the link", e))?;
                EntryKind::Symlink(target.into_bytes())
            }
            FileType::CharacterDevice => EntryKind::CharDevice { major, minor },
            FileType::BlockDevice => EntryKind::BlockDevice { major, minor },
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            FileType::Unknown => return Err(io("find the type of", Errno::INVAL)),
        })
    }

    fn content(
        &self,
        node: &OpenDirectory,
        name: &CStr,
        path: &[u8],
        stat: &Stat,
    ) -> Result<Content, SourceError> {
        let size = stat.st_size as u64;
        if size == 0 && self.sizes.are_true(&node.fd, name, stat) {
            return Ok(Content::hole(0));
        }
        let host_path = || self.root.shown_path(path);
        self.check_readable(&node.fd.as_fd(), name, stat)
            .map_err(|e| SourceError::io("open", &host_path(), e))?;
        let host = Box::new(HostFile::new(&self.root, path, state(stat)));
        if size == 0 {
            return self.root.unsized_files.read(&host);
        }
        let mut runs = None;
        if (stat.st_blocks as u64).saturating_mul(STAT_BLOCK_BYTES) < size {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let fd = openat(&node.fd, name, flags, Mode::empty())
                .map_err(|e| SourceError::io("open", &host_path(), e))?;
            let file = File::from(fd);
            host.check(&file)?;
            runs = data_runs(file.as_fd(), size)
                .map_err(|e| SourceError::io("find the holes of", &host_path(), e))?;
        }
        Ok(Content::host(size, runs, host))
    }

    /// Checks now, in the order of the stream, that a file will be readable later.
    fn check_readable(&self, dir: &BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Result<(), Errno> {
        if self.is_superuser || stat.st_mode & 0o444 == 0o444 {
            return Ok(());
        }
        accessat(dir, name, Access::READ_OK, AtFlags::EACCESS)
    }
}

/// Returns the data ranges of an open file, or `None` if it has no holes or the file system does not report them.
pub(super) fn data_runs(fd: BorrowedFd<'_>, size: u64) -> Result<Option<Vec<DataRun>>, Errno> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(e),
        };
        let end = seek(fd, SeekFrom::Hole(start))?.min(size);
        if start >= size || end <= start {
            break;
        }
        runs.push(DataRun { offset: start, len: end - start });
        at = end;
    }
    let is_whole = runs.first().is_some_and(|run| run.offset == 0 && run.len == size);
    Ok((!is_whole).then_some(runs))
}

pub(super) fn metadata(stat: &Stat) -> Metadata {
    let time = |sec, nsec| Time { sec, nsec };
    Metadata {
        permissions: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: mtime(stat),
        atime: Some(time(stat.st_atime, stat.st_atime_nsec as u32)),
        ctime: Some(time(stat.st_ctime, stat.st_ctime_nsec as u32)),
    }
}
