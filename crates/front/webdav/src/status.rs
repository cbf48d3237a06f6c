//! Errors of the file system as those of `dav-server`, which become statuses of HTTP.

use dav_server::fs::FsError;
use vfs::Error;

/// Returns the error for a client.
pub(crate) fn of(error: &Error) -> FsError {
    match error {
        // A path through a file does not exist. Where a parent is required, `dav-server` answers with a conflict.
        Error::NotFound | Error::NotADirectory => FsError::NotFound,
        Error::Exists | Error::NotEmpty => FsError::Exists,
        Error::NameTooLong => FsError::PathTooLong,
        Error::FileTooLarge => FsError::TooLarge,
        Error::NoSpace
        | Error::NoInodes
        | Error::QuotaExceeded
        | Error::TooManyLinks
        | Error::AttributeTooLarge(_) => FsError::InsufficientStorage,
        Error::ReadOnly(_)
        | Error::NotPermitted(_)
        | Error::Encrypted(_)
        | Error::IsADirectory
        | Error::Invalid(_) => FsError::Forbidden,
        Error::OtherProject => FsError::IsRemote,
        Error::SymlinkLoop => FsError::LoopDetected,
        Error::Unsupported(_) => FsError::NotImplemented,
        _ => FsError::GeneralFailure,
    }
}
