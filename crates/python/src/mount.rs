//! Mounts, served by a thread of this process.

use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle};

use diskwright::mount::{Mount as EngineMount, MountOptions, OpenToMount, Unmounter};
use diskwright::{Error, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::kept::Kept;
use crate::locks::lock;
use crate::names::HostPath;
use crate::place::part;

struct Serving {
    unmounter: Unmounter,
    thread: JoinHandle<Result<()>>,
}

/// An image that is mounted. Its requests are answered by threads that need nothing of Python.
#[pyclass(frozen, module = "diskwright._diskwright")]
pub(crate) struct Mount {
    /// `None` once it is unmounted.
    serving: Mutex<Option<Kept<Serving>>>,
}

/// Mounts, and waits until the mount can be used.
fn start(image: OpenToMount, point: &std::path::Path, options: MountOptions) -> Result<Serving> {
    let mount = EngineMount::new(image, point, options)?;
    let unmounter = mount.unmounter();
    let (ready, is_ready) = mpsc::channel();
    let tell = move || {
        // Whoever asked waits for it.
        let _ = ready.send(());
    };
    let serve = move || mount.serve(tell);
    let thread = thread::Builder::new().name("diskwright mount".into()).spawn(serve);
    let thread = thread.map_err(Error::Mount)?;
    match is_ready.recv() {
        Ok(()) => Ok(Serving { unmounter, thread }),
        // It has ended without having been ready.
        Err(_) => Err(end(thread).err().unwrap_or(Error::Closed)),
    }
}

fn end(thread: JoinHandle<Result<()>>) -> Result<()> {
    let panicked = || Error::Mount(std::io::Error::other("the thread that served it has panicked"));
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
            let image =
                OpenToMount::open(&source.0, &part(partition, offset, false), options.read_only)?;
            start(image, &point.0, options)
        });
        let serving = started.map_err(|error| error::plain(py, &error))?;
        Ok(Self { serving: Mutex::new(Some(Kept::new(serving))) })
    }

    /// Unmounts, and returns when the image is written and free.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        let unmounted = py.detach(|| -> Result<()> {
            let Some(serving) = lock(&self.serving).take().and_then(Kept::take) else {
                return Ok(());
            };
            let unmounted = serving.unmounter.unmount().map_err(Error::Mount);
            match unmounted {
                Ok(()) => end(serving.thread),
                // Nobody would end the thread.
                Err(error) => {
                    *lock(&self.serving) = Some(Kept::new(serving));
                    Err(error)
                }
            }
        });
        unmounted.map_err(|error| error::plain(py, &error))
    }

    #[getter]
    fn mounted(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let serving = lock(&self.serving);
            serving
                .as_ref()
                .and_then(Kept::get)
                .is_some_and(|serving| !serving.thread.is_finished())
        })
    }
}
