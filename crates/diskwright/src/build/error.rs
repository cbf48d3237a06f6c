//! Why a build failed.

use std::io;
use std::path::PathBuf;

use source::SourceError;

use crate::Outcome;
use crate::text::escaped;
use crate::text::shown;

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file system refused.
    #[error(transparent)]
    FileSystem(#[from] vfs::Error),
    /// An entry of the source could not be made.
    #[error("{}: {reason}", escaped(path))]
    Entry {
        /// Its path.
        path: Vec<u8>,
        /// The reason.
        reason: Box<BuildError>,
    },
    /// The source does not fit into the image.
    #[error(
        "{}: {reason}; make the image larger with --size, or leave the size to be computed",
        escaped(path)
    )]
    DoesNotFit {
        /// The entry that no longer fitted.
        path: Vec<u8>,
        /// What ran out.
        reason: vfs::Error,
    },
    /// A hard link to something that the source has not listed before.
    #[error("a hard link to {}, which the archive does not hold before it", escaped(.0))]
    LinkTarget(Vec<u8>),
    /// Two entries of the same name.
    #[error("listed more than once; make the archive anew, without appending to it")]
    Repeated,
    /// A name that a directory which ignores case cannot tell from another one.
    #[error(
        "its name differs only in case from {}, and the directory ignores case (ascii-ci, casefold); \
         rename one of them, or leave the feature out",
        escaped(.0)
    )]
    SameButForCase(Vec<u8>),
    /// Less contents than announced.
    #[error("its contents end before their time")]
    ShortContent,
    /// The image cannot be written.
    #[error("cannot write the image: {0}")]
    Write(io::Error),
    /// The image file cannot be made or replaced; somebody may be using what it would replace.
    #[error(transparent)]
    Image(Box<crate::Error>),
    /// Something is there already.
    #[error("{} exists and is not an empty file; use --force to overwrite it", shown(.0))]
    TargetExists(PathBuf),
    /// An option of another format.
    #[error("{option} is not for this format: {why}")]
    ForeignOption {
        /// As it is written on the command line.
        option: &'static str,
        /// Why there is no such option.
        why: &'static str,
    },
    /// The finished image cannot be written in a format, or have a hash tree.
    #[error(transparent)]
    Output(#[from] output::Error),
    /// A pattern of files to protect that chooses none.
    #[error(
        "--fs-verity: no regular file of the source matches {0:?}; paths begin below the root, and ** stands \
             for any directories"
    )]
    NothingProtected(String),
    /// A name stands for a file that the build makes already.
    #[error("{option} names a file that the build makes already: {}; name another", shown(path))]
    SameFile {
        /// The option, as on the command line.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Somebody asked the build to end before its time ([`Progress::goes_on`](super::Progress::goes_on)).
    #[error("stopped before it was finished; nothing is left of the image")]
    Stopped,
    /// An archive on standard input cannot be kept to be read twice.
    #[error("cannot keep a copy of the archive: {source}; give {options} to do without one")]
    Spool {
        /// The host's reason.
        source: io::Error,
        /// The options of the format that make one reading enough, as on the command line.
        options: &'static str,
    },
}

impl BuildError {
    /// A request that makes no sense.
    pub(super) fn usage(problem: impl Into<String>) -> Self {
        Self::Image(Box::new(crate::Error::Usage(problem.into())))
    }

    /// The same, with the entry it is about.
    pub(super) fn at(self, path: &[u8]) -> Self {
        let path = path.to_vec();
        match self {
            // These name the file themselves.
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

    /// What kind of failure it is.
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
            Self::SameButForCase(_) => Outcome::Usage,
            Self::TargetExists(_) | Self::ForeignOption { .. } => Outcome::Usage,
            Self::Output(output::Error::Unfit { .. }) | Self::SameFile { .. } => Outcome::Usage,
            Self::Output(_) => Outcome::Io,
            Self::NothingProtected(_) => Outcome::No,
            Self::Stopped => Outcome::Interrupted,
            Self::Source(_) | Self::DoesNotFit { .. } | Self::Write(_) | Self::Spool { .. } => {
                Outcome::Io
            }
        }
    }
}
