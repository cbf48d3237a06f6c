//! Compiled half of the Python package `diskwright`. It contains a small set of classes and functions; the Python half
//! (`python/src/diskwright`) provides the public API.
//!
//! Three rules apply everywhere:
//! - Engine calls, and waits for locks of this crate, run detached from the interpreter (without its lock), because a
//!   device may be a Python object whose calls attach again.
//! - Values that belong to an image record the process that created them (`kept::ProcessLocal`). After a fork the child neither
//!   uses nor closes its copies.
//! - Every engine error is raised as an exception (`error`).
#![forbid(unsafe_code)]

mod build;
mod check;
mod clones;
mod convert;
mod device;
mod diff;
mod error;
mod file;
mod hook;
mod image;
mod kept;
mod listing;
mod locks;
#[cfg(target_os = "linux")]
mod mount;
mod names;
mod open;
mod place;
mod stat;
mod words;

use pyo3::prelude::*;

/// Compiled half of the package diskwright. Use that package instead.
#[pymodule(gil_used = false)]
mod _diskwright {
    #[pymodule_export]
    use super::build::build;
    #[pymodule_export]
    use super::check::{check, info, repair, restore};
    #[pymodule_export]
    use super::clones::{clone, commit, reset, snapshot};
    #[pymodule_export]
    use super::convert::convert;
    #[pymodule_export]
    use super::diff::{diff, layer};
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::image::Volume;
    #[pymodule_export]
    use super::listing::{DirEntry, ScanDir, Tree};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use super::mount::{Mount, unmount};
    #[pymodule_export]
    use super::place::partitions;
    #[pymodule_export]
    use super::stat::Stat;

    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    /// Registers the fork handler and the words of messages.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::words::speak_python();
        let py = module.py();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        let os = py.import("os")?;
        if os.hasattr("register_at_fork")? {
            let arguments = PyDict::new(py);
            arguments.set_item("after_in_child", wrap_pyfunction!(super::forked, module)?)?;
            os.call_method("register_at_fork", (), Some(&arguments))?;
        }
        Ok(())
    }
}

/// Called in a child after a fork.
#[pyfunction]
fn forked() {
    kept::forked();
}
