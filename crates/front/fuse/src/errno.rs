//! Conversion of errors to errnos.

use linux::Errno;
use vfs::Error;

/// Returns the errno of a file-system error.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::Device(_) => Errno::IO,
        Error::Unsupported(_) => Errno::OPNOTSUPP,
        // EUCLEAN, which ext4 and XFS return for damage.
        Error::Corrupt(_) => Errno::UCLEAN,
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotADirectory => Errno::NOTDIR,
        Error::IsADirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::SymlinkLoop => Errno::LOOP,
        Error::TooManyLinks => Errno::MLINK,
        Error::FileTooLarge => Errno::FBIG,
        Error::NoSpace | Error::NoInodes | Error::AttributeTooLarge(_) => Errno::NOSPC,
        Error::QuotaExceeded => Errno::DQUOT,
        Error::NoAttribute => Errno::NODATA,
        Error::ReadOnly(_) => Errno::ROFS,
        Error::NotPermitted(_) => Errno::PERM,
        Error::OtherProject => Errno::XDEV,
        Error::Invalid(_) => Errno::INVAL,
        Error::Encrypted(_) => Errno::NOKEY,
        _ => Errno::IO,
    }
}
