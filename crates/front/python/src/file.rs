//! Open files with positional reads and writes. The Python half implements cursors with `io`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use diskwright::{Error, fs};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::kept::ProcessLocal;
use crate::open::SharedImage;
use crate::stat::Stat;

/// Maximum number of bytes read through an intermediate buffer at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Open file of an image, with positional reads and writes.
#[pyclass(frozen, module = "diskwright._diskwright")]
pub(crate) struct File {
    open: Arc<SharedImage>,
    file: RwLock<Option<ProcessLocal<fs::File>>>,
}

impl File {
    pub(crate) fn new(open: Arc<SharedImage>, file: fs::File) -> Self {
        open.files.fetch_add(1, Ordering::Relaxed);
        Self { open, file: RwLock::new(Some(ProcessLocal::new(file))) }
    }

    fn call<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&fs::File) -> diskwright::Result<R> + Send,
    ) -> PyResult<R> {
        self.open.detached(py, || {
            let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
            act(file.as_ref().and_then(ProcessLocal::get).ok_or(Error::Closed)?)
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.open.files.fetch_sub(1, Ordering::Relaxed);
    }
}

#[pymethods]
impl File {
    /// Reads at most `size` bytes at an offset. Returns fewer bytes only at the end of the file.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // Limit the allocation by the file size, because `size` may be any number.
        let bytes = self.call(py, |file| {
            let left = file.metadata()?.len().saturating_sub(offset);
            let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
            let mut bytes = Vec::new();
            if bytes.try_reserve_exact(size).is_err() {
                return Err(Error::file(b"", fs::FsError::FileTooLarge));
            }
            bytes.resize(size, 0);
            let count = file.read_at(&mut bytes, offset)?;
            bytes.truncate(count);
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads into a buffer at an offset and returns the number of bytes.
    fn preadinto(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let wanted = buffer.len_bytes();
        if wanted > PIECE_BYTES {
            let bytes = self.pread(py, wanted, offset)?;
            return fill(py, &buffer, bytes.as_bytes());
        }
        let (bytes, count) = self.call(py, |file| {
            let mut bytes = vec![0; wanted];
            let count = file.read_at(&mut bytes, offset)?;
            Ok((bytes, count))
        })?;
        fill(py, &buffer, &bytes[..count])
    }

    /// Writes all data at an offset and returns the number of bytes.
    fn pwrite(&self, py: Python<'_>, data: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let data = data.to_vec(py)?;
        self.call(py, |file| file.write_at(&data, offset))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(size))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, fs::File::sync_all)
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |file| Ok(file.metadata()?.len()))
    }

    /// Returns the offset of the next data at or after an offset, or `None`.
    fn next_data(&self, py: Python<'_>, offset: u64) -> PyResult<Option<u64>> {
        self.call(py, |file| file.next_data(offset))
    }

    /// Returns the offset of the next hole at or after an offset, or `None` after the end of the file.
    fn next_hole(&self, py: Python<'_>, offset: u64) -> PyResult<Option<u64>> {
        self.call(py, |file| file.next_hole(offset))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.call(py, fs::File::metadata).map(Stat)
    }

    /// Closes the file.
    fn close(&self, py: Python<'_>) {
        let file = py.detach(|| self.file.write().unwrap_or_else(PoisonError::into_inner).take());
        drop(file);
    }
}

/// Copies bytes to the start of a buffer and returns their number.
fn fill(py: Python<'_>, buffer: &PyBuffer<u8>, bytes: &[u8]) -> PyResult<usize> {
    if bytes.len() == buffer.len_bytes() {
        buffer.copy_from_slice(py, bytes)?;
        return Ok(bytes.len());
    }
    // The rest of the buffer is unchanged.
    let mut all = buffer.to_vec(py)?;
    all[..bytes.len()].copy_from_slice(bytes);
    buffer.copy_from_slice(py, &all)?;
    Ok(bytes.len())
}
