//! Where an image is: a path of the host or a Python object, and the part of it.

use std::path::PathBuf;
use std::sync::Arc;

use diskwright::OpenImage;
use diskwright::fs::BlockDevice;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::device::{Origin, PyDevice};
use crate::names::HostPath;

/// What an image is opened from.
pub(crate) enum Place {
    Path(PathBuf),
    Device(Arc<dyn BlockDevice>),
}

impl Place {
    /// What an object names, or is.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<(Self, Origin)> {
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

/// The part of a file that an image is.
pub(crate) fn part(partition: Option<u32>, offset: u64, norecovery: bool) -> OpenImage {
    let mut options = OpenImage::default();
    (options.offset, options.partition, options.norecovery) = (offset, partition, norecovery);
    options
}
