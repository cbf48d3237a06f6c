//! Errors of commands and their exit statuses.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use vfs::hint::Advice;

#[cfg(feature = "build")]
use operations::repair::RestoreError;

#[cfg(feature = "build")]
use crate::build::BuildError;
#[cfg(feature = "build")]
use crate::copy_error::CopyError;
use crate::partition::PartitionError;
use crate::text::shown;

/// Result of library operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Success.
    Done = 0,
    /// Negative result: the file does not exist, or the operation completed in part.
    No = 1,
    /// Invalid request.
    Usage = 2,
    /// The image or archive is damaged or uses unsupported features.
    Image = 3,
    /// Reading or writing failed, or there is no space.
    Io = 4,
    /// The command was cancelled. Shells use this status for a program terminated by SIGINT.
    Interrupted = 130,
}

/// A failed command.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid request. The text gives the reason and an alternative.
    #[error("{0}")]
    Usage(String),
    /// An operation on a host file failed.
    #[error("cannot {operation} {}: {source}", shown(path))]
    Host {
        /// Attempted operation, as a verb phrase.
        operation: &'static str,
        /// The file on the host.
        path: PathBuf,
        /// Error reported by the host.
        source: io::Error,
    },
    /// Writing to the output failed.
    #[error("cannot write the output: {}", crate::closed_output::reason(.0))]
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
    /// A layer that contains the image cannot be used.
    #[cfg(feature = "layers")]
    #[error("{}: {source}{}", shown(image), also(*hint))]
    Layer {
        /// The image file.
        image: PathBuf,
        /// The reason.
        source: layers::LayerError,
        /// A way to read the file system without the layer.
        hint: Option<vfs::hint::Hint>,
    },
    /// An operation on a file in the image failed.
    #[error("{}: {source}", crate::text::escaped(path))]
    File {
        /// Its path in the image.
        path: Vec<u8>,
        /// The reason.
        source: vfs::Error,
    },
    /// Two names of a source are equal in a case-insensitive directory of the image.
    #[error(
        "{}: the directory ignores case, and the source also has {}; rename one of them in the \
         source",
        crate::text::escaped(path),
        crate::text::escaped(other)
    )]
    SameName {
        /// Path of the second name in the image.
        path: Vec<u8>,
        /// First name, which is kept.
        other: Vec<u8>,
    },
    /// Another program uses the image.
    #[error("{}: in use by {who}: {advice}", shown(image))]
    InUse {
        /// The image file.
        image: PathBuf,
        /// Current user of the image.
        who: String,
        /// Advice for the user.
        advice: Advice,
    },
    /// An image cannot be mounted; the error gives the path and the reason.
    #[error("{0}")]
    Mount(io::Error),
    /// There is no mount of this program at the path.
    #[error("{}: not a mount of diskwright; list its mounts with diskwright mounts", shown(path))]
    NotMounted {
        /// Path of the expected mount.
        path: PathBuf,
    },
    /// Damage was found in an image while it was mounted.
    #[error("{}: damage was found while it was mounted; run diskwright check", shown(image))]
    FoundDamaged {
        /// The image.
        image: PathBuf,
    },
    /// A mount was shut down by ioctl(2). Its image is in the state after a crash.
    #[error(
        "{}: the file system was shut down; it is recovered at the next change or mount",
        shown(image)
    )]
    ShutDown {
        /// The image.
        image: PathBuf,
    },
    #[cfg(feature = "build")]
    /// An image cannot be restored to its state before a repair.
    #[error("{}: cannot restore from {}: {source}", shown(image), shown(undo))]
    Restore {
        /// The image.
        image: PathBuf,
        /// The undo file.
        undo: PathBuf,
        /// The reason.
        source: RestoreError,
    },
    #[cfg(feature = "build")]
    /// A host file cannot be copied.
    #[error(transparent)]
    Source(#[from] import::SourceError),
    #[cfg(feature = "build")]
    /// A layer was applied in part. Each entry before the failed one was applied completely.
    #[error(
        "{source}; the layer was too large for one transaction: its whiteouts and {applied} of its \
         {entries} entries were applied completely; apply it again after fixing the cause"
    )]
    AppliedInPart {
        /// Number of applied entries.
        applied: u64,
        /// Number of entries in the layer.
        entries: u64,
        /// Reason why the next entry failed.
        source: Box<Error>,
    },
    /// The image is closed.
    #[error("the image is closed; open it again")]
    Closed,
    /// An open file was used in a way that its open options do not allow.
    #[error(
        "{}: not open for {what}; open it with OpenOptions that allow it",
        crate::text::escaped(path)
    )]
    NotOpenFor {
        /// Its path in the image.
        path: Vec<u8>,
        /// `reading` or `writing`.
        what: &'static str,
    },
    /// A progress callback cancelled the operation.
    #[error("stopped on request")]
    Stopped,
    #[cfg(feature = "anywhere")]
    /// An image location cannot be opened.
    #[error(transparent)]
    Place(#[from] remote::opening::OpenError),
    #[cfg(feature = "anywhere")]
    /// An image cannot be published, or a published image cannot be used.
    #[error(transparent)]
    Published(#[from] remote::publish::Error),
    #[cfg(feature = "build")]
    /// A copy of the blocks in use failed.
    #[error(transparent)]
    BlockCopy(#[from] CopyError),
    #[cfg(feature = "build")]
    /// A build failed.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Formats the quoted message, because fields may contain an address with secrets.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?})", disk::address::safe_line(&self.to_string()))
    }
}

impl Error {
    /// Creates an error for a host file.
    pub(crate) fn host(
        operation: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Host { operation, path: path.as_ref().to_owned(), source: source.into() }
    }

    /// Creates an error for a whole image.
    pub(crate) fn image(path: impl AsRef<Path>, source: vfs::Error) -> Self {
        Self::Image { image: path.as_ref().to_owned(), source }
    }

    /// Creates an error for a file in the image.
    pub fn file(path: &[u8], source: vfs::Error) -> Self {
        Self::File { path: path.to_vec(), source }
    }

    /// Returns the message, followed by advice if the message contains none.
    pub fn with_advice(&self) -> String {
        let advice = match self {
            Self::Image { source, .. } | Self::File { source, .. } => advice(source),
            #[cfg(feature = "build")]
            Self::Build(BuildError::Source(import::SourceError::Image { source, .. })) => {
                advice(source)
            }
            _ => None,
        };
        advice.map_or_else(|| self.to_string(), |advice| format!("{self}; {advice}"))
    }

    /// Returns the exit status for this error.
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
            #[cfg(feature = "layers")]
            Self::Layer { source, .. } => layer_outcome(source),
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
            Self::BlockCopy(error) => copy_outcome(error),
            #[cfg(feature = "build")]
            Self::Build(error) => error.outcome(),
        }
    }

    /// Returns whether the reader closed the output. Such an error needs no message.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// `EBADF`, which has this value on every Unix.
#[cfg(unix)]
const EBADF: i32 = 9;

/// Converts to the `errno` value if it expresses the whole error (see [`vfs::Error`]). Otherwise wraps this error under
/// the matching [`io::ErrorKind`].
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
            // Hosts report `EBADF` for a descriptor that is closed or was opened in another mode.
            #[cfg(unix)]
            Error::NotOpenFor { .. } => return io::Error::from_raw_os_error(EBADF),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Returns the exit status for an error of published images.
#[cfg(feature = "anywhere")]
fn published_outcome(error: &remote::publish::Error) -> Outcome {
    use remote::publish::Error as E;
    match error {
        E::Usage(_) => Outcome::Usage,
        E::Missing { .. } | E::Damaged { .. } => Outcome::Image,
        _ => Outcome::Io,
    }
}

/// Returns the exit status for an image location that cannot be opened.
#[cfg(feature = "anywhere")]
fn place_outcome(error: &remote::opening::OpenError) -> Outcome {
    use remote::opening::OpenError as E;
    match error {
        E::Store(_) | E::Kind(_) => Outcome::Usage,
        E::Fetch(_) | E::Zstd(remote::place::zstd::ZstdError::Read { .. }) => Outcome::Io,
        E::Disk(_) | E::Zstd(_) => Outcome::Image,
    }
}

/// Returns a clause with a hint.
#[cfg(feature = "layers")]
fn also(hint: Option<vfs::hint::Hint>) -> String {
    hint.map_or_else(String::new, |hint| {
        format!("; without this layer, {hint} reads a file system")
    })
}

/// Returns the exit status for an error of a layer.
#[cfg(feature = "layers")]
fn layer_outcome(error: &layers::LayerError) -> Outcome {
    use layers::LayerError as E;
    match error {
        E::Device { .. } | E::Passphrase(_) => Outcome::Io,
        E::Choose { .. } | E::ChoosePartition { .. } | E::Usage(_) => Outcome::Usage,
        E::ReadOnly { .. } | E::WrongKey { .. } => Outcome::Usage,
        _ => Outcome::Image,
    }
}

/// Returns the exit status for an error of a copy of blocks.
#[cfg(feature = "build")]
fn copy_outcome(error: &CopyError) -> Outcome {
    use CopyError as E;
    match error {
        E::Length { .. } => Outcome::Io,
        E::NothingToResume { .. } | E::Interrupted { .. } | E::OtherCopy { .. } => Outcome::Usage,
        _ => Outcome::Image,
    }
}

/// Returns the exit status for an error of a partition table.
fn partition_outcome(error: &PartitionError) -> Outcome {
    use PartitionError as E;
    match error {
        E::Damaged { .. } | E::PastEnd { .. } | E::Unsupported { .. } => Outcome::Image,
        E::Device(_) | E::NoRoom { .. } => Outcome::Io,
        E::NoTable | E::NoPartition { .. } => Outcome::No,
    }
}

/// Returns the exit status for a file system error.
pub(crate) fn vfs_outcome(error: &vfs::Error) -> Outcome {
    use vfs::Error as E;
    match error {
        E::Unsupported(_) | E::Corrupt(_) | E::Encrypted(_) => Outcome::Image,
        E::Device(_) | E::NoSpace | E::NoInodes | E::ReadOnly(_) => Outcome::Io,
        _ => Outcome::No,
    }
}

/// Returns advice for an error whose message contains none.
fn advice(error: &vfs::Error) -> Option<&'static str> {
    use vfs::Error as E;
    Some(match error {
        E::Corrupt(damage) if damage.has_advice() => return None,
        E::Corrupt(_) => "run diskwright check for all damage",
        E::NotFound => "list the directory with diskwright ls",
        E::IsADirectory => "use -r with cp and rm for directories",
        E::NotEmpty => "remove a directory with its contents with diskwright rm -r",
        E::Exists => "choose another name, or remove or replace the existing file",
        E::NoSpace | E::NoInodes => "remove files, or build a larger image",
        E::NoAttribute => "list its attributes with diskwright dump IMAGE inode PATH",
        E::Device(_) => {
            "make sure that the image can be read and written, then run diskwright recover"
        }
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
