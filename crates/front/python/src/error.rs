//! Conversion of engine errors to exceptions: `OSError` with errno and file, or a subclass defined by `diskwright`.

use std::io;
use std::path::Path;

use diskwright::Error;
use diskwright::build::BuildError;
use diskwright::fs::{Corruption, FsError};
use diskwright::partition::PartitionError;
use import::SourceError;
use pyo3::exceptions::{PyException, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::device::Origin;
use crate::names::{decode, decode_host};

/// errno of damaged file systems on Linux. Other hosts use the closest device error.
#[cfg(target_os = "linux")]
const EUCLEAN: i32 = libc::EUCLEAN;
#[cfg(not(target_os = "linux"))]
const EUCLEAN: i32 = libc::EIO;

#[cfg(target_os = "linux")]
const ENOKEY: i32 = libc::ENOKEY;
#[cfg(not(target_os = "linux"))]
const ENOKEY: i32 = libc::EACCES;

/// Class of an exception.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// `OSError`, or the built-in subclass for its errno.
    Os,
    Value,
    Invalid,
    Closed,
    Damaged,
    Unsupported,
    InUse,
    Build,
    NotOpenFor,
}

impl Class {
    /// Returns the name of a class of the package.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Os | Self::Value => None,
            Self::Invalid => Some("InvalidArgument"),
            Self::Closed => Some("ClosedImage"),
            Self::Damaged => Some("DamagedImage"),
            Self::Unsupported => Some("UnsupportedImage"),
            Self::InUse => Some("ImageInUse"),
            Self::Build => Some("BuildError"),
            Self::NotOpenFor => Some("NotOpenFor"),
        }
    }

    fn get<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
        static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Some(name) = self.name() else { return Ok(py.get_type::<PyOSError>()) };
        let module = MODULE.get_or_try_init(py, || {
            py.import("diskwright._errors").map(|module| module.into_any().unbind())
        })?;
        Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?)
    }
}

/// Contents of an exception.
pub(crate) struct Said {
    class: Class,
    number: i32,
    text: String,
    file: File,
    damage: Option<Corruption>,
}

enum File {
    None,
    InImage(Vec<u8>),
    OfHost(std::path::PathBuf),
}

impl Said {
    fn new(class: Class, number: i32, text: impl Into<String>) -> Self {
        let text = disk::address::safe(&text.into());
        Self { class, number, text, file: File::None, damage: None }
    }

    /// Creates the error for an argument that is invalid for every file system.
    pub(crate) fn invalid(text: &str, image: &Path) -> Self {
        Self::new(Class::Invalid, libc::EINVAL, text).of_host(image)
    }

    fn of_host(self, path: &Path) -> Self {
        Self { file: File::OfHost(diskwright::text::public(path)), ..self }
    }

    fn in_image(self, path: &[u8]) -> Self {
        Self { file: File::InImage(path.to_vec()), ..self }
    }

    fn of_vfs(error: &FsError) -> Self {
        use FsError as E;
        let number = match error {
            E::Device(error) => return Self::of_io(error),
            E::Unsupported(_) => {
                return Self::new(Class::Unsupported, libc::EOPNOTSUPP, error.to_string());
            }
            E::Corrupt(damage) => {
                let said = Self::new(Class::Damaged, EUCLEAN, error.to_string());
                return Self { damage: Some(damage.clone()), ..said };
            }
            E::NoInodes | E::AttributeTooLarge(_) => libc::ENOSPC,
            E::ReadOnly(_) => libc::EROFS,
            E::NotPermitted(_) => libc::EPERM,
            E::Encrypted(_) => ENOKEY,
            E::Invalid(_) => return Self::new(Class::Invalid, libc::EINVAL, error.to_string()),
            _ => error.to_os_error().and_then(|error| error.raw_os_error()).unwrap_or(libc::EIO),
        };
        Self::new(Class::Os, number, error.to_string())
    }

    fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind as K;
        let number = error.raw_os_error().unwrap_or_else(|| match error.kind() {
            K::NotFound => libc::ENOENT,
            K::AlreadyExists => libc::EEXIST,
            K::PermissionDenied => libc::EACCES,
            K::StorageFull => libc::ENOSPC,
            K::Unsupported => libc::EOPNOTSUPP,
            K::InvalidInput | K::InvalidData => libc::EINVAL,
            K::ResourceBusy => libc::EBUSY,
            K::IsADirectory => libc::EISDIR,
            K::NotADirectory => libc::ENOTDIR,
            _ => libc::EIO,
        });
        let mut text = error.to_string();
        // Remove the errno from the text, because `OSError` prints it too.
        if let Some(at) = text.find(" (os error ") {
            text.truncate(at);
        }
        Self::new(Class::Os, number, text)
    }

    fn of_partition(error: &PartitionError) -> Self {
        use PartitionError as E;
        match error {
            E::Device(error) => Self::of_io(error),
            E::Damaged { .. } | E::PastEnd { .. } => {
                Self::new(Class::Damaged, EUCLEAN, error.to_string())
            }
            E::Unsupported { .. } => {
                Self::new(Class::Unsupported, libc::EOPNOTSUPP, error.to_string())
            }
            E::NoTable | E::NoPartition { .. } | E::NoRoom { .. } => {
                Self::new(Class::Os, libc::ENXIO, error.to_string())
            }
        }
    }

    /// Creates the exception. For an image on a Python device, its exception becomes the cause.
    pub(crate) fn raise(&self, py: Python<'_>, origin: &Origin) -> PyErr {
        let raised = origin.take_raised();
        if let Some(raised) = &raised
            && !raised.is_instance_of::<PyException>(py)
        {
            return raised.clone_ref(py);
        }
        let exception = match self.exception(py) {
            Ok(exception) => PyErr::from_value(exception),
            Err(failed) => return failed,
        };
        // After a failed write the engine keeps reporting that error, which the device raised earlier.
        let is_of_device = matches!(self.number, libc::EIO | libc::EROFS);
        let earlier = || origin.last_raised(py).filter(|_| is_of_device);
        if let Some(cause) = raised.or_else(earlier) {
            exception.set_cause(py, Some(cause));
        }
        exception
    }

    fn of_build(error: &BuildError) -> Self {
        use BuildError as E;
        match error {
            E::FileSystem(error) => Self::of_vfs(error),
            E::Entry { path, reason } => {
                let said = Self::of_build(reason);
                if matches!(said.file, File::None) { said.in_image(path) } else { said }
            }
            E::DoesNotFit { path, .. } => {
                Self::new(Class::Os, libc::ENOSPC, error.to_string()).in_image(path)
            }
            E::Write(error) => Self::of_io(error),
            E::Spool { source, .. } => Self::of_io(source),
            E::Image(error) => Self::of(error),
            E::TargetExists(path) => {
                let problem = "it exists and is not an empty file; use force=True to replace it";
                Self::new(Class::Os, libc::EEXIST, problem).of_host(path)
            }
            E::Small => Self::new(Class::Invalid, libc::EINVAL, error.to_string()),
            E::ForeignOption { .. } => Self::new(Class::Value, libc::EINVAL, error.to_string()),
            E::Source(source) => of_source(source),
            _ => Self::new(Class::Build, libc::EINVAL, error.to_string()),
        }
    }

    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Usage(text) => Self::new(Class::Value, libc::EINVAL, text.as_str()),
            Error::Host { operation, path, source } => {
                let said = Self::of_io(source).of_host(path);
                // The engine reports this only by its message.
                let is_directory =
                    *operation == "open" && source.raw_os_error().is_none() && path.is_dir();
                let number = if is_directory { libc::EISDIR } else { said.number };
                let text = disk::address::safe(&format!("cannot {operation}: {}", said.text));
                Self { number, text, ..said }
            }
            Error::Output(source) | Error::Mount(source) => Self::of_io(source),
            Error::Image { image, source } => Self::of_vfs(source).of_host(image),
            Error::Partition { image, source } => Self::of_partition(source).of_host(image),
            Error::File { path, source } => Self::of_vfs(source).in_image(path),
            Error::InUse { image, who, advice } => {
                let text = format!("in use by {who}: {advice}");
                Self::new(Class::InUse, libc::EBUSY, text).of_host(image)
            }
            Error::NotMounted { path } => {
                Self::new(Class::Os, libc::EINVAL, "not a mount of diskwright").of_host(path)
            }
            Error::FoundDamaged { image } => {
                let text = "damage was found while it was mounted";
                Self::new(Class::Damaged, EUCLEAN, text).of_host(image)
            }
            Error::ShutDown { image } => {
                Self::new(Class::Os, libc::EIO, "it was shut down").of_host(image)
            }
            Error::Restore { image, .. } => {
                Self::new(Class::Os, libc::EINVAL, error.to_string()).of_host(image)
            }
            Error::AppliedInPart { source, .. } => Self::of(source),
            Error::Source(source) => of_source(source),
            Error::Closed => Self::new(Class::Closed, libc::EBADF, error.to_string()),
            Error::NotOpenFor { path, what } => {
                Self::new(Class::NotOpenFor, libc::EBADF, format!("not open for {what}"))
                    .in_image(path)
            }
            Error::Build(error) => Self::of_build(error),
            _ => Self::new(Class::Os, libc::EIO, error.to_string()),
        }
    }

    fn exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = self.text.as_str();
        if self.class == Class::Value {
            return py.get_type::<PyValueError>().call1((text,));
        }
        let class = self.class.get(py)?;
        let file = match &self.file {
            File::None => return class.call1((self.number, text)),
            File::InImage(path) => decode(py, path)?.into_any(),
            File::OfHost(path) => decode_host(py, path)?,
        };
        let details = PyDict::new(py);
        if let Some(damage) = &self.damage {
            details.set_item("structure", damage.structure())?;
            details.set_item("problem", damage.problem())?;
            details.set_item("group", damage.group())?;
            details.set_item("block", damage.block())?;
            details.set_item("inode", damage.inode())?;
            let (expected, found) = damage.difference().unzip();
            details.set_item("expected", expected)?;
            details.set_item("found", found)?;
        }
        class.call((self.number, text, file), Some(&details))
    }
}

/// Converts the error of an unreadable source, with the errno of the host if there is one.
fn of_source(error: &SourceError) -> Said {
    match error {
        SourceError::Io { operation, path, source } => {
            let said = Said::of_io(source).of_host(path);
            Said { text: format!("cannot {operation}: {}", said.text), ..said }
        }
        SourceError::Copy { archive, source } => Said::of_io(source).of_host(archive),
        SourceError::Image { image, source, .. } => Said::of_vfs(source).of_host(image),
        other => Said::new(Class::Build, libc::EINVAL, other.to_string()),
    }
}

/// Creates the exception for an error. An exception of the device becomes its cause; if that is not an `Exception` (for
/// example, KeyboardInterrupt), it is raised instead.
pub(crate) fn exception(py: Python<'_>, error: &Error, origin: &Origin) -> PyErr {
    Said::of(error).raise(py, origin)
}

/// Creates the exception for an error that does not involve a device.
pub(crate) fn plain(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error, &Origin::default())
}

/// Extracts a structure from a dict of arguments. Errors contain the argument name instead of the field name.
pub(crate) fn fields<T>(arguments: &Bound<'_, PyAny>) -> PyResult<T>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = arguments.py();
    arguments.extract::<T>().map_err(|error| {
        let text = error.value(py).to_string();
        let Some((_, name)) = text.rsplit_once('.') else { return error };
        let Some(reason) = error.cause(py) else { return error };
        let problem = format!("{name}: {}", reason.value(py));
        match reason.is_instance_of::<PyTypeError>(py) {
            true => PyTypeError::new_err(problem),
            false => PyValueError::new_err(problem),
        }
    })
}
