//! Conversion of names between bytes in an image and Python text, with the rules of `os.fsencode` and `os.fsdecode` for
//! UTF-8. Invalid bytes become surrogates, so every name can be shown and converted back.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

/// Maximum length of a path in bytes, as on Linux. Longer `bytes` are probably contents passed as a path.
const PATH_BYTES_MAX: usize = 4096;

/// Path or name in an image, from `str`, `bytes`, or an object with a suitable `str()`.
pub(crate) struct Name(pub(crate) Vec<u8>);

/// Path in an image and, for an `ImagePath`, the identity of its image.
pub(crate) struct PathArg {
    pub(crate) bytes: Vec<u8>,
    pub(crate) image: Option<usize>,
}

impl FromPyObject<'_, '_> for PathArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Name(bytes) = object.extract()?;
        if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
            return Ok(Self { bytes, image: None });
        }
        let py = object.py();
        let image = object.getattr_opt(intern!(py, "_image"))?;
        let image = image.map(|image| image.getattr(intern!(py, "_identity"))?.extract());
        Ok(Self { bytes, image: image.transpose()? })
    }
}

impl FromPyObject<'_, '_> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return encode(&text).map(Self);
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            check_bytes(bytes.as_bytes())?;
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        let py = object.py();
        if object.hasattr(intern!(py, "as_posix"))? {
            return encode(object.call_method0(intern!(py, "as_posix"))?.cast::<PyString>()?)
                .map(Self);
        }
        let name = object.get_type().qualname()?;
        let problem =
            format!("a path in an image must be a str, bytes or a path object, not {name}");
        Err(PyTypeError::new_err(problem))
    }
}

fn encode(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    if let Ok(text) = text.to_str() {
        return Ok(text.as_bytes().to_vec());
    }
    let py = text.py();
    let bytes = text.call_method1(intern!(py, "encode"), ("utf-8", "surrogateescape"))?;
    Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
}

/// Rejects `bytes` that are too long for a path, without quoting them.
fn check_bytes(bytes: &[u8]) -> PyResult<()> {
    if bytes.len() <= PATH_BYTES_MAX {
        return Ok(());
    }
    let len = bytes.len();
    let problem = format!(
        "bytes are taken as a path, and {len} bytes are too long for one; wrap contents in \
         io.BytesIO"
    );
    Err(PyValueError::new_err(problem))
}

/// Converts bytes to text.
pub(crate) fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => {
            let bytes = PyBytes::new(py, bytes);
            let text = bytes.call_method1(intern!(py, "decode"), ("utf-8", "surrogateescape"))?;
            Ok(text.cast_into::<PyString>()?)
        }
    }
}

/// Converts a host path to text.
pub(crate) fn decode_host<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    let text: &OsStr = path.as_os_str();
    Ok(text.into_pyobject(py)?.into_any())
}

/// Host path from `str`, `bytes` or `os.PathLike`.
pub(crate) struct HostPath(pub(crate) PathBuf);

impl FromPyObject<'_, '_> for HostPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(bytes) = object.cast::<PyBytes>() {
            check_bytes(bytes.as_bytes())?;
        } else if object.is_instance_of::<PyByteArray>() {
            let problem = "a bytearray is not a path; wrap contents in io.BytesIO";
            return Err(PyTypeError::new_err(problem));
        }
        let text =
            py.import(intern!(py, "os"))?.call_method1(intern!(py, "fsdecode"), (object,))?;
        text.extract().map(Self)
    }
}

/// Joins a directory's path and a name.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    if !path.ends_with(b"/") && !path.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
