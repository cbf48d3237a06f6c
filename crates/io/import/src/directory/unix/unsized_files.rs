//! Files with a reported size of 0 that are not empty, for example in `/proc`, where contents are generated on a read.
//!
//! Only a read determines their size. Their contents are copied into one unnamed file when they are listed, so that
//! their size is known afterwards.

use std::cell::Cell;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use disk::FileAt;
use parking_lot::Mutex;
use rustix::fs::{Stat, major};

use super::os;
use crate::content::ArchiveFile;
use crate::directory::file::HostFile;
use crate::{Content, SourceChange, SourceError};

/// Read size in bytes.
const READ_BYTES: usize = 64 << 10;

/// Maximum size of such a file in bytes, because some are endless.
const BYTES_MAX: u64 = 1 << 30;

/// Distinguishes file systems that report true sizes from others. Caches the last one, because the next file is usually
/// on the same.
#[derive(Debug, Default)]
pub(super) struct Sizes(Cell<Option<(u64, bool)>>);

impl Sizes {
    /// Returns whether the size of a file in `dir` with attributes `stat` is reliable.
    pub(super) fn are_true(&self, dir: &impl AsFd, name: &CStr, stat: &Stat) -> bool {
        // Major number 0 means that there is no block device.
        if major(stat.st_dev) != 0 {
            return true;
        }
        if let Some((_, are_true)) = self.0.get().filter(|(last, _)| *last == os::device(stat)) {
            return are_true;
        }
        let are_true = os::has_true_sizes(dir, name);
        self.0.set(Some((os::device(stat), are_true)));
        are_true
    }
}

/// The concatenated contents of such files.
#[derive(Debug, Default)]
pub(super) struct UnsizedFiles(Mutex<Option<Copied>>);

#[derive(Debug)]
struct Copied {
    archive: Arc<ArchiveFile>,
    end: u64,
}

impl UnsizedFiles {
    /// Reads a file to its end.
    pub(super) fn read(&self, host: &HostFile) -> Result<Content, SourceError> {
        let failed = |e: io::Error| SourceError::io("read", &host.host_path(), e);
        let mut file = open_as_it_is(host)?;
        let mut buffer = vec![0; READ_BYTES];
        let first = read(&mut file, &mut buffer).map_err(failed)?;
        if first == 0 {
            return Ok(Content::hole(0));
        }
        // One file at a time, because its length is not known.
        let mut copied = self.0.lock();
        let copied = match &mut *copied {
            Some(copied) => copied,
            none => none.insert(Copied::new()?),
        };
        let (archive, start) = (&copied.archive, copied.end);
        let mut size = 0;
        let mut count = first;
        while count > 0 {
            archive
                .file
                .write_all_at(&buffer[..count], start + size)
                .map_err(|e| SourceError::io("keep a copy of", &host.host_path(), e))?;
            size += count as u64;
            if size > BYTES_MAX {
                let problem = "its size is unknown, and it is larger than 1 GiB";
                return Err(failed(io::Error::other(problem)));
            }
            count = read(&mut file, &mut buffer).map_err(failed)?;
        }
        copied.end = start + size;
        Ok(Content::archived(size, None, &copied.archive, start))
    }
}

impl Copied {
    fn new() -> Result<Self, SourceError> {
        let path = PathBuf::from("a temporary file");
        let file = tempfile::tempfile().map_err(|e| SourceError::io("make", &path, e))?;
        let archive = Arc::new(ArchiveFile { file: Arc::new(file), path });
        Ok(Self { archive, end: 0 })
    }
}

/// Opens a file without the usual check for changes: if the size is unreliable, times and inode number may be as well.
/// It must still be a regular file.
fn open_as_it_is(host: &HostFile) -> Result<File, SourceError> {
    let io = |e| SourceError::io("open", &host.host_path(), e);
    let file = host.root.open_file(&host.path).map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        return Err(SourceError::Changed { path: host.host_path(), change: SourceChange::Type });
    }
    Ok(file)
}

fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
