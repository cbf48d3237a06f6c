//! Sources of file trees: a directory, a tar archive or a container image, as a stream of entries.
//!
//! This crate is independent of file-system formats. [`open`] detects the type of a path and returns a [`Source`]. An
//! [`Entry`] contains everything that a builder needs for a file.
//!
//! # Guarantees of a stream
//! - Paths are relative to the root, without leading or trailing slash, and no component is empty, `.` or `..`. The
//!   root itself is the empty path.
//! - A directory source returns the root first, parents before their children, and the names of each directory in byte
//!   order. The stream does not depend on the host's directory order or on the number of threads. Every path occurs
//!   once. The first path of an inode with several links is the file, the later ones are [`EntryKind::Hardlink`].
//! - A tar source returns the archive's entries unchanged in the archive's order. The root and parent directories may
//!   be missing, a path may occur again (later entries replace earlier ones), and the target of a hard link may be
//!   missing. The caller decides how to handle that.
//! - A [container image](oci) returns its flattened tree in the order of a directory source. Paths occur once, and no
//!   directory is missing.
//! - [Several sources](Combination) return every path once, in the order of the sources. Parents may come after their
//!   children, and may be missing.
//! - A [manifest](mtree) returns its files in the order of a directory source.
//! - A [prototype file](protofile) returns its files in its own order, every path once, parents before their children.
//! - A [corrected](correct) stream keeps its order. Directories that it did not list come before their entries, and
//!   added files come last.
//! - After an error, or after the end, [`Source::next_entry`] returns `Ok(None)`.

#![forbid(unsafe_code)]

pub mod archive;
mod combine;
mod content;
pub mod correct;
mod directory;
mod entry;
mod error;
pub mod file_contexts;
mod host;
pub mod mtree;
pub mod oci;
pub mod protofile;
mod rule_file;
pub mod table;
mod tar;

pub use combine::{Combination, Combined, Conflict, Part};
pub use content::{Body, Content, ContentFile, DataRun, Detached, ReadContent, Stored};
pub use directory::DirectorySource;
pub use entry::{Entry, EntryKind, InodeDetails, Metadata, Time, Xattr};
pub use error::{Damage, SourceChange, SourceError, Unsupported};
pub use tar::{BLOCK_BYTES as TAR_BLOCK_BYTES, Header as TarHeader, TarSource};

use std::path::Path;

use tar::compress::Compression;

/// Options for reading a source.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of threads that read a directory's metadata ahead of the caller; 0 reads it on the caller's thread.
    /// Ignored on hosts other than Unix. Values above `Options::THREADS_MAX` are reduced to it. A compressed archive
    /// always uses one thread for decompression, if the host has threads, and an uncompressed one none.
    pub threads: usize,
    /// Files of a directory source to exclude, such as the image being written.
    pub exclude: Vec<FileId>,
}

impl Options {
    /// Maximum number of threads that read ahead, which bounds the number of open directories.
    pub(crate) const THREADS_MAX: usize = 16;
}

/// Identity of a host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device (`st_dev`); on Windows the serial number of the volume.
    pub dev: u64,
    /// Inode number (`st_ino`); on Windows the file's index in the volume.
    pub ino: u64,
}

/// Progress of reading a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Units read so far: stored bytes of the archive file, or entries of a directory.
    pub done: u64,
    /// Total units, if known: the length of an archive that is a regular file.
    pub total: Option<u64>,
}

/// A stream of entries.
pub trait Source: Send {
    /// Returns the next entry, or `None` at the end and after an error.
    ///
    /// # Errors
    /// I/O errors, files that changed while they were read, damaged or unsupported archives. Each contains the file, or
    /// the archive, offset and entry.
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError>;

    /// Continues reading the last entry, if its body is [`Body::Stream`]: the bytes of its [data
    /// ranges](Content::runs), consecutively and without holes. Returns 0 at their end, for any other entry, and for an
    /// empty `buf`. Unread data is skipped by the next [`next_entry`](Source::next_entry).
    ///
    /// # Errors
    /// I/O errors and damaged archives.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError>;

    /// Returns a lower bound of the number of entries, known before any is returned: the number of names in the
    /// directory itself, or 0 for an archive. May wait until the directory is listed.
    fn entries_min(&mut self) -> u64 {
        0
    }

    /// Returns the progress of reading.
    fn progress(&self) -> Progress;
}

/// Opens the source at `path`: `-` is a tar archive on standard input, a directory is a directory source, and anything
/// else is read as a tar archive. Compression (gzip or zstd) is detected by the first bytes, never by the name.
///
/// # Errors
/// If the path cannot be opened, or the compression is not supported.
pub fn open(path: &Path, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(TarSource::from_stream(std::io::stdin(), "standard input")?));
    }
    let metadata = std::fs::metadata(path).map_err(|e| SourceError::io("open", path, e))?;
    if metadata.is_dir() {
        return Ok(Box::new(DirectorySource::open(path, options)?));
    }
    Ok(Box::new(TarSource::open(path)?))
}

/// Returns whether a file that begins with these bytes is an archive: compressed in any known way, or with a tar
/// header. Detecting a tar header requires [`TAR_BLOCK_BYTES`] bytes.
pub fn is_archive(head: &[u8]) -> bool {
    // A block of zeros, with which images begin, does not have a valid checksum.
    let is_tar = |block| TarHeader::parse(block).is_ok();
    Compression::of(head) != Compression::None || head.first_chunk().is_some_and(is_tar)
}
