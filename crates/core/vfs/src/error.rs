//! Errors of file-system operations: device failures, unsupported features, damage and POSIX errors.

use std::io;

use crate::encryption::EncryptionFault;
pub use crate::fault::Corruption;
use crate::hint::Advice;

/// Result of a file-system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of an operation. A failed operation leaves no trace in the file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The block device failed.
    #[error("device error: {0}")]
    Device(io::Error),
    /// The image or the request uses an unsupported feature. Contains advice for the user.
    #[error("{0}")]
    Unsupported(Box<Unsupported>),
    /// The image is damaged.
    #[error(transparent)]
    Corrupt(Corruption),
    /// No such file, directory or name (`ENOENT`).
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already (`EEXIST`).
    #[error("file exists")]
    Exists,
    /// A path component is not a directory (`ENOTDIR`).
    #[error("not a directory")]
    NotADirectory,
    /// The operation does not apply to directories (`EISDIR`).
    #[error("is a directory")]
    IsADirectory,
    /// The directory still has entries (`ENOTEMPTY`).
    #[error("directory not empty")]
    NotEmpty,
    /// A name is longer than 255 bytes or a target longer than the format allows (`ENAMETOOLONG`).
    #[error("name too long")]
    NameTooLong,
    /// Symbolic links form a loop or are nested too deeply (`ELOOP`).
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// The inode has the maximum number of links (`EMLINK`).
    #[error("too many links")]
    TooManyLinks,
    /// The size exceeds the maximum of the format (`EFBIG`).
    #[error("file too large")]
    FileTooLarge,
    /// No free blocks, or the directory has its maximum size (`ENOSPC`).
    #[error("no space left in the file system")]
    NoSpace,
    /// No free inodes (`ENOSPC`).
    #[error("no free inodes left in the file system")]
    NoInodes,
    /// The owner or the group of the inode would exceed a quota (`EDQUOT`).
    #[error("quota exceeded by the owner or the group of the file")]
    QuotaExceeded,
    /// An extended attribute exceeds a limit of the format, however much space is free (`ENOSPC`, as in the kernel).
    /// Contains the limit.
    #[error("no space for the extended attribute: {0}")]
    AttributeTooLarge(&'static str),
    /// The inode has no such extended attribute (`ENODATA`).
    #[error("no such extended attribute")]
    NoAttribute,
    /// The file system is open read-only (`EROFS`). Contains the reason.
    #[error("read-only file system: {0}")]
    ReadOnly(&'static str),
    /// The request is invalid (`EINVAL`). Contains the reason.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// A flag of the inode forbids the operation (`EPERM`). Contains the flag.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// The inode's project differs from the project that the directory's entries inherit (`EXDEV`).
    #[error("it belongs to another project than the directory; copy it instead")]
    OtherProject,
    /// Names or contents are encrypted (`ENOKEY`). Contains the reason.
    #[error("{0}")]
    Encrypted(Box<EncryptionFault>),
}

/// An unsupported feature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported: {what}; {advice}")]
pub struct Unsupported {
    /// Name of the feature, in the format's own term.
    pub what: String,
    /// Advice for the user.
    pub advice: Advice,
}

impl Error {
    /// Creates an error for an unsupported feature, with advice for the user.
    pub fn unsupported(what: impl Into<String>, advice: impl Into<Advice>) -> Self {
        let (what, advice) = (what.into(), advice.into());
        Self::Unsupported(Box::new(Unsupported { what, advice }))
    }
}

impl Error {
    /// Returns the error for changes of encrypted files and directories.
    #[must_use]
    pub fn encrypted_read_only() -> Self {
        Self::Encrypted(Box::new(EncryptionFault::ReadOnly))
    }

    /// Converts an error of a discard request of the device.
    pub fn of_discard(error: io::Error) -> Self {
        if error.kind() != io::ErrorKind::Unsupported {
            return Self::Device(error);
        }
        let advice = "store the image in a file on a file system that supports holes";
        Self::unsupported("discarding free space of this device", advice)
    }
}

impl From<Corruption> for Error {
    fn from(c: Corruption) -> Self {
        Self::Corrupt(c)
    }
}

impl From<crate::fault::Error> for Error {
    fn from(e: crate::fault::Error) -> Self {
        match e {
            crate::fault::Error::Device(e) => Self::Device(e),
            crate::fault::Error::Corrupt(c) => Self::Corrupt(c),
        }
    }
}
