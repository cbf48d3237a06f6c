//! Open files.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;

use parking_lot::Mutex;
use vfs::ExtentPlace;

use super::{FileTimes, Metadata, inode};
use crate::image::shared::{Held, now};
use crate::{Error, Result};

/// Access mode of an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessMode {
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) appends: bool,
}

/// Open file in an image, like `std::fs::File`.
///
/// It shares ownership of the image, so it may outlive the [`Image`](super::Image) and be used by several threads. A
/// file whose last name is removed exists until it is dropped. After [`Image::close`](super::Image::close), every call
/// fails with [`Error::Closed`].
///
/// ```
/// # use std::sync::Arc;
/// # use diskwright::fs::{Ext4Options, File, Image, MemoryDevice};
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
/// let mut file = File::options().read(true).write(true).create(true).open(&image, "log")?;
/// writeln!(file, "first line")?;
/// file.seek(SeekFrom::Start(6))?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest)?;
/// assert_eq!(rest, "line\n");
/// file.sync_all()?;
/// # drop(file);
/// # image.close()?;
/// # Ok(()) }
/// ```
pub struct File {
    held: Held,
    access: AccessMode,
    /// Cursor for sequential reads and writes.
    position: Mutex<u64>,
    path: Box<[u8]>,
}

impl File {
    pub(super) fn new(held: Held, access: AccessMode, path: &[u8]) -> Self {
        Self { held, access, position: Mutex::new(0), path: path.into() }
    }

    /// Reads at `offset` without moving the cursor and returns the number of bytes. It is shorter than `buf` only at
    /// the end of the file.
    ///
    /// # Errors
    /// If the file was not opened for reading or is a directory, or if the image is damaged or cannot be read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.check(self.access.reads, "reading")?;
        self.held.with(&self.path, |fs| fs.read(self.held.ino(), offset, buf))
    }

    /// Writes all of `data` at `offset` without moving the cursor, and returns its length. In append mode, writes at
    /// the end of the file instead, as on Linux.
    ///
    /// # Errors
    /// If the file was not opened for writing, there is no space, or the image cannot be written. A prefix of the data
    /// may have been written.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.store(data, offset)?;
        Ok(data.len())
    }

    /// Writes and returns the end offset of the written data.
    fn store(&self, data: &[u8], offset: u64) -> Result<u64> {
        self.check(self.access.writes, "writing")?;
        let ino = self.held.ino();
        let put = |fs: &dyn vfs::FileSystem, at: u64| {
            let end = at.checked_add(data.len() as u64).ok_or(vfs::Error::FileTooLarge)?;
            if !data.is_empty() {
                fs.write(ino, at, data, Some(now()))?;
            }
            Ok(end)
        };
        if !self.access.appends {
            return self.held.with(&self.path, |fs| put(fs, offset));
        }
        self.held.shared().contents_alone(ino, &self.path, |fs| put(fs, fs.attributes(ino)?.size))
    }

    fn check(&self, is_allowed: bool, what: &'static str) -> Result<()> {
        match is_allowed {
            true => Ok(()),
            false => Err(Error::NotOpenFor { path: self.path.to_vec(), what }),
        }
    }

    /// Sets the size. Shrinking discards data; growing adds zeros.
    ///
    /// # Errors
    /// If the file was not opened for writing, or the format does not support the size.
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.access.writes {
            let problem = vfs::Error::Invalid("the file is not open for writing");
            return Err(Error::file(&self.path, problem));
        }
        self.held.with(&self.path, |fs| fs.truncate(self.held.ino(), size, Some(now())))
    }

    /// Shares blocks of another file of the image (see [`Image::clone_range`](super::Image::clone_range)). The offsets are
    /// those in `source` and in this file.
    pub(super) fn share_from(&self, source: &Self, at: (u64, u64), len: u64) -> Result<()> {
        self.check(self.access.writes, "writing")?;
        let (from, to) = (source.held.ino(), self.held.ino());
        self.held.with(&self.path, |fs| fs.clone_range((from, at.0), (to, at.1), len, Some(now())))
    }

    /// Exchanges blocks with another file. The offsets are those in `other` and in this file.
    pub(super) fn exchange_with(&self, other: &Self, at: (u64, u64), len: u64) -> Result<()> {
        let (one, two) = (other.held.ino(), self.held.ino());
        self.held
            .with(&self.path, |fs| fs.exchange_range((one, at.0), (two, at.1), len, Some(now())))
    }

    /// Shares blocks of another file that have the same bytes.
    pub(super) fn dedupe_with(&self, source: &Self, at: (u64, u64), len: u64) -> Result<bool> {
        self.check(self.access.writes, "writing")?;
        let (from, to) = (source.held.ino(), self.held.ino());
        self.held.with(&self.path, |fs| fs.dedupe_range((from, at.0), (to, at.1), len))
    }

    /// Makes all earlier changes to the file durable.
    ///
    /// # Errors
    /// If the image cannot be written.
    pub fn sync_all(&self) -> Result<()> {
        if !self.held.shared().is_writable() {
            return Ok(());
        }
        self.held.with(&self.path, |fs| fs.fsync(self.held.ino()))
    }

    /// Same as [`Self::sync_all`], but for the contents only: timestamps may not be durable.
    ///
    /// # Errors
    /// Same as [`Self::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        if !self.held.shared().is_writable() {
            return Ok(());
        }
        self.held.with(&self.path, |fs| fs.fdatasync(self.held.ino()))
    }

    /// Returns the metadata of the file.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn metadata(&self) -> Result<Metadata> {
        self.held.with(&self.path, |fs| fs.attributes(self.held.ino()).map(Metadata::new))
    }

    /// Returns the offset of the first byte at or after `offset` that is not in a hole, or `None`. Preallocated space
    /// counts as a hole.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.next_run(offset, true)
    }

    /// Returns the offset of the first byte at or after `offset` that is in a hole. The end of the file counts as a
    /// hole. Returns `None` if `offset` is not before the end.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.next_run(offset, false)
    }

    fn next_run(&self, offset: u64, wants_data: bool) -> Result<Option<u64>> {
        let ino = self.held.ino();
        self.held.with(&self.path, |fs| {
            let size = fs.attributes(ino)?.size;
            if offset >= size {
                return Ok(None);
            }
            let mut found = None;
            fs.extent_map(ino, offset, size - offset, &mut |run| {
                let is_data = matches!(run.place, ExtentPlace::Device(_) | ExtentPlace::Inline);
                if is_data == wants_data {
                    found = Some(run.offset.max(offset));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            Ok(found.or((!wants_data).then_some(size)).map(|at| at.min(size)))
        })
    }

    /// Sets the permission bits, at most `0o7777`.
    ///
    /// # Errors
    /// If the image is read-only.
    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        self.held.with(&self.path, |fs| inode::set_permissions(fs, self.held.ino(), mode, now()))
    }

    /// Sets the owner, the group or both. As on Linux, this clears the set-user-ID and set-group-ID bits and the
    /// capabilities of a program.
    ///
    /// # Errors
    /// If the image is read-only.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.held.with(&self.path, |fs| inode::set_owner(fs, self.held.ino(), (uid, gid), now()))
    }

    /// Sets times.
    ///
    /// # Errors
    /// If the image is read-only.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.held.with(&self.path, |fs| fs.set_attributes(self.held.ino(), &times.change(now())))
    }

    /// Returns the value of an extended attribute, or `None` if it does not exist. Names are the same as on Linux:
    /// `user.comment`, `security.capability`, ….
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn get_xattr(&self, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.held.with(&self.path, |fs| inode::get_xattr(fs, self.held.ino(), name.as_ref()))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// If the format cannot store it or the image is read-only.
    pub fn set_xattr(&self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let attribute = (name.as_ref(), value.as_ref());
        self.held.with(&self.path, |fs| inode::set_xattr(fs, self.held.ino(), attribute, now()))
    }

    /// Returns the names of the extended attributes, sorted.
    ///
    /// # Errors
    /// If the image is damaged.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.held.with(&self.path, |fs| inode::list_xattrs(fs, self.held.ino()))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// If it does not exist or the image is read-only.
    pub fn remove_xattr(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.held.with(&self.path, |fs| inode::remove_xattr(fs, self.held.ino(), name, now()))
    }
}

/// Several threads may read and write through one file. Each call locks the cursor.
impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let count = self.read_at(buf, *position)?;
        *position += count as u64;
        Ok(count)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let end = self.store(data, *position)?;
        // An empty write does not move the cursor, not even in append mode.
        if !data.is_empty() {
            *position = end;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let moved = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        // As on the host, offsets are signed 64-bit numbers.
        let moved = moved.filter(|moved| i64::try_from(*moved).is_ok());
        let before = "the position is before the start of the file or too large";
        *position = moved.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, before))?;
        Ok(*position)
    }
}

impl Read for File {
    /// With exclusive access, the cursor needs no lock.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let position = *self.position.get_mut();
        let count = self.read_at(buf, position)?;
        *self.position.get_mut() = position + count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

#[cfg(unix)]
impl std::os::unix::fs::FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(Self::read_at(self, buf, offset)?)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(Self::write_at(self, data, offset)?)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = crate::text::escaped(&self.path).to_string();
        f.debug_struct("File")
            .field("path", &path)
            .field("ino", &self.held.ino())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
