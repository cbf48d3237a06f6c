//! Attributes of a file, as far as the host reports them.

use std::fs::{File, FileType};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::directory::file::FileStamp;
use crate::{FileId, Metadata, Time};

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostFileType {
    Directory,
    File,
    Symlink,
    /// An unsupported type.
    Other,
}

/// Attributes of a file that are known without reading it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) kind: HostFileType,
    pub(super) state: FileStamp,
    pub(super) links: u64,
    atime: Time,
    is_readonly: bool,
}

impl Facts {
    /// Returns the attributes of the file at a path. Does not follow a symbolic link.
    pub(super) fn of_path(path: &Path) -> io::Result<Self> {
        Self::of_file(&host::open(path)?)
    }

    /// Returns the attributes of an open file.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        let (metadata, (id, links)) = (file.metadata()?, host::identity(file)?);
        Ok(Self {
            kind: HostFileType::of(metadata.file_type()),
            state: FileStamp { id, size: metadata.len(), mtime: time(metadata.modified()?) },
            links,
            atime: time(metadata.accessed()?),
            is_readonly: metadata.permissions().readonly(),
        })
    }

    /// Returns the identity of the file.
    pub(super) fn id(&self) -> FileId {
        self.state.id
    }

    /// Returns owner, permissions and times of the entry. The owner is root, and only the write permission is known.
    pub(super) fn metadata(&self) -> Metadata {
        let permissions = match self.kind {
            HostFileType::Directory => 0o755,
            HostFileType::Symlink => 0o777,
            // The read-only flag of a directory has another meaning.
            HostFileType::File | HostFileType::Other if self.is_readonly => 0o444,
            HostFileType::File | HostFileType::Other => 0o644,
        };
        let (mtime, atime) = (self.state.mtime, Some(self.atime));
        Metadata { permissions, uid: 0, gid: 0, mtime, atime, ctime: None }
    }
}

impl HostFileType {
    fn of(file_type: FileType) -> Self {
        match () {
            () if file_type.is_symlink() => Self::Symlink,
            () if file_type.is_dir() => Self::Directory,
            () if file_type.is_file() => Self::File,
            () => Self::Other,
        }
    }
}

fn time(of: SystemTime) -> Time {
    let (sign, since) = match of.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (1, since),
        Err(before) => (-1, before.duration()),
    };
    let nanos = sign * since.as_nanos().cast_signed();
    let (sec, nsec) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    Time { sec: sec as i64, nsec: nsec as u32 }
}

#[cfg(windows)]
mod host {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::windows::fs::OpenOptionsExt;
    use std::path::Path;

    use crate::FileId;

    /// `FILE_READ_ATTRIBUTES`: sufficient to query a file, even without permission to read it.
    const READ_ATTRIBUTES: u32 = 0x80;
    /// `FILE_FLAG_BACKUP_SEMANTICS`, needed to open directories, and `FILE_FLAG_OPEN_REPARSE_POINT`, which opens links
    /// themselves.
    const AS_IT_IS: u32 = 0x0200_0000 | 0x0020_0000;

    pub(super) fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().access_mode(READ_ATTRIBUTES).custom_flags(AS_IT_IS).open(path)
    }

    pub(super) fn identity(file: &File) -> io::Result<(FileId, u64)> {
        let found = winapi_util::file::information(file)?;
        let id = FileId { dev: found.volume_serial_number(), ino: found.file_index() };
        Ok((id, found.number_of_links()))
    }
}

#[cfg(not(windows))]
mod host {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    use crate::FileId;

    pub(super) fn open(_: &Path) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn identity(_: &File) -> io::Result<(FileId, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_count_from_1970_also_before_it() {
        let (epoch, unit) = (SystemTime::UNIX_EPOCH, Duration::from_nanos(100));
        assert_eq!(time(epoch), Time { sec: 0, nsec: 0 });
        assert_eq!(time(epoch - unit), Time { sec: -1, nsec: 999_999_900 });
        let later = epoch + Duration::from_secs(1_600_000_000) + unit * 17;
        assert_eq!(time(later), Time { sec: 1_600_000_000, nsec: 1700 });
    }
}
