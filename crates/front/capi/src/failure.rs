//! Failures: codes and details.

use std::ffi::{CString, c_int};
use std::io;

use diskwright::Error;
use diskwright::build::BuildError;
use import::SourceError;
use vfs::{Corruption, Error as FsError};

/// Result of a call. Later versions may add codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum dw_code {
    /// Success.
    DW_OK = 0,
    /// The file, directory or name does not exist.
    DW_NOT_FOUND = 1,
    /// The name exists already.
    DW_EXISTS = 2,
    /// A component is not a directory.
    DW_NOT_A_DIRECTORY = 3,
    /// It is a directory.
    DW_IS_A_DIRECTORY = 4,
    /// The directory still has entries.
    DW_NOT_EMPTY = 5,
    /// A name exceeds 255 bytes, or a target the maximum of the format.
    DW_NAME_TOO_LONG = 6,
    /// Symbolic links form a loop or are nested too deeply.
    DW_SYMLINK_LOOP = 7,
    /// The file has the maximum number of links.
    DW_TOO_MANY_LINKS = 8,
    /// The size exceeds the maximum of the format or of memory.
    DW_FILE_TOO_LARGE = 9,
    /// No free blocks or inodes, or no space for an attribute.
    DW_NO_SPACE = 10,
    /// The file has no such extended attribute.
    DW_NO_ATTRIBUTE = 11,
    /// The image, or this call's view of it, is read-only.
    DW_READ_ONLY = 12,
    /// The request is invalid; the message contains the reason.
    DW_INVALID = 13,
    /// Forbidden by the file's flags or by the host.
    DW_NOT_PERMITTED = 14,
    /// The file's project (quota) differs from that of the directory.
    DW_OTHER_PROJECT = 15,
    /// The names or contents are encrypted, and the key was not given.
    DW_ENCRYPTED = 16,
    /// The image or the request uses an unsupported feature.
    DW_UNSUPPORTED = 17,
    /// The image is damaged. dw_error_structure and dw_error_place return the location.
    DW_DAMAGED = 18,
    /// A read or write of the device or host failed. dw_error_errno returns the number.
    DW_IO = 19,
    /// Another program uses the image.
    DW_IN_USE = 20,
    /// The image has been closed.
    DW_CLOSED = 21,
    /// The file is not open for this access.
    DW_NOT_OPEN_FOR = 22,
    /// A callback cancelled the operation.
    DW_STOPPED = 23,
    /// The handle is NULL or of another kind.
    DW_BAD_HANDLE = 24,
    /// Any other error; the message describes it.
    DW_FAILED = 25,
    /// A bug in this library. The effects of the call are unknown: close the image.
    DW_BUG = 26,
}

/// An unknown number.
pub const DW_NONE: u64 = u64::MAX;

/// Location of damage in an image. Unknown fields are DW_NONE.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct dw_place {
    /// Block group (ext4) or allocation group (XFS).
    pub group: u64,
    /// Block of the file system.
    pub block: u64,
    /// Inode number.
    pub inode: u64,
}

/// Result of the functions of this library.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Details of a failure.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: dw_code,
    pub(crate) errno: c_int,
    pub(crate) message: CString,
    /// The damaged structure and its location.
    pub(crate) damage: Option<(CString, dw_place)>,
    /// Path of the affected file in the image.
    pub(crate) path: Option<CString>,
}

impl Failure {
    fn new(code: dw_code, message: impl Into<String>) -> Self {
        let message = disk::address::safe(&message.into());
        let (errno, message) = (errno_of(code), without_nul(message));
        Self { code, errno, message, damage: None, path: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(dw_code::DW_INVALID, message)
    }

    pub(crate) fn no_memory() -> Self {
        Self::new(dw_code::DW_FILE_TOO_LARGE, "out of memory")
    }

    pub(crate) fn no_attribute() -> Self {
        Self::new(dw_code::DW_NO_ATTRIBUTE, FsError::NoAttribute.to_string())
    }

    pub(crate) fn stopped() -> Self {
        Self::new(dw_code::DW_STOPPED, Error::Stopped.to_string())
    }

    pub(crate) fn bad_handle(name: &str, is_null: bool) -> Self {
        let what = if is_null { "NULL" } else { "another handle or a closed one" };
        Self::new(dw_code::DW_BAD_HANDLE, format!("expected {name}, found {what}"))
    }

    pub(crate) fn of_panic(said: &str) -> Self {
        Self::new(dw_code::DW_BUG, format!("internal error of this library: {said}"))
    }

    fn of_fs(message: String, error: &FsError) -> Self {
        let mut failure = Self::new(code_of(error), message);
        match error {
            FsError::Device(error) => failure.errno = error.raw_os_error().unwrap_or(libc::EIO),
            FsError::Corrupt(damage) => failure.damage = Some(of_damage(damage)),
            _ => {}
        }
        failure
    }

    fn of_io(message: String, error: &io::Error) -> Self {
        let mut failure = Self::new(code_of_io(error), message);
        failure.errno = error.raw_os_error().unwrap_or(failure.errno);
        failure
    }
}

fn of_damage(damage: &Corruption) -> (CString, dw_place) {
    let number = |known: Option<u64>| known.unwrap_or(DW_NONE);
    let place = dw_place {
        group: number(damage.group()),
        block: number(damage.block()),
        inode: number(damage.inode()),
    };
    (without_nul(damage.structure()), place)
}

/// Converts text, which may contain names with any bytes, to a C string.
pub(crate) fn without_nul(text: impl Into<Vec<u8>>) -> CString {
    let mut bytes: Vec<u8> = text.into();
    bytes.retain(|&byte| byte != 0);
    CString::new(bytes).unwrap_or_default()
}

fn code_of(error: &FsError) -> dw_code {
    use dw_code as C;
    match error {
        FsError::Device(error) => code_of_io(error),
        FsError::Unsupported(_) => C::DW_UNSUPPORTED,
        FsError::Corrupt(_) => C::DW_DAMAGED,
        FsError::NotFound => C::DW_NOT_FOUND,
        FsError::Exists => C::DW_EXISTS,
        FsError::NotADirectory => C::DW_NOT_A_DIRECTORY,
        FsError::IsADirectory => C::DW_IS_A_DIRECTORY,
        FsError::NotEmpty => C::DW_NOT_EMPTY,
        FsError::NameTooLong => C::DW_NAME_TOO_LONG,
        FsError::SymlinkLoop => C::DW_SYMLINK_LOOP,
        FsError::TooManyLinks => C::DW_TOO_MANY_LINKS,
        FsError::FileTooLarge => C::DW_FILE_TOO_LARGE,
        FsError::NoSpace
        | FsError::NoInodes
        | FsError::QuotaExceeded
        | FsError::AttributeTooLarge(_) => C::DW_NO_SPACE,
        FsError::NoAttribute => C::DW_NO_ATTRIBUTE,
        FsError::ReadOnly(_) => C::DW_READ_ONLY,
        FsError::Invalid(_) => C::DW_INVALID,
        FsError::NotPermitted(_) => C::DW_NOT_PERMITTED,
        FsError::OtherProject => C::DW_OTHER_PROJECT,
        FsError::Encrypted(_) => C::DW_ENCRYPTED,
        _ => C::DW_FAILED,
    }
}

/// Returns the code of a host error that has an equivalent for files of images.
fn code_of_io(error: &io::Error) -> dw_code {
    use io::ErrorKind as K;
    match error.kind() {
        K::NotFound => dw_code::DW_NOT_FOUND,
        K::AlreadyExists => dw_code::DW_EXISTS,
        K::NotADirectory => dw_code::DW_NOT_A_DIRECTORY,
        K::IsADirectory => dw_code::DW_IS_A_DIRECTORY,
        K::DirectoryNotEmpty => dw_code::DW_NOT_EMPTY,
        K::PermissionDenied => dw_code::DW_NOT_PERMITTED,
        K::ReadOnlyFilesystem => dw_code::DW_READ_ONLY,
        K::StorageFull => dw_code::DW_NO_SPACE,
        K::InvalidInput => dw_code::DW_INVALID,
        K::Unsupported => dw_code::DW_UNSUPPORTED,
        _ => dw_code::DW_IO,
    }
}

/// Returns the errno of a code.
fn errno_of(code: dw_code) -> c_int {
    use dw_code as C;
    match code {
        C::DW_OK => 0,
        C::DW_NOT_FOUND => libc::ENOENT,
        C::DW_EXISTS => libc::EEXIST,
        C::DW_NOT_A_DIRECTORY => libc::ENOTDIR,
        C::DW_IS_A_DIRECTORY => libc::EISDIR,
        C::DW_NOT_EMPTY => libc::ENOTEMPTY,
        C::DW_NAME_TOO_LONG => libc::ENAMETOOLONG,
        C::DW_SYMLINK_LOOP => libc::ELOOP,
        C::DW_TOO_MANY_LINKS => libc::EMLINK,
        C::DW_FILE_TOO_LARGE => libc::EFBIG,
        C::DW_NO_SPACE => libc::ENOSPC,
        C::DW_NO_ATTRIBUTE => libc::ENODATA,
        C::DW_READ_ONLY => libc::EROFS,
        C::DW_INVALID => libc::EINVAL,
        C::DW_NOT_PERMITTED => libc::EPERM,
        C::DW_OTHER_PROJECT => libc::EXDEV,
        C::DW_ENCRYPTED => libc::EACCES,
        C::DW_UNSUPPORTED => libc::ENOTSUP,
        C::DW_IN_USE => libc::EBUSY,
        C::DW_CLOSED | C::DW_NOT_OPEN_FOR | C::DW_BAD_HANDLE => libc::EBADF,
        C::DW_STOPPED => libc::ECANCELED,
        C::DW_DAMAGED | C::DW_IO | C::DW_FAILED | C::DW_BUG => libc::EIO,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use dw_code as C;
        let message = error.to_string();
        match &error {
            Error::File { path, source } => {
                let path = Some(without_nul(path.clone()));
                Self { path, ..Self::of_fs(message, source) }
            }
            Error::Image { source, .. } => Self::of_fs(message, source),
            Error::Host { source, .. } | Error::Output(source) | Error::Mount(source) => {
                Self::of_io(message, source)
            }
            Error::Build(error) => Self::of_build(message, error),
            Error::AppliedInPart { source, .. } => {
                // The inner error determines the code; the message describes the progress.
                let code = match &**source {
                    Error::File { source, .. } | Error::Image { source, .. } => code_of(source),
                    _ => C::DW_FAILED,
                };
                Self::new(code, message)
            }
            other => Self::new(plain_code(other), message),
        }
    }
}

/// Returns the code of an error without an inner error.
fn plain_code(error: &Error) -> dw_code {
    use diskwright::partition::PartitionError as P;
    use dw_code as C;
    match error {
        Error::Usage(_) => C::DW_INVALID,
        Error::InUse { .. } => C::DW_IN_USE,
        Error::Closed => C::DW_CLOSED,
        Error::NotOpenFor { .. } => C::DW_NOT_OPEN_FOR,
        Error::Stopped => C::DW_STOPPED,
        Error::NotMounted { .. } => C::DW_NOT_FOUND,
        Error::FoundDamaged { .. } => C::DW_DAMAGED,
        Error::Partition { source, .. } => match source {
            P::NoTable | P::NoPartition { .. } => C::DW_NOT_FOUND,
            P::Damaged { .. } | P::PastEnd { .. } => C::DW_DAMAGED,
            P::Unsupported { .. } => C::DW_UNSUPPORTED,
            P::Device(_) => C::DW_IO,
            P::NoRoom { .. } => C::DW_NO_SPACE,
        },
        Error::Source(source) if source.is_archive_fault() => C::DW_DAMAGED,
        Error::Source(_) => C::DW_IO,
        _ => C::DW_FAILED,
    }
}

impl Failure {
    fn of_build(message: String, error: &BuildError) -> Self {
        use dw_code as C;
        match error {
            BuildError::FileSystem(error) | BuildError::DoesNotFit { reason: error, .. } => {
                Self::of_fs(message, error)
            }
            BuildError::Entry { path, reason } => {
                let path = Some(without_nul(path.clone()));
                Self { path, ..Self::of_build(message, reason) }
            }
            BuildError::Write(error) | BuildError::Spool { source: error, .. } => {
                Self::of_io(message, error)
            }
            BuildError::Image(error) => match &**error {
                Error::Image { source, .. } | Error::File { source, .. } => {
                    Self::of_fs(message, source)
                }
                Error::Host { source, .. } => Self::of_io(message, source),
                other => Self::new(plain_code(other), message),
            },
            BuildError::TargetExists(_) => Self::new(C::DW_EXISTS, message),
            BuildError::Stopped => Self::new(C::DW_STOPPED, message),
            BuildError::Source(source) => Self::of_source(message, source),
            BuildError::ForeignOption { .. }
            | BuildError::Small
            | BuildError::SameFile { .. }
            | BuildError::NothingProtected(_)
            | BuildError::SameButForCase(_) => Self::new(C::DW_INVALID, message),
            BuildError::LinkTarget(_) | BuildError::Repeated | BuildError::ShortContent => {
                Self::new(C::DW_DAMAGED, message)
            }
            _ => Self::new(C::DW_FAILED, message),
        }
    }

    fn of_source(message: String, error: &SourceError) -> Self {
        match error {
            SourceError::Io { source, .. } => Self::of_io(message, source),
            error if error.is_archive_fault() => Self::new(dw_code::DW_DAMAGED, message),
            _ => Self::new(dw_code::DW_IO, message),
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::from(Error::from(error))
    }
}
