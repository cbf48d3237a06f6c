//! A file system in this process.

use std::ops::ControlFlow;

use vfs::{Cookie, FileSystem, FileType, Ino, NewInode, RenameMode, SetAttributes, Timestamp};

use super::{EachListed, Listed, Target};
use crate::error::{Error, Result};

/// Time of all changes, except renames and changes of permissions, which are some seconds later. Always the same, so
/// that runs with the same seed produce the same image.
pub const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };

/// A file system in this process, and the workload's directory in it.
pub struct InProcess<'a> {
    fs: &'a dyn FileSystem,
    top: Ino,
}

impl<'a> InProcess<'a> {
    /// Uses the directory `top` for workloads.
    pub fn new(fs: &'a dyn FileSystem, top: Ino) -> Self {
        Self { fs, top }
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &'a dyn FileSystem {
        self.fs
    }
}

fn new_inode(permissions: u16) -> NewInode {
    NewInode { permissions, uid: 0, gid: 0, time: TIME, parent_time: Some(TIME) }
}

fn failed(operation: &'static str) -> impl FnOnce(vfs::Error) -> Error {
    move |source| Error::FileSystem { operation, source }
}

impl Target for InProcess<'_> {
    type Dir = Ino;
    type File = Ino;
    type Listing = (Ino, Cookie);

    fn top(&self) -> Result<Ino> {
        Ok(self.top)
    }

    fn make_dir(&self, dir: &Ino, name: &[u8]) -> Result<()> {
        self.fs.mkdir(*dir, name, &new_inode(0o755)).map(|_| ()).map_err(failed("mkdir"))
    }

    fn open_dir(&self, dir: &Ino, name: &[u8]) -> Result<Ino> {
        self.fs.lookup(*dir, name).map_err(failed("lookup"))
    }

    fn make_file(&self, dir: &Ino, name: &[u8]) -> Result<()> {
        self.fs.create(*dir, name, &new_inode(0o644)).map(|_| ()).map_err(failed("create"))
    }

    fn create(&self, dir: &Ino, name: &[u8], truncate: bool) -> Result<Ino> {
        let ino = match self.fs.create(*dir, name, &new_inode(0o644)) {
            Ok(ino) => ino,
            Err(vfs::Error::Exists) => {
                let ino = self.fs.lookup(*dir, name).map_err(failed("lookup"))?;
                if truncate {
                    self.fs.truncate(ino, 0, None).map_err(failed("truncate"))?;
                }
                ino
            }
            Err(source) => return Err(failed("create")(source)),
        };
        self.fs.open(ino).map_err(failed("open"))?;
        Ok(ino)
    }

    fn open(&self, dir: &Ino, name: &[u8]) -> Result<Ino> {
        let ino = self.fs.lookup(*dir, name).map_err(failed("lookup"))?;
        self.fs.open(ino).map_err(failed("open"))?;
        Ok(ino)
    }

    fn close(&self, file: Ino) -> Result<()> {
        self.fs.close(file).map_err(failed("close"))
    }

    fn set_permissions(&self, dir: &Ino, name: &[u8], permissions: u16) -> Result<()> {
        let ino = self.fs.lookup(*dir, name).map_err(failed("lookup"))?;
        let ctime = Some(Timestamp { sec: TIME.sec + 3, ..TIME });
        let permissions = Some(permissions);
        let change = SetAttributes { permissions, ctime, ..SetAttributes::default() };
        self.fs.set_attributes(ino, &change).map_err(failed("set_attributes"))
    }

    fn permissions(&self, dir: &Ino, name: &[u8]) -> Result<u16> {
        let ino = self.fs.lookup(*dir, name).map_err(failed("lookup"))?;
        let attributes = self.fs.attributes(ino).map_err(failed("attributes"))?;
        Ok(attributes.permissions)
    }

    fn link(&self, dir: &Ino, from: &[u8], to: &[u8]) -> Result<()> {
        let ino = self.fs.lookup(*dir, from).map_err(failed("lookup"))?;
        self.fs.link(ino, *dir, to, Some(TIME)).map_err(failed("link"))
    }

    fn rename(&self, from: (&Ino, &[u8]), to: (&Ino, &[u8])) -> Result<()> {
        let (from, to) = ((*from.0, from.1), (*to.0, to.1));
        // With a constant time, only the name of the file would change.
        let seconds = if from.0 == to.0 { 1 } else { 2 };
        let time = Timestamp { sec: TIME.sec + seconds, ..TIME };
        self.fs.rename(from, to, RenameMode::Replace, Some(time)).map_err(failed("rename"))
    }

    fn unlink(&self, dir: &Ino, name: &[u8]) -> Result<()> {
        self.fs.unlink(*dir, name, Some(TIME)).map_err(failed("unlink"))
    }

    fn remove_dir(&self, dir: &Ino, name: &[u8]) -> Result<()> {
        self.fs.rmdir(*dir, name, Some(TIME)).map_err(failed("rmdir"))
    }

    fn stat(&self, dir: &Ino, name: &[u8]) -> Result<(FileType, u64)> {
        let ino = self.fs.lookup(*dir, name).map_err(failed("lookup"))?;
        let attributes = self.fs.attributes(ino).map_err(failed("attributes"))?;
        Ok((attributes.file_type, attributes.size))
    }

    fn read(&self, file: &Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(*file, offset, buf).map_err(failed("read"))
    }

    fn write(&self, file: &Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.fs.write(*file, offset, data, None).map_err(failed("write"))
    }

    fn truncate(&self, file: &Ino, size: u64) -> Result<()> {
        self.fs.truncate(*file, size, None).map_err(failed("truncate"))
    }

    fn start_listing(&self, dir: &Ino) -> Result<(Ino, Cookie)> {
        Ok((*dir, Cookie::default()))
    }

    fn list_part(
        &self,
        (dir, place): &mut (Ino, Cookie),
        wanted: usize,
        each: &mut EachListed<'_>,
    ) -> Result<bool> {
        let (mut outcome, mut count, from) = (Ok(()), 0, *place);
        let listed = self.fs.readdir(*dir, from, &mut |entry| {
            *place = entry.next;
            if !matches!(entry.name, b"." | b"..") {
                let (name, file_type) = (entry.name, entry.file_type);
                outcome = each(Listed { name, ino: entry.ino.0, file_type });
                count += 1;
            }
            let goes_on = outcome.is_ok() && count < wanted;
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        listed.map_err(failed("readdir"))?;
        outcome.map(|()| count >= wanted)
    }

    fn sync_file(&self, file: &Ino) -> Result<()> {
        self.fs.fsync(*file).map_err(failed("fsync"))
    }

    fn sync(&self) -> Result<()> {
        self.fs.sync().map_err(failed("sync"))
    }
}
