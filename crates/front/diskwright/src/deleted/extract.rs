//! Extraction of deleted files.
//!
//! The destination must be new or empty. Each file gets a separate name in one directory, made of its index, its inode number and
//! the letters and digits of its last name. Nothing in the image can therefore choose another place, replace a file, or
//! be followed as a link.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use vfs::FileType;
use vfs::deleted::{DeletedData, DeletedInode};

use super::{DeletedFile, Found, json};
use crate::{Error, Result};

/// Directory of the files in the destination.
const FILES: &str = "files";
/// Report in the destination.
const REPORT: &str = "report.json";
/// Maximum length of the part of a file's name that comes from the image, in bytes.
const NAME_MAX: usize = 120;
/// Number of times that the size of the image may be written.
const ROUNDS_MAX: u64 = 4;
/// Size of one read in bytes.
const COPY_BYTES: u64 = 1 << 20;

/// Result of an extraction.
#[derive(Clone, Debug, Default)]
pub struct ExtractedFiles {
    /// Number of files written.
    pub files: u64,
    /// Number of bytes written, without holes.
    pub bytes: u64,
    /// Messages about files that could not be written.
    pub failed: Vec<String>,
}

/// Writes the contents of deleted regular files and symbolic links into a new or empty directory, with a report. Blocks
/// that other files use now are written as they are.
///
/// # Errors
/// If the destination exists and is not empty, or cannot be written.
pub fn extract(found: &Found, destination: &Path) -> Result<ExtractedFiles> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Host { operation: "make", path, source }
    };
    if let Err(error) = fs::create_dir(destination) {
        let is_empty = || fs::read_dir(destination).is_ok_and(|mut names| names.next().is_none());
        if error.kind() != io::ErrorKind::AlreadyExists || !is_empty() {
            return Err(at(destination)(error));
        }
    }
    let dir = destination.join(FILES);
    fs::create_dir(&dir).map_err(at(&dir))?;
    let mut budget = found.device.len().saturating_mul(ROUNDS_MAX);
    let mut result = ExtractedFiles::default();
    let mut names = HashMap::new();
    for (index, file) in found.files.iter().enumerate() {
        let Some(inode) = file.inode.as_ref().filter(|_| is_wanted(file)) else { continue };
        let name = file_name(file, index);
        let mut writer = Writer { found, budget: &mut budget };
        match writer.write(inode, &dir.join(&name)) {
            Ok(bytes) => {
                result.files += 1;
                result.bytes += bytes;
                names.insert(index, format!("{FILES}/{name}"));
            }
            Err(error) => result.failed.push(format!("{name}: {error}")),
        }
    }
    let path = destination.join(REPORT);
    let mut report = io::BufWriter::new(create(&path).map_err(at(&path))?);
    json::write_report(found, &names, &mut report)
        .and_then(|()| report.flush())
        .map_err(at(&path))?;
    Ok(result)
}

fn is_wanted(file: &DeletedFile) -> bool {
    let is_file = !matches!(
        file.file_type(),
        Some(
            FileType::Directory
                | FileType::CharDevice
                | FileType::BlockDevice
                | FileType::Fifo
                | FileType::Socket
        )
    );
    is_file && file.certainty.has_contents()
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Returns a name that no other file of the report has: it begins with the index.
fn file_name(file: &DeletedFile, index: usize) -> String {
    let ino = file.ino().map_or(0, |ino| ino.0);
    let mut name = format!("{index:06}-inode-{ino}");
    if let Some(known) = file.names.first() {
        name.push('-');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
        let letters = known.entry.name.iter().take(NAME_MAX);
        name.extend(letters.map(|&byte| if is_plain(byte) { char::from(byte) } else { '_' }));
    }
    name
}

struct Writer<'w> {
    found: &'w Found,
    budget: &'w mut u64,
}

impl Writer<'_> {
    /// Writes the contents of a file. Returns the number of bytes without holes. An incomplete file is removed.
    fn write(&mut self, inode: &DeletedInode, path: &PathBuf) -> io::Result<u64> {
        let mut file = create(path)?;
        let written = match &inode.data {
            DeletedData::Lost => Ok(0),
            DeletedData::Inline(bytes) => file.write_all(bytes).map(|()| bytes.len() as u64),
            DeletedData::Mapped { .. } => self.blocks(inode, &mut file),
        };
        if written.is_err() {
            drop(file);
            fs::remove_file(path)?;
        }
        written
    }

    fn blocks(&mut self, inode: &DeletedInode, file: &mut File) -> io::Result<u64> {
        let block = u64::from(self.found.block_bytes);
        let end_of_runs = inode.data.runs().iter().map(|run| run.first.saturating_add(run.len));
        let size = match inode.size {
            Some(size) => size,
            None => end_of_runs.max().unwrap_or(0).saturating_mul(block),
        };
        let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, "the size is too large");
        if i64::try_from(size).is_err() {
            return Err(too_long());
        }
        let mut written = 0;
        for run in inode.data.runs().iter().filter(|run| !run.unwritten) {
            let Some(start) = run.first.checked_mul(block).filter(|start| *start < size) else {
                continue;
            };
            let len = run.len.saturating_mul(block).min(size - start);
            let left = self.budget.checked_sub(len);
            *self.budget = left.ok_or_else(|| {
                io::Error::other("the deleted files have more blocks than the image")
            })?;
            file.seek(SeekFrom::Start(start))?;
            self.copy(run.start.saturating_mul(block), len, file)?;
            written += len;
        }
        file.set_len(size)?;
        Ok(written)
    }

    fn copy(&self, from: u64, len: u64, file: &mut File) -> io::Result<()> {
        let mut buffer = vec![0; COPY_BYTES.min(len) as usize];
        let mut done = 0;
        while done < len {
            let part = &mut buffer[..(len - done).min(COPY_BYTES) as usize];
            self.found.device.read_at(from + done, part)?;
            file.write_all(part)?;
            done += part.len() as u64;
        }
        Ok(())
    }
}
