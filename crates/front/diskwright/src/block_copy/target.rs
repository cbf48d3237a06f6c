//! The destination of a raw copy: a new file, or bytes written in place.
//!
//! INVARIANT: bytes that are written in place begin with a marker until everything else is durable, so that an unfinished
//! copy is not recognised as a file system.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::output::write_sparse;
use disk::{BlockDevice, FileAt, FileDevice, WindowDevice};

use super::chunk::Digest;
use crate::copy_error::CopyError;
use crate::host::FileTypeExt;
use crate::lock::{self, Replace};
use crate::replace::Replacement;
use crate::text::hex;
use crate::{Error, Result, host};

/// Length of the marker in bytes. The superblock of ext4 is in the second KiB, that of XFS in the first sector.
const MARKER_BYTES: usize = 4096;

/// Marker of an unfinished copy or restore.
#[derive(Clone, Debug)]
pub(super) struct Marker(Vec<u8>);

impl Marker {
    /// Creates a marker. `verb` and `id` identify the work, so that it is continued in the right place only.
    pub(super) fn new(verb: &str, id: Digest) -> Self {
        let mut bytes = format!("diskwright: unfinished {verb} {}\n", hex(&id)).into_bytes();
        bytes.resize(MARKER_BYTES, 0);
        Self(bytes)
    }

    pub(super) fn is_at_start(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.0)
    }
}

/// Destination that is written in place.
pub(super) struct InPlace {
    path: PathBuf,
    file: File,
    len: u64,
    is_device: bool,
    /// True if bytes that were not written are zeros.
    is_fresh: bool,
    /// First chunk, which is written last.
    head: Option<Vec<u8>>,
}

impl InPlace {
    /// Opens an existing device or file for a file system of `len` bytes. A file becomes that long if `resizes`.
    pub(super) fn open(path: &Path, len: u64, resizes: bool) -> Result<Self> {
        let file = lock::open_to_write(path)?;
        let failed = |e| Error::host("open", path, e);
        let is_device = file.metadata().map_err(failed)?.file_type().is_block_device();
        if !is_device && resizes {
            file.set_len(len).map_err(|e| Error::host("write", path, e))?;
        }
        let found = FileDevice::new(file.try_clone().map_err(failed)?).map_err(failed)?.len();
        if found < len || (!is_device && found != len) {
            let file = path.to_owned();
            return Err(CopyError::Length { file, expected: len, found, is_device }.into());
        }
        Ok(Self { path: path.to_owned(), file, len, is_device, is_fresh: false, head: None })
    }

    /// Creates a file of `len` bytes. An existing file is overwritten.
    pub(super) fn create(path: &Path, len: u64) -> Result<Self> {
        let failed = |e| Error::host("create", path, e);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut new = {
            let file = lock::open_to_write(path)?;
            file.set_len(0).map_err(failed)?;
            drop(file);
            Self::open(path, len, true)?
        };
        new.is_fresh = true;
        Ok(new)
    }

    /// Returns the bytes, for verification.
    pub(super) fn device(&self) -> Result<Arc<dyn BlockDevice>> {
        let failed = |e| Error::host("read", &self.path, e);
        let device = FileDevice::new(self.file.try_clone().map_err(failed)?).map_err(failed)?;
        Ok(Arc::new(WindowDevice::new(Arc::new(device), 0, self.len).map_err(failed)?))
    }

    /// Makes the marker durable. Programs do not recognise the bytes as an image from now on.
    pub(super) fn mark(&self, marker: &Marker) -> Result<()> {
        let bytes = &marker.0[..marker.0.len().min(self.len as usize)];
        self.file.write_all_at(bytes, 0).map_err(|e| self.failed(e))?;
        self.sync()
    }

    /// Writes a chunk. The first one is kept until [`Self::finish`].
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = match at {
            0 => {
                self.head = Some(bytes.to_vec());
                Ok(())
            }
            _ if self.is_fresh => write_sparse(&self.file, at, bytes),
            _ => self.file.write_all_at(bytes, at),
        };
        written.map_err(|e| self.failed(e))
    }

    /// Makes a range of a file a hole. A device is not changed.
    pub(super) fn free(&self, at: u64, len: u64) -> Result<()> {
        if self.is_device {
            return Ok(());
        }
        let len = len.min(self.len - at);
        self.file
            .try_clone()
            .and_then(FileDevice::new)
            .and_then(|device| device.zero_range(at, len))
            .map_err(|e| self.failed(e))
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.failed(e))
    }

    /// Makes everything durable, and then writes the first chunk.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.sync()?;
        if let Some(head) = self.head.take() {
            let (marked, rest) = head.split_at(head.len().min(MARKER_BYTES));
            let at = marked.len() as u64;
            let written = match self.is_fresh {
                true => write_sparse(&self.file, at, rest),
                false => self.file.write_all_at(rest, at),
            };
            written.map_err(|e| self.failed(e))?;
            self.sync()?;
            self.file.write_all_at(marked, 0).map_err(|e| self.failed(e))?;
            self.sync()?;
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::host("write", &self.path, error)
    }
}

/// Returns whether a path is a block device.
pub(super) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Creates a file that gets its name when it is complete.
pub(super) fn new_file(path: &Path, force: bool) -> Result<Replacement> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let problem = io::Error::other("neither a regular file nor a block device");
        return Err(Error::host("write", path, problem));
    }
    let replace = if force { Replace::Anything } else { Replace::Empty };
    Replacement::create(path, replace).map_err(|refused| refused.at("write", path))
}

/// Names a complete file, durably.
pub(super) fn keep(new: Replacement, path: &Path) -> Result<()> {
    new.file().sync_all().map_err(|e| Error::host("write", path, e))?;
    new.keep().map_err(|refused| refused.at("write", path))?;
    sync_directory_of(path)
}

/// Makes the names in the directory of a file durable.
pub(super) fn sync_directory_of(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    host::sync_directory(directory).map_err(|e| Error::host("sync", directory, e))
}

/// Returns the name of a file until it is complete.
pub(super) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
