//! Location of an image: a host path or a Python object, and the part of it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use diskwright::fs::{BlockDevice, FileDevice, WindowDevice};
use diskwright::partition::{self, Signature};
use diskwright::{Error, Format, ImageOptions, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use crate::device::{Origin, PyDevice};
use crate::error;
use crate::names::HostPath;

/// Source of an image.
pub(crate) enum ImageSource {
    Path(PathBuf),
    Device(Arc<dyn BlockDevice>),
}

impl ImageSource {
    /// Converts a path or a device object.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<(Self, Origin)> {
        if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
            let name = object.get_type().qualname()?;
            let problem = format!(
                "an image must be a path or a file object, not {name}; wrap contents in io.BytesIO"
            );
            return Err(PyTypeError::new_err(problem));
        }
        let is_path = object.is_instance_of::<PyString>()
            || object.is_instance_of::<PyBytes>()
            || object.hasattr(intern!(object.py(), "__fspath__"))?;
        if is_path {
            let HostPath(path) = object.extract()?;
            return Ok((Self::Path(path), Origin::default()));
        }
        let (device, origin) = PyDevice::new(object)?;
        Ok((Self::Device(Arc::new(device)), origin))
    }
}

/// Returns the options for a part of a file.
pub(crate) fn part(partition: Option<u32>, offset: u64, norecovery: bool) -> ImageOptions {
    let mut options = ImageOptions::default();
    (options.offset, options.partition, options.norecovery) = (offset, partition, norecovery);
    options
}

/// Partition: number, byte offset, size in bytes, description, contents.
type PartitionFields = (u32, u64, u64, String, &'static str);

/// Returns the partitions of a disk, or `None` if it has no partition table.
#[pyfunction]
pub(crate) fn partitions(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
) -> PyResult<Option<Vec<PartitionFields>>> {
    let (place, origin) = ImageSource::of(source)?;
    let (device, name): (Arc<dyn BlockDevice>, PathBuf) = match place {
        ImageSource::Device(device) => (device, "the image".into()),
        ImageSource::Path(path) => {
            let opened = py.detach(|| File::open(&path).and_then(FileDevice::new));
            let failed = |source| Error::Host { operation: "open", path: path.clone(), source };
            let opened = opened.map_err(failed).map_err(|error| error::plain(py, &error));
            (Arc::new(opened?), path)
        }
    };
    let listed = py.detach(|| -> Result<_> {
        let found = partition::read(&*device);
        let found = found.map_err(|source| Error::Partition { image: name, source })?;
        Ok(found.map(|all| all.into_iter().map(|one| described(&device, one)).collect()))
    });
    listed.map_err(|error| error::exception(py, &error, &origin))
}

fn described(device: &Arc<dyn BlockDevice>, found: partition::Partition) -> PartitionFields {
    let partition::Partition { number, offset, len, description } = found;
    let window = WindowDevice::new(Arc::clone(device), offset, len);
    let contents = match window.and_then(|window| Signature::of(&window)) {
        Ok(Signature::Ext) => Format::Ext4.name(),
        Ok(Signature::Xfs) => Format::Xfs.name(),
        Ok(Signature::Zeros) => "zeros",
        Ok(Signature::Unknown | Signature::Lost(_)) => "unknown",
        Ok(Signature::Other(found)) => found.what,
        Err(_) => "unreadable",
    };
    (number, offset, len, description, contents)
}
