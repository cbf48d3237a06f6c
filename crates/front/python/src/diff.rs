//! Comparison of images and directories.

use std::path::{Path, PathBuf};

use diskwright::diff::{
    Compression, DiffOptions, Ignored, Observer, Side, diff as engine_diff, diff_to_layer_file,
    json,
};
use diskwright::{Image, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::names::HostPath;
use crate::place::part;

/// Side of a comparison: a directory, or an image with its partition.
#[derive(FromPyObject)]
pub(crate) struct SideArg(HostPath, Option<u32>);

/// Open side.
enum OpenSide {
    Image(Box<Image>),
    Directory(PathBuf),
}

impl OpenSide {
    fn new(SideArg(path, partition): &SideArg) -> Result<Self> {
        if path.0.is_dir() {
            return Ok(Self::Directory(path.0.clone()));
        }
        let image = part(*partition, 0, false).open(&path.0)?;
        Ok(Self::Image(Box::new(image)))
    }

    fn side(&self) -> Side<'_> {
        match self {
            Self::Image(image) => Side::Image(image),
            Self::Directory(path) => Side::Directory(path),
        }
    }
}

/// Observer that reports nothing.
struct Silent;

impl Observer for Silent {
    fn file(&mut self, _path: &[u8]) {}
    fn copied(&mut self, _bytes: u64) {}
    fn warning(&mut self, _message: &str) {}
}

fn options(ignore: &[String]) -> PyResult<DiffOptions> {
    let mut ignored = Ignored::default();
    for word in ignore {
        let flag = match &**word {
            "times" => &mut ignored.times,
            "owner" => &mut ignored.owner,
            "mode" => &mut ignored.mode,
            "xattrs" => &mut ignored.xattrs,
            "flags" => &mut ignored.flags,
            "links" => &mut ignored.links,
            other => {
                let problem = format!(
                    "{other:?} cannot be ignored: choose from times, owner, mode, xattrs, flags \
                     and links"
                );
                return Err(PyValueError::new_err(problem));
            }
        };
        *flag = true;
    }
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
    let mut options = DiffOptions::default();
    (options.ignored, options.threads) = (ignored, threads);
    Ok(options)
}

/// Compares two trees and returns each change as JSON.
#[pyfunction]
pub(crate) fn diff(
    py: Python<'_>,
    a: SideArg,
    b: SideArg,
    ignore: Vec<String>,
) -> PyResult<Vec<String>> {
    let options = options(&ignore)?;
    let changes = py.detach(|| -> Result<_> {
        let (a, b) = (OpenSide::new(&a)?, OpenSide::new(&b)?);
        let mut changes = Vec::new();
        engine_diff(a.side(), b.side(), &options, &mut Silent, &mut |change| {
            changes.push(json(change).to_string());
            Ok(())
        })?;
        Ok(changes)
    });
    changes.map_err(|error| error::plain(py, &error))
}

/// Writes the changes from the first tree to the second as a container image layer. Returns the report as JSON.
#[pyfunction]
pub(crate) fn layer(
    py: Python<'_>,
    a: SideArg,
    b: SideArg,
    output: HostPath,
    ignore: Vec<String>,
    force: bool,
) -> PyResult<String> {
    let options = options(&ignore)?;
    let report = py.detach(|| -> Result<_> {
        let (a, b) = (OpenSide::new(&a)?, OpenSide::new(&b)?);
        let (output, sides): (&Path, _) = (&output.0, (a.side(), b.side()));
        let compression = Compression::of_name(output);
        diff_to_layer_file(sides, &options, (output, force), compression, &mut Silent)
    });
    let report = report.map_err(|error| error::plain(py, &error))?;
    serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))
}
