//! Conversion of images.

use diskwright::build::{ConvertOptions, ConvertSize, ImageFile, convert as engine_convert};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::build::{dedupe, features, finished, format, output};
use crate::error::fields;
use crate::hook::Hook;
use crate::names::{HostPath, Name};

/// Arguments of a conversion.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ConvertArgs {
    source: HostPath,
    partition: Option<u32>,
    offset: u64,
    image: HostPath,
    fs: Option<String>,
    /// Size in bytes, or -1 for the minimum.
    size: Option<i64>,
    label: Option<Name>,
    keep_uuid: bool,
    features: Vec<String>,
    small: bool,
    dedupe: Option<String>,
    threads: Option<usize>,
    force: bool,
    source_date_epoch: Option<i64>,
    output: String,
}

impl ConvertArgs {
    fn options(self) -> PyResult<ConvertOptions> {
        let size = match self.size {
            None => ConvertSize::AsBefore,
            Some(-1) => ConvertSize::Least,
            Some(bytes) => ConvertSize::Given(u64::try_from(bytes).map_err(|_| {
                PyValueError::new_err("size must be a number of bytes, \"min\" or None")
            })?),
        };
        let from = ImageFile {
            path: self.source.0,
            offset: self.offset,
            partition: self.partition,
            devices: Default::default(),
        };
        let mut options = ConvertOptions::new(from, self.image.0);
        options.format = self.fs.as_deref().map(format).transpose()?;
        options.size = size;
        options.label = self.label.map(|label| label.0);
        options.keep_uuid = self.keep_uuid;
        options.features = features(&self.features)?;
        options.dedupe = dedupe(self.dedupe.as_deref())?;
        (options.small, options.threads, options.force) = (self.small, self.threads, self.force);
        options.source_date_epoch = self.source_date_epoch;
        options.output = output(&self.output)?;
        Ok(options)
    }
}

/// Converts an image and returns the report as JSON.
#[pyfunction]
pub(crate) fn convert(
    py: Python<'_>,
    args: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (options, hook) = (fields::<ConvertArgs>(args)?.options()?, Hook::new(progress));
    let converted = py.detach(|| engine_convert(&options, &hook));
    finished(py, &hook, converted)
}
