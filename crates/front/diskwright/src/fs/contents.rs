//! Reading, writing and copying whole files.

use super::{AsImagePath, File, Image};
use crate::{Error, Result};

/// Copy buffer size in bytes.
const PIECE_BYTES: usize = 1 << 20;

impl Image {
    /// Returns the whole contents of a file. A small image can contain a sparse file of terabytes. For untrusted
    /// images, check the size first or read a [`File`] in pieces.
    ///
    /// # Errors
    /// If the file does not exist, is a directory, or does not fit in memory.
    pub fn read(&self, path: impl AsImagePath) -> Result<Vec<u8>> {
        let path = path.as_image_path();
        let file = File::open(self, path)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut contents = Vec::new();
        if contents.try_reserve_exact(size).is_err() {
            return Err(Error::file(path, vfs::Error::FileTooLarge));
        }
        contents.resize(size, 0);
        let count = file.read_at(&mut contents, 0)?;
        contents.truncate(count);
        Ok(contents)
    }

    /// Returns the whole contents of a file as text.
    ///
    /// # Errors
    /// Same as [`Self::read`], and if the contents are not UTF-8.
    pub fn read_to_string(&self, path: impl AsImagePath) -> Result<String> {
        let path = path.as_image_path();
        String::from_utf8(self.read(path)?).map_err(|_| {
            let problem = "not UTF-8 text; use read for its bytes";
            Error::file(path, vfs::Error::Invalid(problem))
        })
    }

    /// Creates a file with these contents or replaces the contents of an existing file.
    ///
    /// # Errors
    /// If the path is a directory or there is no space. A prefix of the contents may have been written.
    pub fn write(&self, path: impl AsImagePath, contents: impl AsRef<[u8]>) -> Result<()> {
        File::create(self, path)?.write_at(contents.as_ref(), 0).map(|_| ())
    }

    /// Copies the contents and permissions of a file to another one, which is created if missing. Returns the number of
    /// bytes. In XFS with `reflink`, the copy shares the blocks of the source.
    ///
    /// # Errors
    /// If the source does not exist, either is not a regular file, or there is no space.
    pub fn copy(&self, from: impl AsImagePath, to: impl AsImagePath) -> Result<u64> {
        let (from, to) = (from.as_image_path(), to.as_image_path());
        let source = File::open(self, from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            let problem = vfs::Error::Invalid("only regular files can be copied");
            return Err(Error::file(from, problem));
        }
        let options = File::options().write(true).create(true).truncate(true);
        let target = options.mode(metadata.permissions()).open(self, to)?;
        if target.share_from(&source, (0, 0), 0).is_ok() {
            target.set_permissions(metadata.permissions())?;
            return Ok(target.metadata()?.len());
        }
        let mut piece = vec![0; metadata.len().min(PIECE_BYTES as u64) as usize];
        let mut copied = 0;
        while !piece.is_empty() {
            let count = source.read_at(&mut piece, copied)?;
            if count == 0 {
                break;
            }
            target.write_at(&piece[..count], copied)?;
            copied += count as u64;
        }
        target.set_permissions(metadata.permissions())?;
        Ok(copied)
    }

    /// Shares the blocks of a range of the file `from` with the existing file `to`, as `FICLONERANGE` of Linux does: both
    /// with their offsets, and the number of bytes, 0 for all up to the end of `from`. The bytes in `to` are replaced,
    /// and it grows as needed. Later writes to either file copy the shared blocks first.
    ///
    /// Offsets and length must be multiples of the block size. The length need not be if the range ends where `from`
    /// ends, and at or past the end of `to`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use diskwright::fs::{Image, MemoryDevice, XfsOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = Image::format(Arc::new(MemoryDevice::new(320 << 20)), XfsOptions::new())?;
    /// image.write("/disk", vec![7; 1 << 20])?;
    /// image.write("/snapshot", "")?;
    /// image.clone_range(("/disk", 0), ("/snapshot", 0), 0)?;
    /// assert!(image.dedupe_range(("/disk", 0), ("/snapshot", 0), 65536)?);
    /// # image.close()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the image cannot share blocks (only XFS with `reflink` can), the range is another one, or there is no space
    /// for the metadata. The first part of the range may be shared then.
    pub fn clone_range(
        &self,
        from: (impl AsImagePath, u64),
        to: (impl AsImagePath, u64),
        len: u64,
    ) -> Result<()> {
        let source = File::open(self, from.0)?;
        let target = File::options().write(true).open(self, to.0)?;
        target.share_from(&source, (from.1, to.1), len)
    }

    /// Exchanges the blocks of a range of two files, as `XFS_IOC_EXCHANGE_RANGE` of Linux does: both with their offsets, and
    /// the number of bytes, 0 for all up to the ends of both files, which also exchanges the rest of their sizes. The
    /// exchange is atomic, also after a crash, and durable on return.
    ///
    /// Offsets and length must be multiples of the block size. The length need not be if both ranges end where their
    /// files end.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use diskwright::fs::{Image, MemoryDevice, XfsOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = Image::format(Arc::new(MemoryDevice::new(320 << 20)), XfsOptions::new())?;
    /// image.write("/state", "old")?;
    /// image.write("/state.new", "newer")?;
    /// image.exchange_range(("/state", 0), ("/state.new", 0), 0)?;
    /// assert_eq!(image.read_to_string("/state")?, "newer");
    /// assert_eq!(image.read_to_string("/state.new")?, "old");
    /// # image.close()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the image is not XFS, the ranges are others, or they have more extents than one transaction of the log can
    /// change. Nothing has changed then.
    pub fn exchange_range(
        &self,
        one: (impl AsImagePath, u64),
        two: (impl AsImagePath, u64),
        len: u64,
    ) -> Result<()> {
        let first = File::options().write(true).open(self, one.0)?;
        let second = File::options().write(true).open(self, two.0)?;
        second.exchange_with(&first, (one.1, two.1), len)
    }

    /// Shares blocks as [`Self::clone_range`] does if both ranges have the same bytes. Returns whether they have. Changes
    /// neither bytes nor times. Both ranges must be within the files.
    ///
    /// # Errors
    /// Same as [`Self::clone_range`].
    pub fn dedupe_range(
        &self,
        from: (impl AsImagePath, u64),
        to: (impl AsImagePath, u64),
        len: u64,
    ) -> Result<bool> {
        let source = File::open(self, from.0)?;
        let target = File::options().write(true).open(self, to.0)?;
        target.dedupe_with(&source, (from.1, to.1), len)
    }
}
