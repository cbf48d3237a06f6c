//! Errors of a source.

use std::io;
use std::path::{Path, PathBuf};

use crate::combine::Conflict;
use crate::host::as_path;
use crate::oci::ContainerFault;
use crate::rule_file::fault::RuleFault;

/// An error of a source. [`Io`](Self::Io), [`Copy`](Self::Copy) and [`Changed`](Self::Changed) concern the host;
/// [`Damaged`](Self::Damaged), [`Unsupported`](Self::Unsupported) and [`Container`](Self::Container) the archive;
/// [`Rule`](Self::Rule) a manifest or table.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An operation on a host file failed.
    #[error("cannot {operation} {path:?}: {source}")]
    Io {
        /// The operation as a verb phrase, such as `open` or `read the attributes of`.
        operation: &'static str,
        /// The host file.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A sequential archive cannot be copied while it is read.
    #[error("cannot keep a copy of {archive:?}: {source}")]
    Copy {
        /// The archive.
        archive: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// A file changed while it was read, so the contents are not those of a single state.
    #[error("{path:?} changed while it was read: {change}")]
    Changed {
        /// The host file.
        path: PathBuf,
        /// The difference.
        change: SourceChange,
    },
    /// An archive does not conform to its format.
    #[error("archive {archive:?} is damaged at byte {offset}{}: {damage}", in_entry(.entry))]
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// Offset in the uncompressed archive at which the damage was detected: the header of the entry, or the end of
        /// the readable part.
        offset: u64,
        /// The affected entry, if its name is known.
        entry: Option<PathBuf>,
        /// The damage.
        damage: Damage,
    },
    /// An archive uses an unsupported feature.
    #[error("archive {archive:?}, byte {offset}{}: {feature}", in_entry(.entry))]
    Unsupported {
        /// The archive.
        archive: PathBuf,
        /// Offset in the uncompressed archive.
        offset: u64,
        /// The affected entry, if its name is known.
        entry: Option<PathBuf>,
        /// The feature, with advice.
        feature: Unsupported,
    },
    /// A container image is invalid, or does not match the request.
    #[error("container image {image}{}{}: {fault}", in_blob(.blob), in_entry(.entry))]
    Container {
        /// Name of the image as given.
        image: String,
        /// The affected blob or file of the image.
        blob: Option<String>,
        /// The affected entry of a layer.
        entry: Option<PathBuf>,
        /// The fault.
        fault: Box<ContainerFault>,
    },
    /// A layer does not conform to the image specification, exceeds limits, or does not fit onto the layers below it.
    #[error("layer {layer:?}{}: {fault}", in_entry(.entry))]
    Layer {
        /// Name of the layer as given.
        layer: PathBuf,
        /// The affected entry.
        entry: Option<PathBuf>,
        /// The fault.
        fault: Box<ContainerFault>,
    },
    /// A file-system image cannot be read.
    #[error("image {image:?}{}: {source}", in_file(.file))]
    Image {
        /// The image.
        image: PathBuf,
        /// The affected file in it.
        file: Option<PathBuf>,
        /// The reason.
        source: vfs::Error,
    },
    /// Several sources conflict.
    #[error("{:?} of {name}: {conflict}", as_path(.entry))]
    Conflict {
        /// Name of the source with the conflicting file, as given.
        name: String,
        /// Path of the file in the combination.
        entry: Vec<u8>,
        /// The conflict.
        conflict: Conflict,
    },
    /// A line of a manifest, of a table or of another file of rules is invalid.
    #[error("{file:?}{}: {fault}", in_line(.line))]
    Rule {
        /// The file, or the option with the rule.
        file: PathBuf,
        /// Line number, starting at 1; 0 means the whole file.
        line: usize,
        /// The fault.
        fault: Box<RuleFault>,
    },
}

/// Change of a file while it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceChange {
    /// The length changed.
    #[error("its size changed from {expected} to {found} bytes")]
    Size {
        /// Original length in bytes.
        expected: u64,
        /// New length in bytes.
        found: u64,
    },
    /// The file ended before its unchanged length: the file system reports wrong sizes.
    #[error("expected {said} bytes, but the file ends earlier")]
    Short {
        /// Reported length in bytes.
        said: u64,
    },
    /// The file was modified or replaced.
    #[error("it was modified or replaced")]
    Modified,
    /// The type changed.
    #[error("its type changed")]
    Type,
}

/// Damage of an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It starts neither with a tar header nor with a known compression.
    #[error("not a tar archive")]
    NotTar,
    /// It ends within an entry or a header.
    #[error("the archive ends in the middle of an entry")]
    Truncated,
    /// It ends without the zero blocks that mark the end, so entries may be missing.
    #[error("the archive ends without an end-of-archive marker")]
    NoEndMarker,
    /// A header's checksum does not match.
    #[error("wrong header checksum (expected {expected}, found {found})")]
    Checksum {
        /// Checksum stored in the header.
        expected: u64,
        /// Checksum computed from its bytes.
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
    /// A text ACL is malformed or contains an unknown user or group.
    #[error("malformed ACL: {0}")]
    Acl(String),
    /// A path would leave the root.
    #[error("path contains \"..\"")]
    ParentComponent,
    /// A path or link target is empty or contains a NUL byte.
    #[error("{0} is empty or contains a NUL byte")]
    Path(&'static str),
    /// A size in a header exceeds the limit.
    #[error("{what} of {found} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The limited quantity.
        what: &'static str,
        /// The size in the header, in bytes.
        found: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The compressed data cannot be decoded.
    #[error("decompression failed: {0}")]
    Compression(String),
}

/// An unsupported feature of an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The compression ratio of an archive exceeds the limit.
    #[error(
        "its first {stored} bytes decompress to more than {limit}; if you trust the archive, \
         decompress it first, for example into a pipe (zstd -dc, gzip -dc)"
    )]
    Expands {
        /// Number of stored bytes read so far.
        stored: u64,
        /// Maximum number of decompressed bytes for them.
        limit: u64,
    },
    /// A compression other than gzip and zstd.
    #[error("{0} compression is not supported; decompress it and pass the tar on standard input")]
    Compression(&'static str),
    /// An unsupported entry type.
    #[error("entry type {:?} is not supported", char::from(*.0))]
    EntryType(u8),
    /// An unsupported version of GNU's PAX sparse format.
    #[error("version {0} of GNU's PAX sparse format is not supported")]
    SparseVersion(String),
}

impl SourceError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), source: source.into() }
    }

    /// Returns whether the archive or image is at fault, rather than the host.
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
    /// Converts to the error of an image, or of one of its blobs.
    pub(crate) fn of(self, image: &str, blob: Option<&str>) -> SourceError {
        let (image, blob) = (image.to_owned(), blob.map(str::to_owned));
        SourceError::Container { image, blob, entry: None, fault: Box::new(self) }
    }

    /// Converts to the error of an entry of a layer.
    pub(crate) fn of_entry(self, image: &str, blob: &str, entry: &[u8]) -> SourceError {
        let entry: PathBuf = as_path(entry).into_owned();
        let (image, blob) = (image.to_owned(), Some(blob.to_owned()));
        SourceError::Container { image, blob, entry: Some(entry), fault: Box::new(self) }
    }
}
