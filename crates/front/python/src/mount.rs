//! Mounts. A separate process, `diskwright._server`, serves each mount, because a process that reads a mount it serves
//! itself cannot be killed.

use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use diskwright::mount::{MountOptions, UnmountOptions, Unmounter, unmount_on_signals};
use diskwright::{Error, Image, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::locks::lock;
use crate::names::HostPath;
use crate::place::part;

/// Mounted image. Threads that do not use Python answer its requests.
#[pyclass(frozen, module = "diskwright._diskwright")]
pub(crate) struct Mount {
    unmounter: Unmounter,
    /// `None` after joining.
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

/// Mounts the image and returns when the mount is usable.
fn start(image: Image, point: &Path, options: MountOptions) -> Result<Mount> {
    let mount = image.mount(point, options)?;
    let unmounter = mount.unmounter();
    unmount_on_signals(mount.unmounter())?;
    let (ready, is_ready) = mpsc::channel();
    let report_ready = move || {
        // The receiver waits for this message.
        let _ = ready.send(());
    };
    let serve = move || mount.serve(report_ready);
    let thread = thread::Builder::new().name("diskwright mount".into()).spawn(serve);
    let thread = thread.map_err(Error::Mount)?;
    match is_ready.recv() {
        Ok(()) => Ok(Mount { unmounter, thread: Mutex::new(Some(thread)) }),
        // The session ended before it was ready.
        Err(_) => Err(end(thread).err().unwrap_or(Error::Closed)),
    }
}

fn end(thread: JoinHandle<Result<()>>) -> Result<()> {
    let panicked =
        || Error::Mount(std::io::Error::other("the thread that served the mount panicked"));
    thread.join().unwrap_or_else(|_| Err(panicked()))
}

#[pymethods]
impl Mount {
    #[new]
    fn new(
        py: Python<'_>,
        source: HostPath,
        point: HostPath,
        writable: bool,
        partition: Option<u32>,
        offset: u64,
        words: &str,
    ) -> PyResult<Self> {
        let mut options = MountOptions::default();
        options.read_only = !writable;
        options.apply(words).map_err(PyValueError::new_err)?;
        let started = py.detach(|| -> Result<_> {
            let open = part(partition, offset, false).write(!options.read_only);
            start(open.open_to_mount(&source.0)?, &point.0, options)
        });
        started.map_err(|error| error::plain(py, &error))
    }

    /// Unmounts. If the mount is in use, it disappears immediately and ends when its last user closes it.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        let unmounted = py.detach(|| self.unmounter.unmount().map_err(Error::Mount));
        unmounted.map_err(|error| error::plain(py, &error))
    }

    /// Returns when the mount has ended, all changes are durable and the image is closed.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| {
            let thread = lock(&self.thread).take();
            thread.map_or(Ok(()), end)
        });
        ended.map_err(|error| error::plain(py, &error))
    }
}

/// Writes back what the kernel caches of a mount and unmounts it. Fails with EBUSY while programs use it, unless `lazy`.
#[pyfunction]
pub(crate) fn unmount(py: Python<'_>, point: HostPath, lazy: bool) -> PyResult<()> {
    // The server reports when the image is closed.
    let options = UnmountOptions::default().lazy(lazy).patience(Duration::ZERO);
    let unmounted = py.detach(|| diskwright::mount::unmount(&point.0, &options));
    unmounted.map(drop).map_err(|error| error::plain(py, &error))
}
