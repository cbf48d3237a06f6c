//! A directory of a mounted file system, accessed by system calls.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType as HostType, Mode, OFlags, RawDir};
use vfs::FileType;

use super::{EachListed, Listed, Target};
use crate::error::{Error, Result};

/// Buffer size of a directory listing in bytes, as in glibc's `readdir`.
const LIST_BYTES: usize = 32 << 10;

/// A directory of a mounted file system.
#[derive(Debug)]
pub struct Host {
    top: PathBuf,
}

impl Host {
    /// Uses the existing directory `top` for workloads.
    pub fn new(top: impl Into<PathBuf>) -> Self {
        Self { top: top.into() }
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.top
    }
}

fn failed<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::host(call, error)
}

impl Target for Host {
    type Dir = OwnedFd;
    type File = OwnedFd;
    type Listing = OwnedFd;

    fn top(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.top, flags, Mode::empty())
            .map_err(|error| Error::host(format!("open {}", self.top.display()), error))
    }

    fn make_dir(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)).map_err(failed("mkdir"))
    }

    fn open_dir(&self, dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(failed("open"))
    }

    fn make_file(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(dir, name, HostType::RegularFile, mode, 0).map_err(failed("mknod"))
    }

    fn create(&self, dir: &OwnedFd, name: &[u8], truncate: bool) -> Result<OwnedFd> {
        let mut flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        flags.set(OFlags::TRUNC, truncate);
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::openat(dir, name, flags, mode).map_err(failed("creat"))
    }

    fn open(&self, dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(failed("open"))
    }

    fn close(&self, file: OwnedFd) -> Result<()> {
        // The result of close is irrelevant for workloads.
        drop(file);
        Ok(())
    }

    fn set_permissions(&self, dir: &OwnedFd, name: &[u8], permissions: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(permissions.into());
        rustix::fs::chmodat(dir, name, mode, AtFlags::empty()).map_err(failed("chmod"))
    }

    fn permissions(&self, dir: &OwnedFd, name: &[u8]) -> Result<u16> {
        let stat =
            rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("stat"))?;
        Ok((stat.st_mode & 0o7777) as u16)
    }

    fn link(&self, dir: &OwnedFd, from: &[u8], to: &[u8]) -> Result<()> {
        rustix::fs::linkat(dir, from, dir, to, AtFlags::empty()).map_err(failed("link"))
    }

    fn rename(&self, from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8])) -> Result<()> {
        rustix::fs::renameat(from.0, from.1, to.0, to.1).map_err(failed("rename"))
    }

    fn unlink(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(dir, name, AtFlags::empty()).map_err(failed("unlink"))
    }

    fn remove_dir(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).map_err(failed("rmdir"))
    }

    fn stat(&self, dir: &OwnedFd, name: &[u8]) -> Result<(FileType, u64)> {
        let stat =
            rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("stat"))?;
        let host = HostType::from_raw_mode(stat.st_mode);
        let file_type = type_of(host).ok_or_else(|| unknown_type(&host))?;
        Ok((file_type, stat.st_size as u64))
    }

    fn read(&self, file: &OwnedFd, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(file, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("read")(error)),
            }
        }
        Ok(done)
    }

    fn write(&self, file: &OwnedFd, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("write")(error)),
            }
        }
        Ok(())
    }

    fn truncate(&self, file: &OwnedFd, size: u64) -> Result<()> {
        rustix::fs::ftruncate(file, size).map_err(failed("ftruncate"))
    }

    fn start_listing(&self, dir: &OwnedFd) -> Result<OwnedFd> {
        // A separate descriptor, because the position in the listing belongs to the descriptor.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, c".", flags, Mode::empty()).map_err(failed("open"))
    }

    fn list_part(
        &self,
        listing: &mut OwnedFd,
        wanted: usize,
        each: &mut EachListed<'_>,
    ) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&*listing, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed("getdents"))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                each(Listed { name, ino: entry.ino(), file_type: type_of(entry.file_type()) })?;
                count += 1;
            }
            // Entries returned by the kernel are not returned again.
            if count >= wanted && entries.is_buffer_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sync_file(&self, file: &OwnedFd) -> Result<()> {
        rustix::fs::fsync(file).map_err(failed("fsync"))
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(self.top()?).map_err(failed("syncfs"))
    }
}

fn type_of(host: HostType) -> Option<FileType> {
    Some(match host {
        HostType::RegularFile => FileType::Regular,
        HostType::Directory => FileType::Directory,
        HostType::Symlink => FileType::Symlink,
        HostType::Fifo => FileType::Fifo,
        HostType::Socket => FileType::Socket,
        HostType::CharacterDevice => FileType::CharDevice,
        HostType::BlockDevice => FileType::BlockDevice,
        HostType::Unknown => return None,
    })
}

fn unknown_type(found: &dyn fmt::Debug) -> Error {
    Error::Wrong(format!("stat says that a file is {found:?}"))
}
