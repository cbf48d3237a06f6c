//! What an image and all that is open in it share.

use std::sync::{PoisonError, RwLock};

use diskwright::fs::Image;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::device::{self, Origin};
use crate::error;
use crate::kept::{Kept, bury};

/// What an image and all that is open in it share here.
pub(crate) struct Open {
    /// `None` once it is closed.
    pub(crate) image: RwLock<Option<Kept<Image>>>,
    pub(crate) origin: Origin,
    /// Of the process that opened it.
    pub(crate) home: Kept<()>,
    pub(crate) is_writable: bool,
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
