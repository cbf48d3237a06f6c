//! Progress callbacks, which can cancel an operation by raising an exception.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::locks::lock;

/// Minimum interval between calls and between signal checks, in milliseconds.
const INTERVAL_MS: u64 = 50;

/// Optional callback and the exception it raised.
pub(crate) struct Hook {
    callback: Option<Py<PyAny>>,
    began: Instant,
    /// Earliest times of the next call and of the next signal check, in milliseconds after the start.
    call_from: AtomicU64,
    look_from: AtomicU64,
    stops: AtomicBool,
    raised: Mutex<Option<PyErr>>,
}

impl Hook {
    pub(crate) fn new(callback: Option<Py<PyAny>>) -> Self {
        let (call_from, look_from) = (AtomicU64::new(0), AtomicU64::new(INTERVAL_MS));
        let (stops, raised) = (AtomicBool::new(false), Mutex::new(None));
        Self { callback, began: Instant::now(), call_from, look_from, stops, raised }
    }

    /// Returns whether the interval has elapsed. Returns true to one thread only.
    fn is_time(&self, from: &AtomicU64) -> bool {
        let (now, relaxed) = (self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
        let at = from.load(relaxed);
        now >= at && from.compare_exchange(at, now + INTERVAL_MS, relaxed, relaxed).is_ok()
    }

    /// Calls the callback regardless of the interval. Must be called detached.
    pub(crate) fn tell_now(&self, arguments: impl for<'py> PyCallArgs<'py> + Send) {
        let Some(callback) = self.callback.as_ref().filter(|_| !self.stops()) else { return };
        self.attached(|py| callback.bind(py).call1(arguments).map(drop));
    }

    /// Calls the callback if the interval has elapsed. Must be called detached.
    pub(crate) fn tell(&self, arguments: impl for<'py> PyCallArgs<'py> + Send) {
        if self.callback.is_some() && self.is_time(&self.call_from) {
            self.tell_now(arguments);
        }
    }

    /// Returns whether to continue: the callback has not raised, and the main thread was not interrupted. Must be
    /// called detached.
    pub(crate) fn goes_on(&self) -> bool {
        if !self.stops() && self.is_time(&self.look_from) {
            // Signals are handled on the main thread. On other threads this has no effect.
            self.attached(|py| py.check_signals());
        }
        !self.stops()
    }

    /// Returns whether to cancel.
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    fn attached(&self, act: impl FnOnce(Python<'_>) -> PyResult<()>) {
        if let Some(Err(error)) = Python::try_attach(act) {
            lock(&self.raised).get_or_insert(error);
            self.stops.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the callback's exception, if any, instead of errors that followed from it.
    pub(crate) fn end<T>(&self, result: PyResult<T>) -> PyResult<T> {
        match lock(&self.raised).take() {
            Some(error) => Err(error),
            None => result,
        }
    }
}
