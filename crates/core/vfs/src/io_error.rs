//! Conversion of file-system errors to `std::io::Error`, for programs that expect errors of host files.

use std::io;

use crate::Error;

impl Error {
    /// Returns the kind of the corresponding error of the host's file system.
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as K;
        match self {
            Self::Device(error) => error.kind(),
            Self::Unsupported(_) => K::Unsupported,
            Self::Corrupt(_) => K::InvalidData,
            Self::NotFound => K::NotFound,
            Self::Exists => K::AlreadyExists,
            Self::NotADirectory => K::NotADirectory,
            Self::IsADirectory => K::IsADirectory,
            Self::NotEmpty => K::DirectoryNotEmpty,
            Self::NameTooLong => K::InvalidFilename,
            Self::TooManyLinks => K::TooManyLinks,
            Self::FileTooLarge => K::FileTooLarge,
            Self::NoSpace | Self::NoInodes | Self::AttributeTooLarge(_) => K::StorageFull,
            Self::QuotaExceeded => K::QuotaExceeded,
            Self::ReadOnly(_) => K::ReadOnlyFilesystem,
            Self::Invalid(_) => K::InvalidInput,
            Self::NotPermitted(_) | Self::Encrypted(_) => K::PermissionDenied,
            Self::OtherProject => K::CrossesDevices,
            // `std`'s kind for symlink loops is unstable, and it has none for missing attributes.
            Self::SymlinkLoop | Self::NoAttribute => K::Other,
        }
    }

    /// Returns the host's errno, if it conveys the whole error.
    #[cfg(unix)]
    fn errno(&self) -> Option<rustix::io::Errno> {
        use rustix::io::Errno as E;
        Some(match self {
            Self::NotFound => E::NOENT,
            Self::Exists => E::EXIST,
            Self::NotADirectory => E::NOTDIR,
            Self::IsADirectory => E::ISDIR,
            Self::NotEmpty => E::NOTEMPTY,
            Self::NameTooLong => E::NAMETOOLONG,
            Self::SymlinkLoop => E::LOOP,
            Self::TooManyLinks => E::MLINK,
            Self::FileTooLarge => E::FBIG,
            Self::NoSpace => E::NOSPC,
            Self::QuotaExceeded => E::DQUOT,
            Self::OtherProject => E::XDEV,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Self::NoAttribute => E::NODATA,
            #[cfg(target_vendor = "apple")]
            Self::NoAttribute => E::NOATTR,
            _ => return None,
        })
    }

    /// Returns this as an error with the host's errno, if that conveys the whole error.
    pub fn to_os_error(&self) -> Option<io::Error> {
        #[cfg(unix)]
        return self.errno().map(io::Error::from);
        #[cfg(not(unix))]
        None
    }
}

/// Errors that an errno conveys wholly become that errno (on Unix). A device failure becomes the device's error. All
/// other errors keep their text.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match (error.to_os_error(), error) {
            (Some(of_host), _) => of_host,
            (None, Error::Device(error)) => error,
            (None, error) => Self::new(error.kind(), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind that `std` derives from the errno equals the kind of the error itself.
    #[test]
    fn numbers_and_kinds_agree() {
        use Error as E;
        let all = [
            E::NotFound,
            E::Exists,
            E::NotADirectory,
            E::IsADirectory,
            E::NotEmpty,
            E::NameTooLong,
            E::TooManyLinks,
            E::FileTooLarge,
            E::NoSpace,
            E::OtherProject,
        ];
        for error in all {
            let kind = error.kind();
            let of_host = io::Error::from(error);
            assert_eq!(of_host.kind(), kind, "{of_host}");
            #[cfg(unix)]
            assert!(of_host.raw_os_error().is_some(), "{of_host}");
        }
    }

    #[test]
    fn errors_with_a_text_keep_it() {
        let error = io::Error::from(Error::Invalid("the reason"));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("the reason"), "{error}");
        let device = io::Error::new(io::ErrorKind::TimedOut, "slow");
        let error = io::Error::from(Error::Device(device));
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::TimedOut, "slow".into()));
    }
}
