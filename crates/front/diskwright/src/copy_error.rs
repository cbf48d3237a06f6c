//! Errors of copies of blocks.

use std::path::PathBuf;

use crate::text::shown;

/// An invalid line of a state file, or of the index of an increment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found {found:?}")]
pub struct StateError {
    pub(crate) line: u64,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// Error about the files of copies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A state file or journal is damaged, or another file.
    #[error(
        "{}: {error}; the file is damaged or no state of a copy: make a full copy",
        shown(file)
    )]
    State {
        /// The file.
        file: PathBuf,
        /// The first invalid line.
        error: StateError,
    },
    /// A state file is of another file system.
    #[error(
        "{}: the state of another file system: expected {what} {expected}, found {found}; make a \
         full copy",
        shown(file)
    )]
    OtherSystem {
        /// The state file.
        file: PathBuf,
        /// Property that differs.
        what: &'static str,
        /// Value of the image.
        expected: String,
        /// Value of the state.
        found: String,
    },
    /// An increment is damaged.
    #[error(
        "{}: increment: {what}: expected {expected}, found {found}; make it again",
        shown(file)
    )]
    Increment {
        /// The increment.
        file: PathBuf,
        /// Damaged part.
        what: String,
        /// Expected contents.
        expected: String,
        /// Contents found.
        found: String,
    },
    /// The base of an increment is another copy.
    #[error(
        "{}: bytes {start} to {end}: expected SHA-256 {expected}, found {found}; nothing was changed: \
         choose the copy that the increment was made for",
        shown(file)
    )]
    Base {
        /// The file to restore to.
        file: PathBuf,
        /// First byte of the chunk.
        start: u64,
        /// End of the chunk.
        end: u64,
        /// Digest of the chunk in the base.
        expected: String,
        /// Digest of the chunk found.
        found: String,
    },
    /// A destination has the wrong length.
    #[error(
        "{}: expected {} {expected} bytes, found {found}; choose another {}",
        shown(file),
        if *is_device { "at least" } else { "exactly" },
        if *is_device { "device" } else { "file" }
    )]
    Length {
        /// The destination.
        file: PathBuf,
        /// Length of the file system.
        expected: u64,
        /// Length found.
        found: u64,
        /// True for a block device.
        is_device: bool,
    },
    /// An interrupted copy was not found.
    #[error(
        "{}: not found: there is no interrupted copy to resume; start the copy again",
        shown(file)
    )]
    NothingToResume {
        /// The missing file.
        file: PathBuf,
    },
    /// An interrupted copy is in the way of a new one.
    #[error(
        "{}: an interrupted copy; use --resume to continue it, or --force to start again",
        shown(file)
    )]
    Interrupted {
        /// File of the interrupted copy.
        file: PathBuf,
    },
    /// The image changed since the copy was interrupted.
    #[error(
        "{}: the image changed since the copy was interrupted; start the copy again",
        shown(file)
    )]
    Changed {
        /// The image.
        file: PathBuf,
    },
    /// The destination is not the one of the interrupted copy.
    #[error("{}: not the interrupted copy: it does not begin with its marker", shown(file))]
    OtherCopy {
        /// The destination.
        file: PathBuf,
    },
}
