//! Copies of files.

use dav_server::fs::{FsError, FsResult};
use vfs::path::LastLink;
use vfs::{Attributes, ChangePurpose, FileType, Ino, Result, SetAttributes};

use crate::names;
use crate::volume::Volume;

/// Size of a read, in bytes.
const READ_BYTES: usize = 1 << 20;

impl Volume<'_> {
    /// Copies a file or, with `LastLink::Keep`, a symbolic link. A file of the new name is replaced when the copy is
    /// complete.
    pub(crate) fn copy(&self, from: &[u8], to: &[u8], last: LastLink) -> FsResult<()> {
        let source = self.metadata(from, last)?;
        match source.file_type {
            FileType::Symlink => self.change(|| {
                let target = self.fs().readlink(source.ino)?;
                self.create_symlink(&names::of_path(to)?, &target)
            }),
            FileType::Regular => {
                self.result(self.fs().open(source.ino))?;
                let copied = self.copy_file(&source, to);
                self.close(source.ino);
                copied
            }
            _ => Err(FsError::Forbidden),
        }
    }

    fn copy_file(&self, source: &Attributes, to: &[u8]) -> FsResult<()> {
        let ino = self.begin_upload(to, None)?;
        let copied = self.change(|| self.copy_contents(source, ino));
        let finished = copied.and_then(|()| self.finish_upload(ino, to, false));
        self.close(ino);
        finished.map(drop)
    }

    fn copy_contents(&self, source: &Attributes, to: Ino) -> Result<()> {
        let now = self.served.now();
        let from = source.ino;
        let is_shared = self.fs().can_clone()
            && source.size > 0
            && self.fs().clone_range((from, 0), (to, 0), 0, Some(now)).is_ok();
        if !is_shared {
            self.copy_bytes(source, to)?;
        }
        self.copy_xattrs(from, to)?;
        let change = SetAttributes {
            permissions: Some(source.permissions & 0o777),
            ctime: Some(now),
            purpose: ChangePurpose::Consequence,
            ..SetAttributes::default()
        };
        self.fs().set_attributes(to, &change)
    }

    /// Copies bytes. Zeros at the positions of holes become holes.
    fn copy_bytes(&self, source: &Attributes, to: Ino) -> Result<()> {
        let mut buffer =
            vec![0; READ_BYTES.min(usize::try_from(source.size).unwrap_or(READ_BYTES))];
        let mut offset = 0;
        while offset < source.size {
            let count = self.fs().read(source.ino, offset, &mut buffer)?;
            if count == 0 {
                break;
            }
            if buffer[..count].iter().any(|&byte| byte != 0) {
                self.fs().write(to, offset, &buffer[..count], Some(self.served.now()))?;
            }
            offset += count as u64;
        }
        self.fs().truncate(to, offset, Some(self.served.now()))
    }
}
