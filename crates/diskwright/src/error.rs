//! Why a command failed, and what kind of failure it is to the program that ran it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(feature = "build")]
use ::repair::RestoreError;

#[cfg(feature = "build")]
use crate::build::BuildError;
use crate::partition::PartitionError;
use crate::text::shown;

/// Result of the library's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a command ended; the number is its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It did what was asked.
    Done = 0,
    /// The answer is no: the file is not there, or not everything could be done.
    No = 1,
    /// The request makes no sense.
    Usage = 2,
    /// The image (or archive) is damaged or uses what is not supported.
    Image = 3,
    /// Reading or writing failed, or there is no space.
    Io = 4,
    /// Somebody asked it to end before its time: what shells say of a program that SIGINT ended.
    Interrupted = 130,
}

/// A failed command.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense; says why, and what would.
    #[error("{0}")]
    Usage(String),
    /// The host failed to do something to a file of its own.
    #[error("cannot {operation} {}: {source}", shown(path))]
    Host {
        /// What was tried: a verb phrase.
        operation: &'static str,
        /// The file on the host.
        path: PathBuf,
        /// The host's reason.
        source: io::Error,
    },
    /// Writing to the output failed.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// The image as a whole cannot be used.
    #[error("{}: {source}", shown(image))]
    Image {
        /// The image file.
        image: PathBuf,
        /// The reason.
        source: vfs::Error,
    },
    /// The partition asked for cannot be used.
    #[error("{}: {source}", shown(image))]
    Partition {
        /// The image file.
        image: PathBuf,
        /// The reason.
        source: PartitionError,
    },
    /// A file in the image cannot be used.
    #[error("{}: {source}", crate::text::escaped(path))]
    File {
        /// Its path in the image.
        path: Vec<u8>,
        /// The reason.
        source: vfs::Error,
    },
    /// Two names of a source are one name in a directory of the image.
    #[error(
        "{}: the directory ignores case, and the source has {} for the same name: rename one of them in the source",
        crate::text::escaped(path),
        crate::text::escaped(other)
    )]
    SameName {
        /// The path of the second in the image.
        path: Vec<u8>,
        /// The name of the first, which is kept.
        other: Vec<u8>,
    },
    /// Somebody else uses the image.
    #[error("{}: in use by {who}: {advice}", shown(image))]
    InUse {
        /// The image file.
        image: PathBuf,
        /// Who uses it.
        who: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// An image cannot be mounted; the error says where and why.
    #[error("{0}")]
    Mount(io::Error),
    /// None of this program's mounts is there.
    #[error(
        "{}: no image is mounted there by diskwright; findmnt -t fuse.diskwright,fuseblk.diskwright tells where some are",
        shown(path)
    )]
    NotMounted {
        /// Where it should be.
        path: PathBuf,
    },
    /// An image was found to be damaged while it was mounted.
    #[error(
        "{}: found to be damaged while it was mounted; diskwright check tells what is wrong",
        shown(image)
    )]
    FoundDamaged {
        /// The image.
        image: PathBuf,
    },
    /// A mount was shut down by ioctl(2), and its image is as after a crash.
    #[error(
        "{}: it was shut down, as if the machine had stopped: it is recovered when it is next changed or \
             mounted",
        shown(image)
    )]
    ShutDown {
        /// The image.
        image: PathBuf,
    },
    #[cfg(feature = "build")]
    /// An image is not brought back to what it was before a repair.
    #[error("{}: by {}: {source}", shown(image), shown(undo))]
    Restore {
        /// The image.
        image: PathBuf,
        /// The undo file.
        undo: PathBuf,
        /// The reason.
        source: RestoreError,
    },
    #[cfg(feature = "build")]
    /// A file of the host cannot be copied.
    #[error(transparent)]
    Source(#[from] source::SourceError),
    #[cfg(feature = "build")]
    /// A layer was applied in part: each entry before the one that failed is there as a whole.
    #[error(
        "{source}; the layer was too much for one change, and its whiteouts and {applied} of its {entries} \
         entries were applied, each as a whole: apply it again when the reason is gone"
    )]
    AppliedInPart {
        /// Entries that were applied.
        applied: u64,
        /// Entries of the layer.
        entries: u64,
        /// Why not the next one.
        source: Box<Error>,
    },
    /// An image that was closed, or a file of one, is used.
    #[error("the image is closed: open it again")]
    Closed,
    /// An open file is asked for what it was not opened for.
    #[error(
        "{}: not open for {what}: open it with OpenOptions that allow it",
        crate::text::escaped(path)
    )]
    NotOpenFor {
        /// Its path in the image.
        path: Vec<u8>,
        /// `reading` or `writing`.
        what: &'static str,
    },
    /// Whoever hears of the progress of something said that it shall not go on.
    #[error("stopped, as was asked")]
    Stopped,
    #[cfg(feature = "anywhere")]
    /// A place cannot be opened.
    #[error(transparent)]
    Place(#[from] place::OpenError),
    #[cfg(feature = "anywhere")]
    /// An image cannot be published, or what is published cannot be used.
    #[error(transparent)]
    Published(#[from] ::publish::Error),
    #[cfg(feature = "build")]
    /// A build failed.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The message, quoted: fields may hold an address with its secrets.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?})", address::safe_line(&self.to_string()))
    }
}

impl Error {
    /// An error of a file on the host.
    pub(crate) fn host(
        operation: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Host { operation, path: path.as_ref().to_owned(), source: source.into() }
    }

    /// An error of a file in the image.
    pub fn file(path: &[u8], source: vfs::Error) -> Self {
        Self::File { path: path.to_vec(), source }
    }

    /// The message, and what to do about it, where it does not say so itself.
    pub fn with_advice(&self) -> String {
        let advice = match self {
            Self::Image { source, .. } | Self::File { source, .. } => advice(source),
            #[cfg(feature = "build")]
            Self::Build(BuildError::Source(source::SourceError::Image { source, .. })) => {
                advice(source)
            }
            _ => None,
        };
        advice.map_or_else(|| self.to_string(), |advice| format!("{self}; {advice}"))
    }

    /// What kind of failure it is.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Usage(_) | Self::Closed | Self::NotOpenFor { .. } => Outcome::Usage,
            #[cfg(feature = "build")]
            Self::Source(error) if error.is_archive_fault() => Outcome::Image,
            #[cfg(feature = "build")]
            Self::Source(_) => Outcome::Io,
            #[cfg(feature = "build")]
            Self::AppliedInPart { source, .. } => source.outcome(),
            Self::Host { .. }
            | Self::Mount(_)
            | Self::Output(_)
            | Self::InUse { .. }
            | Self::ShutDown { .. } => Outcome::Io,
            Self::NotMounted { .. } | Self::SameName { .. } => Outcome::No,
            Self::Stopped => Outcome::Interrupted,
            Self::FoundDamaged { .. } => Outcome::Image,
            Self::Image { source, .. } | Self::File { source, .. } => vfs_outcome(source),
            Self::Partition { source, .. } => partition_outcome(source),
            #[cfg(feature = "build")]
            Self::Restore { source, .. } => match source {
                RestoreError::Undo(_) | RestoreError::Image(_) => Outcome::Io,
                _ => Outcome::No,
            },
            #[cfg(feature = "anywhere")]
            Self::Place(error) => place_outcome(error),
            #[cfg(feature = "anywhere")]
            Self::Published(error) => published_outcome(error),
            #[cfg(feature = "build")]
            Self::Build(error) => error.outcome(),
        }
    }

    /// Whether the reader of the output went away, which is not worth a message.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The number of a descriptor that is none, on every Unix.
#[cfg(unix)]
const EBADF: i32 = 9;

/// What the host's file system would say instead: the number of that reason, if it says no more than that (see
/// [`vfs::Error`]), otherwise this error, in one of the right kind.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::File { ref source, .. } | Error::Image { ref source, .. } => {
                if let Some(of_host) = source.to_os_error() {
                    return of_host;
                }
                source.kind()
            }
            Error::Host { ref source, .. } => source.kind(),
            Error::Output(source) | Error::Mount(source) => return source,
            Error::Usage(_) => io::ErrorKind::InvalidInput,
            Error::InUse { .. } => io::ErrorKind::ResourceBusy,
            Error::Partition { .. } | Error::FoundDamaged { .. } => io::ErrorKind::InvalidData,
            // What the host says of a descriptor that is closed, or not open for that.
            #[cfg(unix)]
            Error::NotOpenFor { .. } => return io::Error::from_raw_os_error(EBADF),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// What kind of failure an error of published images is.
#[cfg(feature = "anywhere")]
fn published_outcome(error: &::publish::Error) -> Outcome {
    use ::publish::Error as E;
    match error {
        E::Usage(_) => Outcome::Usage,
        E::Missing { .. } | E::Damaged { .. } => Outcome::Image,
        _ => Outcome::Io,
    }
}

/// What kind of failure it is that a place cannot be opened.
#[cfg(feature = "anywhere")]
fn place_outcome(error: &place::OpenError) -> Outcome {
    use place::OpenError as E;
    match error {
        E::Store(_) | E::Kind(_) => Outcome::Usage,
        E::Fetch(_) | E::Zstd(place::zstd::ZstdError::Read { .. }) => Outcome::Io,
        E::Disk(_) | E::Zstd(_) => Outcome::Image,
    }
}

/// What kind of failure an error of a partition table is.
fn partition_outcome(error: &PartitionError) -> Outcome {
    use PartitionError as E;
    match error {
        E::Damaged { .. } | E::PastEnd { .. } | E::Unsupported { .. } => Outcome::Image,
        E::Device(_) | E::NoRoom { .. } => Outcome::Io,
        E::NoTable | E::NoPartition { .. } => Outcome::No,
    }
}

/// What kind of failure an error of a file system is.
pub(crate) fn vfs_outcome(error: &vfs::Error) -> Outcome {
    use vfs::Error as E;
    match error {
        E::Unsupported(_) | E::Corrupt(_) | E::Encrypted => Outcome::Image,
        E::Device(_) | E::NoSpace | E::NoInodes | E::ReadOnly(_) => Outcome::Io,
        _ => Outcome::No,
    }
}

/// What to do about an error whose message does not say so.
fn advice(error: &vfs::Error) -> Option<&'static str> {
    use vfs::Error as E;
    Some(match error {
        E::Corrupt(damage) if damage.has_advice() => return None,
        E::Corrupt(_) => "diskwright check tells what else is damaged",
        E::NotFound => "diskwright ls tells what is there",
        E::IsADirectory => "cp and rm take directories with -r",
        E::NotEmpty => "diskwright rm -r removes a directory with all that is in it",
        E::Exists => "choose another name, or remove or replace what has it",
        E::NoSpace | E::NoInodes => "remove something, or build a larger image",
        E::Encrypted => "mount the image with a kernel, and add the key there",
        E::NoAttribute => "diskwright dump IMAGE inode PATH tells which there are",
        E::Device(_) => "see that the image can be read and written, then: diskwright recover",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_no_secrets() {
        let path = PathBuf::from("https://user:CANARY@host/image?sig=CANARY");
        for error in [
            Error::host("open", &path, io::ErrorKind::NotFound),
            Error::Image { image: path.clone(), source: vfs::Error::NotFound },
            Error::FoundDamaged { image: path },
        ] {
            let said = format!("{error} {error:?}");
            assert!(said.contains("https://host/image") && !said.contains("CANARY"), "{said}");
        }
    }
}
