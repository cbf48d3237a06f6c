//! Failures for JavaScript, with error codes like those of Node.

use disk::partition::PartitionError;
use serde::Serialize;
use vfs::{Corruption, Error, text};

/// Result of a call from JavaScript.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Failure with a code.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    /// Error code, such as `ENOENT`.
    pub(crate) code: &'static str,
    /// Problem, location and advice, as far as known.
    pub(crate) message: String,
    /// Damaged structure, if that is the cause.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) damage: Option<Box<Damage>>,
}

/// Damaged structure with its location.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Damage {
    /// The structure, in the format's own term.
    pub(crate) structure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<String>,
}

impl Failure {
    /// Creates a failure that is not a file system error.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), damage: None }
    }

    /// Creates the failure for an invalid request.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("EINVAL", message)
    }

    /// Creates a failure from a library error. The name of the image is omitted, because JavaScript knows its device.
    pub(crate) fn of(error: &diskwright::Error) -> Self {
        use diskwright::Error as E;
        match error {
            E::Image { source, .. } => Self::of_vfs(source),
            E::File { path, source } => Self::of_vfs(source).named(path),
            E::Host { source, .. } => Self::new("EIO", format!("device error: {source}")),
            E::Partition { source, .. } => Self::of_partition(source),
            E::Closed => Self::new("EBADF", error.to_string()),
            other => Self::invalid(other.to_string()),
        }
    }

    fn of_vfs(error: &Error) -> Self {
        let damage = match error {
            Error::Corrupt(corruption) => Some(Box::new(Damage::from(corruption))),
            _ => None,
        };
        Self { code: code(error), message: error.to_string(), damage }
    }

    /// Creates a failure for the file at a path.
    pub(crate) fn at(path: &[u8], error: Error) -> Self {
        Self::of_vfs(&error).named(path)
    }

    fn named(self, path: &[u8]) -> Self {
        let message = format!("{}: {}", text::escaped(path), self.message);
        Self { message, ..self }
    }

    pub(crate) fn of_partition(error: &PartitionError) -> Self {
        let code = match error {
            PartitionError::Device(_) => "EIO",
            PartitionError::Damaged { .. } | PartitionError::PastEnd { .. } => "EUCLEAN",
            PartitionError::NoTable | PartitionError::NoPartition { .. } => "ENOENT",
            PartitionError::NoRoom { .. } => "ENOSPC",
            PartitionError::Unsupported { .. } => "ENOTSUP",
        };
        Self::new(code, error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of_vfs(&error)
    }
}

impl From<diskwright::Error> for Failure {
    fn from(error: diskwright::Error) -> Self {
        Self::of(&error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Error::Device(error).into()
    }
}

impl From<&Corruption> for Damage {
    fn from(corruption: &Corruption) -> Self {
        let difference = corruption.difference();
        Self {
            structure: corruption.structure(),
            group: corruption.group(),
            block: corruption.block(),
            inode: corruption.inode(),
            expected: difference.map(|(expected, _)| expected.to_owned()),
            found: difference.map(|(_, found)| found.to_owned()),
        }
    }
}

/// Returns the errno name that a kernel would report.
fn code(error: &Error) -> &'static str {
    match error {
        Error::Device(_) => "EIO",
        Error::Unsupported(_) => "ENOTSUP",
        Error::Corrupt(_) => "EUCLEAN",
        Error::NotFound => "ENOENT",
        Error::Exists => "EEXIST",
        Error::NotADirectory => "ENOTDIR",
        Error::IsADirectory => "EISDIR",
        Error::NotEmpty => "ENOTEMPTY",
        Error::NameTooLong => "ENAMETOOLONG",
        Error::SymlinkLoop => "ELOOP",
        Error::TooManyLinks => "EMLINK",
        Error::FileTooLarge => "EFBIG",
        Error::NoSpace | Error::NoInodes | Error::AttributeTooLarge(_) => "ENOSPC",
        Error::QuotaExceeded => "EDQUOT",
        Error::NoAttribute => "ENODATA",
        Error::ReadOnly(_) => "EROFS",
        Error::NotPermitted(_) => "EPERM",
        Error::OtherProject => "EXDEV",
        Error::Encrypted(_) => "ENOKEY",
        // Requests that make no sense, and what later versions may add.
        _ => "EINVAL",
    }
}

/// Converts a number of bytes from a JavaScript floating-point number.
pub(crate) fn whole(name: &str, number: f64) -> Result<u64> {
    // Maximum integer that is represented exactly.
    const MAX: f64 = 9_007_199_254_740_991.0;
    if number.fract() == 0.0 && (0.0..=MAX).contains(&number) {
        return Ok(number as u64);
    }
    let message = format!("{name} is {number}: it must be a whole number from 0 to 2^53 - 1");
    Err(Failure::invalid(message))
}
