//! The compiled half of the Python package `diskwright`: images, files and what is done to whole images, as few classes
//! and functions that the Python half (`python/src/diskwright`) makes pleasant. Nobody else imports it.
//!
//! Three rules hold everywhere:
//! - Work of the engine is done detached from the interpreter (without its lock), and what waits for a lock of ours, too:
//!   a device may be a Python object, whose calls attach again.
//! - What belongs to an image remembers in which process it was made (`kept::Kept`): after a fork the child's copies
//!   are neither used nor closed.
//! - No error of the engine becomes another one than an exception (`error`).
#![forbid(unsafe_code)]

mod build;
mod check;
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

/// The compiled half of the package diskwright: use that.
#[pymodule(gil_used = false)]
mod _diskwright {
    #[pymodule_export]
    use super::build::build;
    #[pymodule_export]
    use super::check::{check, info, repair, restore};
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

    /// Has the interpreter say when this process is a child.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
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
