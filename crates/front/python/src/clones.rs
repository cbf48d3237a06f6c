//! Clones of images, and their snapshots.

use diskwright::clones::{self, CommitOptions, ResetTarget};
use pyo3::prelude::*;

use crate::error;
use crate::names::HostPath;

/// Creates clones of an image.
#[pyfunction]
pub(crate) fn clone(
    py: Python<'_>,
    base: HostPath,
    names: Vec<HostPath>,
    size: Option<u64>,
) -> PyResult<()> {
    let names: Vec<_> = names.into_iter().map(|name| name.0).collect();
    py.detach(|| clones::clone(&base.0, &names, size)).map_err(|e| error::plain(py, &e))
}

/// Keeps the state of a clone under another name.
#[pyfunction]
pub(crate) fn snapshot(py: Python<'_>, clone: HostPath, name: HostPath) -> PyResult<()> {
    py.detach(|| clones::snapshot(&clone.0, &name.0)).map_err(|e| error::plain(py, &e))
}

/// Discards the changes of a clone.
#[pyfunction]
pub(crate) fn reset(
    py: Python<'_>,
    clone: HostPath,
    to: Option<HostPath>,
    to_base: bool,
) -> PyResult<()> {
    let target = match to {
        Some(snapshot) => ResetTarget::Snapshot(snapshot.0),
        None if to_base => ResetTarget::Base,
        None => ResetTarget::Last,
    };
    py.detach(|| clones::reset(&clone.0, &target)).map_err(|e| error::plain(py, &e))
}

/// Creates an image from a clone and its base.
#[pyfunction]
pub(crate) fn commit(
    py: Python<'_>,
    clone: HostPath,
    image: HostPath,
    base: Option<HostPath>,
    force: bool,
) -> PyResult<()> {
    let options = CommitOptions::new(clone.0, image.0).base(base.map(|base| base.0)).force(force);
    let committed = py.detach(|| clones::commit(&options, &mut |_| ()));
    committed.map(drop).map_err(|e| error::plain(py, &e))
}
