//! Devices implemented by Python objects: files with `seek`, `read` and `write`, or objects with `pread` and `pwrite`.
//!
//! The engine calls them from any thread, one call at a time. An exception raised by a device becomes the cause of the
//! resulting error. A device may use other images, but not its own image.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use diskwright::fs::BlockDevice;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::locks::lock;

/// Maximum size of a request in bytes, because an object temporarily needs twice the memory.
const PIECE_BYTES: usize = 8 << 20;

thread_local! {
    /// Devices whose Python code runs on this thread, innermost last.
    static SERVING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether this thread runs the code of a device.
pub(crate) fn is_serving() -> bool {
    SERVING.with_borrow(|serving| !serving.is_empty())
}

struct Serving;

impl Serving {
    fn begin(id: u64) -> Self {
        SERVING.with_borrow_mut(|serving| serving.push(id));
        Self
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.with_borrow_mut(|serving| serving.pop());
    }
}

/// Reference of an image to its Python device, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Origin(Option<Arc<State>>);

struct State {
    id: u64,
    /// Exception raised by the device since the last failed call.
    raised: Mutex<Option<PyErr>>,
    /// Last exception, even if it was already used as a cause.
    last: Mutex<Option<PyErr>>,
}

impl Origin {
    fn new() -> (Self, Arc<State>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (raised, last) = (Mutex::new(None), Mutex::new(None));
        let state = Arc::new(State { id, raised, last });
        (Self(Some(Arc::clone(&state))), state)
    }

    /// Rejects a call made by the device itself, which would deadlock.
    pub(crate) fn check(&self) -> PyResult<()> {
        let Some(state) = &self.0 else { return Ok(()) };
        if SERVING.with_borrow(|serving| serving.contains(&state.id)) {
            let problem = "the image is in use by its own device";
            return Err(PyOSError::new_err((libc::EDEADLK, problem)));
        }
        Ok(())
    }

    /// Takes the exception raised by the device since the last call of this method.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        lock(&self.0.as_ref()?.raised).take()
    }

    /// Returns the last exception of the device.
    pub(crate) fn last_raised(&self, py: Python<'_>) -> Option<PyErr> {
        lock(&self.0.as_ref()?.last).as_ref().map(|raised| raised.clone_ref(py))
    }
}

enum Calls {
    /// `pread(size, offset)` and `pwrite(data, offset)`.
    AtPlaces,
    /// `seek`, `read` and `write`.
    InOrder,
}

/// Device implemented by a Python object.
pub(crate) struct PyDevice {
    object: Py<PyAny>,
    calls: Calls,
    len: u64,
    /// Serialises calls. Acquired before the interpreter's lock.
    order: Mutex<()>,
    state: Arc<State>,
}

impl PyDevice {
    /// Wraps an object and reads its size.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<(Self, Origin)> {
        let py = object.py();
        let has = |name: &str| object.hasattr(name);
        let (calls, len) = if has("pread")? {
            let size = object.getattr(intern!(py, "size"))?;
            let size = if size.is_callable() { size.call0()? } else { size };
            (Calls::AtPlaces, size.extract()?)
        } else if has("seek")? && has("read")? {
            let end = object.call_method1(intern!(py, "seek"), (0, 2))?;
            let end = if end.is_none() { object.call_method0(intern!(py, "tell"))? } else { end };
            (Calls::InOrder, end.extract()?)
        } else {
            let name = object.get_type().qualname()?;
            let problem = format!(
                "an image must be a path, a file object with seek and read, or an object with size \
                 and pread, not {name}"
            );
            return Err(PyTypeError::new_err(problem));
        };
        let (origin, state) = Origin::new();
        let object = object.clone().unbind();
        Ok((Self { object, calls, len, order: Mutex::new(()), state }, origin))
    }

    /// Calls the object. An exception is stored and converted to an error.
    fn call<R>(
        &self,
        act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Result<R, String>>,
    ) -> io::Result<R> {
        let _order = lock(&self.order);
        let _serving = Serving::begin(self.state.id);
        let called = Python::try_attach(|py| match act(self.object.bind(py)) {
            Ok(answer) => answer.map_err(io::Error::other),
            Err(raised) => {
                let text = format!("the file object raised {raised}");
                *lock(&self.state.last) = Some(raised.clone_ref(py));
                *lock(&self.state.raised) = Some(raised);
                // Use an error kind that callers do not retry.
                Err(io::Error::other(text))
            }
        });
        called.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("bytes {offset}+{len} are past the end of the file object ({})", self.len),
            )),
        }
    }

    /// Reads at least one byte.
    fn read_some(
        &self,
        object: &Bound<'_, PyAny>,
        offset: u64,
        buf: &mut [u8],
    ) -> PyResult<Result<usize, String>> {
        let py = object.py();
        let wanted = buf.len().min(PIECE_BYTES);
        let read = match self.calls {
            Calls::AtPlaces => object.call_method1(intern!(py, "pread"), (wanted, offset))?,
            Calls::InOrder => {
                object.call_method1(intern!(py, "seek"), (offset,))?;
                object.call_method1(intern!(py, "read"), (wanted,))?
            }
        };
        if read.is_none() {
            return Ok(Err("the file object is non-blocking; open it in blocking mode".into()));
        }
        let Ok(bytes) = read.cast::<PyBytes>() else {
            let name = read.get_type().qualname()?;
            return Ok(Err(format!(
                "the file object returned {name} instead of bytes; open it in binary mode"
            )));
        };
        let bytes = bytes.as_bytes();
        Ok(match bytes.len() {
            0 => Err(format!(
                "the file object ends at byte {offset}, but had {} when it was opened",
                self.len
            )),
            count if count > wanted => Err(format!(
                "the file object returned {count} bytes, more than the {wanted} requested"
            )),
            count => {
                buf[..count].copy_from_slice(bytes);
                Ok(count)
            }
        })
    }

    /// Writes at least one byte.
    fn write_some(
        &self,
        object: &Bound<'_, PyAny>,
        offset: u64,
        data: &[u8],
    ) -> PyResult<Result<usize, String>> {
        let py = object.py();
        let data = PyBytes::new(py, &data[..data.len().min(PIECE_BYTES)]);
        let wanted = data.as_bytes().len();
        let written = match self.calls {
            Calls::AtPlaces => object.call_method1(intern!(py, "pwrite"), (data, offset))?,
            Calls::InOrder => {
                object.call_method1(intern!(py, "seek"), (offset,))?;
                object.call_method1(intern!(py, "write"), (data,))?
            }
        };
        Ok(match written.extract::<usize>() {
            Ok(count) if (1..=wanted).contains(&count) => Ok(count),
            _ => {
                let answer = written.repr()?;
                Err(format!("the file object returned {answer} for a write of {wanted} bytes"))
            }
        })
    }
}

impl BlockDevice for PyDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let rest = &mut buf[done..];
            done += self.call(|object| self.read_some(object, offset + done as u64, rest))?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            done += self.call(|object| self.write_some(object, offset + done as u64, rest))?;
        }
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        let zeros = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let count = (len - done).min(zeros.len() as u64);
            self.write_at(offset + done, &zeros[..count as usize])?;
            done += count;
        }
        Ok(())
    }

    /// Flushes the object and, if it has a file on the host, syncs it.
    fn flush(&self) -> io::Result<()> {
        self.call(|object| {
            let py = object.py();
            if object.hasattr(intern!(py, "flush"))? {
                object.call_method0(intern!(py, "flush"))?;
            }
            let number = object.call_method0(intern!(py, "fileno"));
            if let Some(number) = number.ok().and_then(|number| number.extract::<i32>().ok()) {
                py.import(intern!(py, "os"))?.call_method1(intern!(py, "fsync"), (number,))?;
            }
            Ok(Ok(()))
        })
    }
}
