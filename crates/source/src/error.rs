//! What can go wrong with a source.

use std::io;
use std::path::{Path, PathBuf};

use crate::combine::Conflict;
use crate::correct::fault::RuleFault;
use crate::host::as_path;
use crate::oci::ContainerFault;

/// An error of a source. [`Io`](Self::Io), [`Copy`](Self::Copy) and [`Changed`](Self::Changed) are the host's doing;
/// [`Damaged`](Self::Damaged), [`Unsupported`](Self::Unsupported) and [`Container`](Self::Container) are the archive's,
/// [`Rule`](Self::Rule) that of who wrote a manifest or table.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The host failed to do something to a file.
    #[error("cannot {operation} {path:?}: {source}")]
    Io {
        /// What was tried: a verb phrase, such as `open` or `read the attributes of`.
        operation: &'static str,
        /// The file on the host.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// An archive that can be read only once cannot be copied on the way.
    #[error("cannot keep a copy of {archive:?}: {source}")]
    Copy {
        /// The archive.
        archive: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A file changed while it was read, so what was read belongs to no one state of it.
    #[error("{path:?} changed while it was read: {change}")]
    Changed {
        /// The file on the host.
        path: PathBuf,
        /// What is different.
        change: Change,
    },
    /// An archive is not what its format demands.
    #[error("archive {archive:?} is damaged at byte {offset}{}: {damage}", in_entry(.entry))]
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// Byte of the uncompressed archive at which the damage shows: the header of the entry, or
        /// the end of what could be read.
        offset: u64,
        /// The entry concerned, where its name is known.
        entry: Option<PathBuf>,
        /// What is wrong.
        damage: Damage,
    },
    /// An archive uses something this reader does not support.
    #[error("archive {archive:?}, byte {offset}{}: {feature}", in_entry(.entry))]
    Unsupported {
        /// The archive.
        archive: PathBuf,
        /// Byte of the uncompressed archive.
        offset: u64,
        /// The entry concerned, where its name is known.
        entry: Option<PathBuf>,
        /// What is not supported, and what to do about it.
        feature: Unsupported,
    },
    /// A container image is not what it says, or not what was asked for.
    #[error("container image {image}{}{}: {fault}", in_blob(.blob), in_entry(.entry))]
    Container {
        /// The image, as it was named.
        image: String,
        /// The blob or file of the image concerned.
        blob: Option<String>,
        /// The entry of a layer concerned.
        entry: Option<PathBuf>,
        /// What is wrong.
        fault: Box<ContainerFault>,
    },
    /// A layer is not what the image specification says, asks for too much, or does not go with what lies below it.
    #[error("layer {layer:?}{}: {fault}", in_entry(.entry))]
    Layer {
        /// The layer, as it was named.
        layer: PathBuf,
        /// The entry concerned.
        entry: Option<PathBuf>,
        /// What is wrong.
        fault: Box<ContainerFault>,
    },
    /// The image of a file system cannot be read.
    #[error("image {image:?}{}: {source}", in_file(.file))]
    Image {
        /// The image.
        image: PathBuf,
        /// The file in it concerned.
        file: Option<PathBuf>,
        /// The reason.
        source: vfs::Error,
    },
    /// Several sources do not go together.
    #[error("{:?} of {name}: {conflict}", as_path(.entry))]
    Conflict {
        /// The source, as it was named, that brings the file.
        name: String,
        /// The path of the file in what is made of all sources.
        entry: Vec<u8>,
        /// Why it cannot be.
        conflict: Conflict,
    },
    /// A line of a manifest, of a table or of another file of rules cannot be followed.
    #[error("{file:?}{}: {fault}", in_line(.line))]
    Rule {
        /// The file, or the option that has the rule.
        file: PathBuf,
        /// The line, from 1 on; 0 is all of it.
        line: usize,
        /// What is wrong.
        fault: Box<RuleFault>,
    },
}

/// How a file changed while it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Change {
    /// Its length is another one.
    #[error("its size was {expected} bytes and now is {found}")]
    Size {
        /// Bytes at first.
        expected: u64,
        /// Bytes later.
        found: u64,
    },
    /// It ends before its length, which is the same as it was: the file system gives no true one.
    #[error("it is said to have {said} bytes, and ends before that")]
    Short {
        /// Bytes that it is said to have.
        said: u64,
    },
    /// It was written to, or another file took its place.
    #[error("it was modified or replaced")]
    Modified,
    /// It is of another type.
    #[error("its type changed")]
    Type,
}

/// What is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Neither a tar header nor a known compression is at its start.
    #[error("this is not a tar archive")]
    NotTar,
    /// It ends inside an entry or a header.
    #[error("the archive ends in the middle of an entry")]
    Truncated,
    /// It ends without the zero blocks that mark the end, so entries may be missing.
    #[error("the archive ends without an end-of-archive marker")]
    NoEndMarker,
    /// A header's checksum does not match.
    #[error("header checksum is {found}, the header says {expected}")]
    Checksum {
        /// The sum stored in the header.
        expected: u64,
        /// The sum of its bytes.
        found: u64,
    },
    /// A numeric field is not a number, or is out of range.
    #[error("{field} is not a number in range")]
    Number {
        /// The field or PAX keyword.
        field: &'static str,
    },
    /// A PAX extended header is malformed.
    #[error("malformed PAX record: {0}")]
    Pax(&'static str),
    /// A sparse map is malformed.
    #[error("malformed sparse map: {0}")]
    Sparse(&'static str),
    /// A text ACL is malformed or names a user or group that is unknown here.
    #[error("malformed ACL: {0}")]
    Acl(String),
    /// A path would leave the root.
    #[error("path contains \"..\"")]
    ParentComponent,
    /// A path or link target is empty or holds a NUL byte.
    #[error("{0} is empty or contains a NUL byte")]
    Path(&'static str),
    /// A header announces more than is accepted.
    #[error("{what} of {found} bytes is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its announced size, in bytes.
        found: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The compressed data cannot be decoded.
    #[error("decompression failed: {0}")]
    Compression(String),
}

/// What an archive has that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// A compressed archive that becomes far more than is stored.
    #[error(
        "its {stored} bytes so far become more than {limit} when they are decompressed; if it is to be trusted, \
         decompress it first, into a pipe perhaps (zstd -dc, gzip -dc)"
    )]
    Expands {
        /// Bytes as stored that were read.
        stored: u64,
        /// Bytes that are accepted of them.
        limit: u64,
    },
    /// A compression other than gzip and zstd.
    #[error("{0} compression is not supported; decompress it and pass the tar on standard input")]
    Compression(&'static str),
    /// An entry type without meaning here.
    #[error("entry type {:?} is not supported", char::from(*.0))]
    EntryType(u8),
    /// A version of GNU's PAX sparse format.
    #[error("version {0} of GNU's PAX sparse format is not supported")]
    SparseVersion(String),
}

impl SourceError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), source: source.into() }
    }

    /// Whether the archive, or the image, is at fault, rather than the host.
    pub fn is_archive_fault(&self) -> bool {
        match self {
            Self::Damaged { .. }
            | Self::Unsupported { .. }
            | Self::Container { .. }
            | Self::Layer { .. }
            | Self::Rule { .. } => true,
            Self::Image { source, .. } => !matches!(source, vfs::Error::Device(_)),
            Self::Conflict { conflict, .. } => conflict.is_archive_fault(),
            Self::Io { .. } | Self::Copy { .. } | Self::Changed { .. } => false,
        }
    }
}

fn in_entry(entry: &Option<PathBuf>) -> String {
    entry.as_ref().map_or_else(String::new, |path| format!(" (entry {path:?})"))
}

fn in_file(file: &Option<PathBuf>) -> String {
    file.as_ref().map_or_else(String::new, |path| format!(", file {path:?}"))
}

fn in_line(line: &usize) -> String {
    if *line == 0 { String::new() } else { format!(", line {line}") }
}

fn in_blob(blob: &Option<String>) -> String {
    blob.as_ref().map_or_else(String::new, |name| format!(", {name}"))
}

impl ContainerFault {
    /// The error that this is for an image, or for one of its blobs.
    pub(crate) fn of(self, image: &str, blob: Option<&str>) -> SourceError {
        let (image, blob) = (image.to_owned(), blob.map(str::to_owned));
        SourceError::Container { image, blob, entry: None, fault: Box::new(self) }
    }

    /// The error that this is for an entry of a layer.
    pub(crate) fn of_entry(self, image: &str, blob: &str, entry: &[u8]) -> SourceError {
        let entry: PathBuf = as_path(entry).into_owned();
        let (image, blob) = (image.to_owned(), Some(blob.to_owned()));
        SourceError::Container { image, blob, entry: Some(entry), fault: Box::new(self) }
    }
}
