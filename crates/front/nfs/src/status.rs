//! Statuses of replies (`nfsstat3` in RFC 1813), and their relation to errors of the file system.

use vfs::Error;

/// Status of a reply, with the numbers of RFC 1813, section 2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the RFC, without NFS3ERR_")]
pub enum NfsStatus {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    Rofs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    BadType = 10007,
}

impl NfsStatus {
    /// Returns the status for an error of the file system.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::NotFound => Self::NoEnt,
            Error::Exists => Self::Exist,
            Error::NotADirectory => Self::NotDir,
            Error::IsADirectory => Self::IsDir,
            Error::NotEmpty => Self::NotEmpty,
            Error::NameTooLong => Self::NameTooLong,
            Error::TooManyLinks => Self::MLink,
            Error::FileTooLarge => Self::FBig,
            Error::NoSpace | Error::NoInodes | Error::AttributeTooLarge(_) => Self::NoSpc,
            Error::QuotaExceeded => Self::DQuot,
            Error::ReadOnly(_) => Self::Rofs,
            Error::NotPermitted(_) => Self::Perm,
            Error::OtherProject => Self::XDev,
            Error::Invalid(_) | Error::SymlinkLoop => Self::Inval,
            // The protocol lacks a status for a missing key.
            Error::Encrypted(_) => Self::Acces,
            Error::Unsupported(_) => Self::NotSupp,
            _ => Self::Io,
        }
    }
}
