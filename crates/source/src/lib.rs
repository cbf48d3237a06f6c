//! Where a file tree comes from: a directory, a tar archive or a container image, as one stream of entries.
//!
//! This crate knows no file-system format. [`open`] looks at what a path is and returns a
//! [`Source`]; everything a builder needs to know about a file is in its [`Entry`].
//!
//! # What a stream promises
//! - Paths are relative to the root, without leading or trailing slash, and no component is empty,
//!   `.` or `..`. The root itself is the empty path.
//! - A directory source gives the root first, parents before their children, and each directory's
//!   names in byte order, so the stream does not depend on the host's directory order nor on the
//!   number of threads. Every path occurs once. The first path of an inode with several links is
//!   the file, the later ones are [`EntryKind::Hardlink`].
//! - A tar source gives the archive's entries in the archive's order and passes through what it
//!   holds: the root and parent directories may be absent, a path may occur again (later entries
//!   are meant to replace earlier ones), and the target of a hard link may never have occurred.
//!   What to do then is the caller's decision.
//! - A [container image](oci) gives its flattened tree in the order of a directory source, with paths that
//!   occur once, and no directory is absent.
//! - [Several sources](Combination) give every path once, in the order of the sources; parents may come after their
//!   children, and be absent.
//! - A [manifest](mtree) gives its files in the same way.
//! - A [prototype file](protofile) gives its files in its own order, every path once, parents before their children.
//! - A stream that is [corrected](correct) keeps its order. Directories that it did not list come before
//!   what is in them, and what is added comes last.
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
pub mod table;
mod tar;

pub use combine::{Combination, Combined, Conflict, Part};
pub use content::{Body, Content, ContentFile, DataRun, Detached, ReadContent, Stored};
pub use directory::DirectorySource;
pub use entry::{Entry, EntryKind, InodeDetails, Metadata, Time, Xattr};
pub use error::{Change, Damage, SourceError, Unsupported};
pub use tar::{BLOCK_BYTES as TAR_BLOCK_BYTES, Header as TarHeader, TarSource};

use std::path::Path;

use tar::compress::Compression;

/// How to read a source.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that read a directory's metadata ahead of the caller; 0 reads it on the caller's
    /// thread, and so does any number on hosts other than Unix. Counts above [`Options::THREADS_MAX`] are lowered
    /// to it. A compressed archive always has one that decompresses, where there are threads, and an uncompressed
    /// one none.
    pub threads: usize,
    /// Files of a directory source to leave out, such as the image being written.
    pub exclude: Vec<FileId>,
}

impl Options {
    /// Most threads that read ahead: bounds the directories open at once.
    pub const THREADS_MAX: usize = 16;
}

/// What identifies a file on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The device the file is on (`st_dev`); on Windows the serial number of its volume.
    pub dev: u64,
    /// Its inode number (`st_ino`); on Windows its index in the volume.
    pub ino: u64,
}

/// How far a source has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Units read so far: bytes of the archive file (as stored), or entries of a directory.
    pub done: u64,
    /// All units, where known: the length of an archive that is a regular file.
    pub total: Option<u64>,
}

/// A stream of entries.
pub trait Source: Send {
    /// The next entry, or `None` at the end and after an error.
    ///
    /// # Errors
    /// I/O errors, files that changed while they were read, damaged or unsupported archives; each
    /// names the file, or the archive, offset and entry.
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError>;

    /// Reads on in the entry last returned, if its body is [`Body::Stream`]: the bytes of its
    /// [data runs](Content::runs), one after the other and without the holes between them. Returns
    /// 0 at their end, for any other entry, and for an empty `buf`. What is not read before the
    /// following [`next_entry`](Source::next_entry) is skipped.
    ///
    /// # Errors
    /// I/O errors and damaged archives.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError>;

    /// Entries that there are at least, as far as can be told before any is returned: the names in
    /// the directory itself, or nothing of an archive. May wait until the directory is listed.
    fn entries_min(&mut self) -> u64 {
        0
    }

    /// How far the source has been read.
    fn progress(&self) -> Progress;
}

/// Opens the source `path` names: `-` is a tar archive on standard input, a directory is a
/// directory, and anything else is taken as a tar archive. Compression (gzip or zstd) is recognised
/// by its first bytes, never by a name.
///
/// # Errors
/// If the path cannot be opened, or is compressed in a way that is not supported.
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

/// Whether a file that begins with these bytes is an archive: compressed, in whatever way is known, or with the header
/// of a tar. It takes [`TAR_BLOCK_BYTES`] of them to tell a tar.
pub fn is_archive(head: &[u8]) -> bool {
    // The checksum is none of zeros, with which images begin.
    let is_tar = |block| TarHeader::parse(block).is_ok();
    Compression::of(head) != Compression::None || head.first_chunk().is_some_and(is_tar)
}
