//! What an image and all that is open in it share.

use std::sync::atomic::AtomicUsize;
use std::sync::{PoisonError, RwLock};

use diskwright::fs::Image;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::device::{self, Origin};
use crate::error;
use crate::kept::{Kept, bury};
use crate::names::{PathArg, decode};

/// What an image and all that is open in it share here.
pub(crate) struct Open {
    /// `None` once it is closed.
    pub(crate) image: RwLock<Option<Kept<Image>>>,
    pub(crate) origin: Origin,
    /// Of the process that opened it.
    pub(crate) home: Kept<()>,
    pub(crate) is_writable: bool,
    /// Number of file objects that exist.
    pub(crate) files: AtomicUsize,
}

impl Open {
    /// Refuses what must not be tried at all: in a child after a fork, and by the image's own device.
    pub(crate) fn check(&self) -> PyResult<()> {
        if !self.home.is_here() {
            let problem = "the image was opened before a fork, in another process: open it again";
            return Err(PyOSError::new_err((libc::EBADF, problem)));
        }
        self.origin.check()
    }

    /// Does something with the engine, detached.
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

    /// Does something with the image.
    pub(crate) fn call<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Image) -> diskwright::Result<R> + Send,
    ) -> PyResult<R> {
        self.detached(py, || {
            let image = self.image.read().unwrap_or_else(PoisonError::into_inner);
            let image = image.as_ref().and_then(Kept::get).ok_or(diskwright::Error::Closed)?;
            act(image)
        })
    }

    /// A number that no other image has while this one exists.
    pub(crate) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Does something with the image at paths. Refuses paths of another image.
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
            image.and_then(Kept::take).map_or(Ok(()), Image::close)
        })
    }

    pub(crate) fn is_closed(&self, py: Python<'_>) -> bool {
        !self.home.is_here()
            || py.detach(|| self.image.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }
}
