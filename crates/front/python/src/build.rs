//! Building images.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::UnknownFormat;
use diskwright::build as engine;
use diskwright::build::{
    BuildError, BuildOptions, BuildReport, BuildSource, Container, Dedupe, FeatureChange, Format,
    ImageFile, ManifestFile, Owner, PlacedSource, Progress, Reference,
};
use diskwright::output::{OutputFormat, OutputOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{self, fields};
use crate::hook::Hook;
use crate::names::{HostPath, Name};

/// Source: a path or a name in command-line syntax.
#[derive(FromPyObject)]
struct SourceArg(HostPath, Name, bool);

/// Arguments of a build.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BuildArgs {
    sources: Vec<SourceArg>,
    image: HostPath,
    fs: String,
    size: Option<u64>,
    free: u64,
    label: Option<Name>,
    uuid: Option<[u8; 16]>,
    features: Vec<String>,
    block_size: Option<u32>,
    inode_size: Option<u32>,
    inodes: Option<u64>,
    small: bool,
    dedupe: Option<String>,
    owner: Option<(u32, u32)>,
    platform: Option<String>,
    threads: Option<usize>,
    force: bool,
    source_date_epoch: Option<i64>,
    output: String,
}

fn value_error(problem: impl Into<String>) -> PyErr {
    PyValueError::new_err(problem.into())
}

pub(crate) fn format(name: &str) -> PyResult<Format> {
    name.parse().map_err(|error: UnknownFormat| value_error(error.to_string()))
}

pub(crate) fn output(name: &str) -> PyResult<OutputOptions> {
    let formats =
        [OutputFormat::Raw, OutputFormat::Qcow2, OutputFormat::Sparse, OutputFormat::Zstd];
    let format = formats.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        let names = formats.map(OutputFormat::name).join(", ");
        value_error(format!("output is {name:?}: it must be one of {names}"))
    })?;
    Ok(OutputOptions::default().format(format))
}

pub(crate) fn dedupe(name: Option<&str>) -> PyResult<Option<Dedupe>> {
    match name {
        None => Ok(None),
        Some("files") => Ok(Some(Dedupe::Files)),
        Some("blocks") => Ok(Some(Dedupe::Blocks)),
        Some(other) => {
            Err(value_error(format!("dedupe is {other:?}: it must be \"files\" or \"blocks\"")))
        }
    }
}

pub(crate) fn features(names: &[String]) -> PyResult<Vec<FeatureChange>> {
    names.iter().map(|name| name.parse().map_err(|problem: String| value_error(problem))).collect()
}

impl BuildArgs {
    fn options(self) -> PyResult<BuildOptions> {
        let mut sources =
            self.sources.iter().map(|source| self.source(source)).collect::<PyResult<Vec<_>>>()?;
        let source = match sources.len() {
            0 => return Err(value_error("a build needs at least one source")),
            1 if sources[0].at.is_empty() => sources.remove(0).source,
            _ => BuildSource::Several(sources),
        };
        if self.threads == Some(0) {
            return Err(value_error("threads must be at least 1"));
        }
        let mut options = BuildOptions::new(source, self.image.0, format(&self.fs)?);
        options.features = features(&self.features)?;
        options.dedupe = dedupe(self.dedupe.as_deref())?;
        options.output = output(&self.output)?;
        (options.size, options.free) = (self.size, self.free);
        options.label = self.label.map(|label| label.0);
        options.uuid = self.uuid;
        (options.block_size, options.inode_size) = (self.block_size, self.inode_size);
        (options.inodes, options.small) = (self.inodes, self.small);
        options.owner = self.owner.map(|(uid, gid)| Owner { uid, gid });
        (options.threads, options.force) = (self.threads, self.force);
        options.source_date_epoch = self.source_date_epoch;
        Ok(options)
    }

    fn source(&self, SourceArg(path, at, is_path): &SourceArg) -> PyResult<PlacedSource> {
        let source = match is_path {
            true => BuildSource::Files(path.0.clone()),
            false => self.named(&path.0)?,
        };
        Ok(PlacedSource { source, at: trim(&at.0).to_vec() })
    }

    /// Parses a source in command-line syntax.
    fn named(&self, path: &PathBuf) -> PyResult<BuildSource> {
        let text = OsString::from(path);
        if let Some(file) = ImageFile::parse(&text) {
            return Ok(BuildSource::Image(file));
        }
        if let Some(reference) = text.to_str().and_then(Reference::parse) {
            let platform = self.platform.as_deref().map(str::parse).transpose();
            let mut container = Container::new(reference.map_err(value_error)?);
            container.platform =
                platform.map_err(|_| value_error("platform must be OS/ARCH[/VARIANT]"))?;
            return Ok(container.into());
        }
        Ok(match ManifestFile::parse(&text) {
            Some(manifest) => BuildSource::Manifest(manifest),
            None => BuildSource::Files(path.clone()),
        })
    }
}

/// Removes slashes at both ends of a path.
fn trim(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(start, |end| end + 1);
    &path[start..end]
}

impl Progress for Hook {
    fn made(&self, entries: u64, bytes: u64) {
        self.tell((entries, bytes));
    }

    fn goes_on(&self) -> bool {
        Hook::goes_on(self)
    }
}

/// Returns the report as JSON, or raises the exception.
pub(crate) fn finished(
    py: Python<'_>,
    hook: &Hook,
    built: Result<BuildReport, BuildError>,
) -> PyResult<String> {
    let report = built.map_err(|error| error::plain(py, &error.into()));
    hook.end(report.and_then(|report| {
        serde_json::to_string(&report).map_err(|error| value_error(error.to_string()))
    }))
}

/// Builds an image and returns the report as JSON.
#[pyfunction]
pub(crate) fn build(
    py: Python<'_>,
    args: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (options, hook) = (fields::<BuildArgs>(args)?.options()?, Hook::new(progress));
    let built = py.detach(|| {
        hook.tell_now((0_u64, 0_u64));
        if hook.stops() {
            return Err(BuildError::Stopped);
        }
        let built = engine::build(&options, &hook);
        if let Ok(report) = &built {
            hook.tell_now((report.entries, report.data_bytes));
        }
        built
    });
    finished(py, &hook, built)
}
