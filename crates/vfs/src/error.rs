//! Why an operation failed: the device, an unsupported feature, damage, or a POSIX reason.

use std::io;

pub use fault::Corruption;

/// Result of a file-system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation. It left no trace in the file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The block device failed.
    #[error("device error: {0}")]
    Device(io::Error),
    /// The image or the request uses something this build cannot do; says what to do about it.
    #[error("{0}")]
    Unsupported(Box<Unsupported>),
    /// The image is damaged.
    #[error(transparent)]
    Corrupt(Corruption),
    /// No such file, directory or name (`ENOENT`).
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken (`EEXIST`).
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
    /// A symbolic link leads in a circle, or too deep (`ELOOP`).
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// The inode cannot take another link (`EMLINK`).
    #[error("too many links")]
    TooManyLinks,
    /// Past the largest size the format can hold (`EFBIG`).
    #[error("file too large")]
    FileTooLarge,
    /// No free blocks, or a directory that can grow no further (`ENOSPC`).
    #[error("no space left in the file system")]
    NoSpace,
    /// No free inodes (`ENOSPC`).
    #[error("no free inodes left in the file system")]
    NoInodes,
    /// No room for an extended attribute, whatever space is free (`ENOSPC`, as kernels have it); says
    /// what the format limits.
    #[error("no room for the extended attribute: {0}")]
    AttributeTooLarge(&'static str),
    /// The inode has no such extended attribute (`ENODATA`).
    #[error("no such extended attribute")]
    NoAttribute,
    /// The file system is open read-only (`EROFS`); says why.
    #[error("read-only file system: {0}")]
    ReadOnly(&'static str),
    /// The request makes no sense (`EINVAL`); says why.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// The inode's flags forbid it (`EPERM`); says which.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// The inode belongs to another project than the directory gives to what is in it (`EXDEV`).
    #[error("it belongs to another project than the directory: copy it")]
    OtherProject,
    /// The contents are encrypted and the key is not part of the image (`ENOKEY`).
    #[error("encrypted: the key is not in the image")]
    Encrypted,
}

/// Something outside what this build can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported: {what}; {advice}")]
pub struct Unsupported {
    /// The feature, in the format's own term.
    pub what: String,
    /// What the user can do.
    pub advice: &'static str,
}

impl Error {
    /// A feature that is not supported, and what to do about it.
    pub fn unsupported(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Unsupported(Box::new(Unsupported { what: what.into(), advice }))
    }
}

impl Error {
    /// Why a device did not take free space back.
    pub fn of_discard(error: io::Error) -> Self {
        if error.kind() != io::ErrorKind::Unsupported {
            return Self::Device(error);
        }
        let advice = "keep the image in a file of a file system that has holes";
        Self::unsupported("giving free space back to this device", advice)
    }
}

impl From<Corruption> for Error {
    fn from(c: Corruption) -> Self {
        Self::Corrupt(c)
    }
}

impl From<fault::Error> for Error {
    fn from(e: fault::Error) -> Self {
        match e {
            fault::Error::Device(e) => Self::Device(e),
            fault::Error::Corrupt(c) => Self::Corrupt(c),
        }
    }
}
