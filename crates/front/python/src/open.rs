//! State shared by an image and its open objects.

use std::sync::atomic::AtomicUsize;
use std::sync::{PoisonError, RwLock};

use diskwright::fs::Image;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::device::{self, Origin};
use crate::error;
use crate::kept::{ProcessLocal, bury};
use crate::names::{PathArg, decode};

/// State shared by an image and its open objects.
pub(crate) struct SharedImage {
    /// `None` after closing.
    pub(crate) image: RwLock<Option<ProcessLocal<Image>>>,
    pub(crate) origin: Origin,
    /// Belongs to the process that opened the image.
    pub(crate) home: ProcessLocal<()>,
    pub(crate) is_writable: bool,
    /// Number of existing file objects.
    pub(crate) files: AtomicUsize,
}

impl SharedImage {
    /// Rejects calls in a child after a fork, and by the image's own device.
    pub(crate) fn check(&self) -> PyResult<()> {
        if !self.home.is_here() {
            let problem = "the image was opened in another process before a fork; open it again";
            return Err(PyOSError::new_err((libc::EBADF, problem)));
        }
        self.origin.check()
    }

    /// Calls the engine, detached.
    pub(crate) fn detached<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce() -> diskwright::Result<R> + Send,
    ) -> PyResult<R> {
        self.check()?;
        let done = py.detach(|| {
            if !device::is_serving() {
                bury();
            }
            act()
        });
        done.map_err(|error| error::exception(py, &error, &self.origin))
    }

    /// Calls `act` with the image, detached.
    pub(crate) fn call<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Image) -> diskwright::Result<R> + Send,
    ) -> PyResult<R> {
        self.detached(py, || {
            let image = self.image.read().unwrap_or_else(PoisonError::into_inner);
            let image =
                image.as_ref().and_then(ProcessLocal::get).ok_or(diskwright::Error::Closed)?;
            act(image)
        })
    }

    /// Returns a number that identifies the image during its lifetime.
    pub(crate) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Same as [`Self::call`] with paths. Rejects paths of another image.
    pub(crate) fn call_at<R: Send>(
        &self,
        py: Python<'_>,
        paths: &[&PathArg],
        act: impl FnOnce(&Image) -> diskwright::Result<R> + Send,
    ) -> PyResult<R> {
        for path in paths {
            if path.image.is_some_and(|image| image != self.identity()) {
                let shown = decode(py, &path.bytes)?.unbind();
                let problem = "the path belongs to another image";
                return Err(PyOSError::new_err((libc::EXDEV, problem, shown)));
            }
        }
        self.call(py, act)
    }

    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.home.is_here() {
            return Ok(());
        }
        self.detached(py, || {
            let image = self.image.write().unwrap_or_else(PoisonError::into_inner).take();
            image.and_then(ProcessLocal::take).map_or(Ok(()), Image::close)
        })
    }

    pub(crate) fn is_closed(&self, py: Python<'_>) -> bool {
        !self.home.is_here()
            || py.detach(|| self.image.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }
}
