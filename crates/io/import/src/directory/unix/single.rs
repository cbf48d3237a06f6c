//! Single host files, for sources that get the names of their files elsewhere.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Stat, lstat, major, minor, readlinkat, statat};
use rustix::io::Errno;

use super::host::{Root, file_id, state};
use super::scan::{data_runs, metadata};
use super::xattr::XattrReader;
use crate::directory::READ_ATTRIBUTES;
use crate::directory::file::HostFile;
use crate::directory::found::FoundFile;
use crate::{Content, EntryKind, SourceError, Xattr};

/// Returns the file at a path, as [`HostTree::find`](crate::directory::HostTree::find) specifies. `wants_contents`
/// opens a regular file to determine its holes.
pub(in crate::directory) fn find(
    root: &Arc<Root>,
    path: &[u8],
    wants_contents: bool,
) -> Result<Option<FoundFile>, SourceError> {
    let io = |operation, e: Errno| SourceError::io(operation, &root.shown_path(path), e);
    let stat = if path.is_empty() {
        lstat(&root.path)
    } else {
        statat(&root.fd, path, AtFlags::SYMLINK_NOFOLLOW)
    };
    let stat = match stat {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(io(READ_ATTRIBUTES, e)),
    };
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EntryKind::Directory,
        FileType::RegularFile if wants_contents => EntryKind::File(content(root, path, &stat)?),
        FileType::RegularFile => EntryKind::File(Content::hole(stat.st_size as u64)),
        FileType::Symlink => {
            let target = readlinkat(&root.fd, path, Vec::new());
            EntryKind::Symlink(target.map_err(|e| io("read the link", e))?.into_bytes())
        }
        FileType::CharacterDevice => EntryKind::CharDevice { major, minor },
        FileType::BlockDevice => EntryKind::BlockDevice { major, minor },
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::Unknown => return Err(io("find the type of", Errno::INVAL)),
    };
    let (metadata, id) = (metadata(&stat), file_id(&stat));
    Ok(Some(FoundFile { kind, metadata, id, links: stat.st_nlink as u64 }))
}

/// Returns the extended attributes of the file at a path.
pub(in crate::directory) fn xattrs(root: &Root, path: &[u8]) -> Result<Vec<Xattr>, SourceError> {
    let shown = || root.shown_path(path);
    let name = CString::new(shown().into_os_string().into_vec());
    let name =
        name.map_err(|e| SourceError::io(READ_ATTRIBUTES, &shown(), std::io::Error::from(e)))?;
    XattrReader::new().read(&name, shown)
}

fn content(root: &Arc<Root>, path: &[u8], stat: &Stat) -> Result<Content, SourceError> {
    let size = stat.st_size as u64;
    if size == 0 {
        return Ok(Content::hole(0));
    }
    let host = HostFile::new(root, path, state(stat));
    let file: File = host.open()?;
    let runs = data_runs(file.as_fd(), size)
        .map_err(|e| SourceError::io("find the holes of", &host.host_path(), e))?;
    Ok(Content::host(size, runs, Box::new(host)))
}
