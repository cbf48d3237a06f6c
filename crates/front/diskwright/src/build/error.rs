//! Errors of a build.

use std::io;
use std::path::PathBuf;
use vfs::hint::{Advice, Setting};

use import::SourceError;

use crate::Outcome;
use crate::text::escaped;
use crate::text::shown;

/// Build error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file system reported an error.
    #[error(transparent)]
    FileSystem(#[from] vfs::Error),
    /// An entry of the source could not be created.
    #[error("{}: {reason}", escaped(path))]
    Entry {
        /// Path of the entry.
        path: Vec<u8>,
        /// The reason.
        reason: Box<BuildError>,
    },
    /// The source does not fit into the image.
    #[error("{}: {reason}; choose a larger {size}, or leave {size} out", escaped(path), size = Setting::SIZE)]
    DoesNotFit {
        /// First entry that did not fit.
        path: Vec<u8>,
        /// The exhausted resource.
        reason: vfs::Error,
    },
    /// Hard link to a path that does not precede it in the source.
    #[error("a hard link to {}, which is not earlier in the archive", escaped(.0))]
    LinkTarget(Vec<u8>),
    /// Duplicate name.
    #[error("listed more than once; create the archive again without appending")]
    Repeated,
    /// Name that equals another one in a case-insensitive directory.
    #[error(
        "its name differs only in case from {}, and the directory ignores case (ascii-ci, casefold); \
         rename one of them, or leave the feature out",
        escaped(.0)
    )]
    SameButForCase(Vec<u8>),
    /// The contents are shorter than the declared size.
    #[error("unexpected end of its contents")]
    ShortContent,
    /// The image cannot be written.
    #[error("cannot write the image: {0}")]
    Write(io::Error),
    /// The image file cannot be created or replaced, for example because it is in use.
    #[error(transparent)]
    Image(Box<crate::Error>),
    /// The target exists.
    #[error("{} exists and is not an empty file; use {} to overwrite it", shown(.0), Setting::FORCE)]
    TargetExists(PathBuf),
    /// An XFS image below the usual minimum size.
    #[error(
        "XFS images below 300 MiB are slow and not well tested; use {} to create one, or choose a larger {}",
        Setting::SMALL,
        Setting::SIZE
    )]
    Small,
    /// An option that the format does not have.
    #[error("{option} is not supported for this format: {why}")]
    ForeignOption {
        /// Name of the option on the command line.
        option: Advice,
        /// Reason why the format does not have it.
        why: Advice,
    },
    /// The finished image cannot be converted, or the hash tree cannot be created.
    #[error(transparent)]
    Output(#[from] disk::output::Error),
    /// No file matches a pattern of files to protect.
    #[error(
        "--fs-verity: no regular file of the source matches {0:?}; paths are relative to the root, \
         and ** matches any directories"
    )]
    NothingProtected(String),
    /// An option names a file that the build creates already.
    #[error(
        "{option} is the same file as another output of the build: {}; choose another",
        shown(path)
    )]
    SameFile {
        /// Name of the option on the command line.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The build was cancelled ([`Progress::goes_on`](super::Progress::goes_on)).
    #[error("stopped before completion; the incomplete image was removed")]
    Stopped,
    /// An archive on standard input cannot be spooled for a second read.
    #[error("cannot keep a copy of the archive: {source}; use {options} to build without one")]
    Spool {
        /// Error reported by the host.
        source: io::Error,
        /// Options that avoid a second read.
        options: String,
    },
}

impl BuildError {
    /// Creates an error for an invalid request.
    pub(super) fn usage(problem: impl Into<String>) -> Self {
        Self::Image(Box::new(crate::Error::Usage(problem.into())))
    }

    /// Adds the entry concerned.
    pub(super) fn at(self, path: &[u8]) -> Self {
        let path = path.to_vec();
        match self {
            // These errors name the file already.
            Self::Source(_) | Self::Write(_) => self,
            Self::FileSystem(reason @ (vfs::Error::NoSpace | vfs::Error::NoInodes)) => {
                Self::DoesNotFit { path, reason }
            }
            reason => Self::Entry { path, reason: Box::new(reason) },
        }
    }

    pub(super) fn is_no_space(&self) -> bool {
        matches!(self, Self::DoesNotFit { reason: vfs::Error::NoSpace, .. })
    }

    pub(super) fn is_no_inodes(&self) -> bool {
        matches!(self, Self::DoesNotFit { reason: vfs::Error::NoInodes, .. })
    }

    /// Returns the exit status for this error.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Source(SourceError::Container { fault, .. }) if fault.is_choice() => Outcome::No,
            Self::Source(SourceError::Conflict { conflict, .. })
                if !conflict.is_archive_fault() =>
            {
                Outcome::Usage
            }
            Self::Source(error) if error.is_archive_fault() => Outcome::Image,
            Self::FileSystem(vfs::Error::Invalid(_) | vfs::Error::Unsupported(_)) => Outcome::Usage,
            Self::FileSystem(error) => crate::error::vfs_outcome(error),
            Self::Image(error) => error.outcome(),
            Self::Entry { reason, .. } => match **reason {
                Self::FileSystem(_) => Outcome::Io,
                ref reason => reason.outcome(),
            },
            Self::LinkTarget(_) | Self::Repeated | Self::ShortContent => Outcome::Image,
            Self::SameButForCase(_) | Self::Small => Outcome::Usage,
            Self::TargetExists(_) | Self::ForeignOption { .. } => Outcome::Usage,
            Self::Output(disk::output::Error::Unfit { .. }) | Self::SameFile { .. } => {
                Outcome::Usage
            }
            Self::Output(_) => Outcome::Io,
            Self::NothingProtected(_) => Outcome::No,
            Self::Stopped => Outcome::Interrupted,
            Self::Source(_) | Self::DoesNotFit { .. } | Self::Write(_) | Self::Spool { .. } => {
                Outcome::Io
            }
        }
    }
}
