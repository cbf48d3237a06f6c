//! Single files of the host, for sources that know the names of their files from elsewhere.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Stat, lstat, major, minor, readlinkat, statat};
use rustix::io::Errno;

use super::host::{HostFile, Root, file_id, mtime};
use super::scan::{data_runs, metadata};
use crate::directory::found::Found;
use crate::{Content, EntryKind, SourceError};

/// A directory of the host in which files are looked for by their paths.
#[derive(Clone, Debug)]
pub(crate) struct HostTree(Arc<Root>);

impl HostTree {
    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        Ok(Self(Arc::new(Root::open(path, Vec::new())?)))
    }

    /// The file at a path, in the form of `Entry::path`, or none. Symbolic links on the way are followed;
    /// the one at its end is the file. `wants_contents` opens a regular file to find its holes.
    pub(crate) fn find(
        &self,
        path: &[u8],
        wants_contents: bool,
    ) -> Result<Option<Found>, SourceError> {
        let operation = "read the attributes of";
        let io = |operation, e: Errno| SourceError::io(operation, &self.0.host_path(path), e);
        let stat = if path.is_empty() {
            lstat(&self.0.path)
        } else {
            statat(&self.0.fd, path, AtFlags::SYMLINK_NOFOLLOW)
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(io(operation, e)),
        };
        let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => EntryKind::Directory,
            FileType::RegularFile if wants_contents => EntryKind::File(self.content(path, &stat)?),
            FileType::RegularFile => EntryKind::File(Content::hole(stat.st_size as u64)),
            FileType::Symlink => {
                let target = readlinkat(&self.0.fd, path, Vec::new());
                EntryKind::Symlink(target.map_err(|e| io("read the link", e))?.into_bytes())
            }
            FileType::CharacterDevice => EntryKind::CharDevice { major, minor },
            FileType::BlockDevice => EntryKind::BlockDevice { major, minor },
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            FileType::Unknown => return Err(io("find the type of", Errno::INVAL)),
        };
        let (metadata, id) = (metadata(&stat), file_id(&stat));
        Ok(Some(Found { kind, metadata, id, links: stat.st_nlink as u64 }))
    }

    fn content(&self, path: &[u8], stat: &Stat) -> Result<Content, SourceError> {
        let size = stat.st_size as u64;
        let (id, mtime) = (file_id(stat), mtime(stat));
        let host = HostFile { root: self.0.clone(), path: path.into(), id, size, mtime };
        if size == 0 {
            return Ok(Content::hole(0));
        }
        let file: File = host.open()?;
        let runs = data_runs(file.as_fd(), size)
            .map_err(|e| SourceError::io("find the holes of", &host.host_path(), e))?;
        Ok(Content::host(size, runs, Box::new(host)))
    }
}
