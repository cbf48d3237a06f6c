//! Listings of a directory, like `os.scandir`, and of a whole tree with attributes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use diskwright::Result;
use diskwright::fs::{self, FileType, Metadata};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error;
use crate::kept::ProcessLocal;
use crate::locks::lock;
use crate::names::{decode, join};
use crate::open::SharedImage;
use crate::stat::Stat;

/// Number of entries fetched at a time, to amortise detaching from the interpreter.
const BATCH: usize = 256;

/// Engine iterator whose items are fetched in batches.
struct Batches<I: Iterator + Send + 'static, T> {
    /// `None` at its end.
    items: Option<ProcessLocal<I>>,
    ready: VecDeque<Result<T>>,
}

impl<I: Iterator + Send + 'static, T: Send> Batches<I, T> {
    fn new(items: I) -> Self {
        Self { items: Some(ProcessLocal::new(items)), ready: VecDeque::new() }
    }

    fn next(&mut self, make: impl Fn(I::Item) -> Result<T>) -> Option<Result<T>> {
        if self.ready.is_empty()
            && let Some(items) = self.items.as_mut().and_then(ProcessLocal::get_mut)
        {
            self.ready.extend(items.by_ref().take(BATCH).map(make));
            if self.ready.len() < BATCH {
                self.items = None;
            }
        }
        self.ready.pop_front()
    }
}

/// Returns the next item of a listing.
fn advance<I, T>(
    py: Python<'_>,
    open: &SharedImage,
    batches: &Mutex<Batches<I, T>>,
    make: impl Fn(I::Item) -> Result<T> + Send,
) -> PyResult<Option<T>>
where
    I: Iterator + Send + 'static,
    T: Send,
{
    open.check()?;
    // Most items are buffered, so detaching is not worthwhile.
    let ready = batches.try_lock().ok().and_then(|mut batches| batches.ready.pop_front());
    let next = match ready {
        Some(item) => Some(item),
        None => py.detach(|| lock(batches).next(make)),
    };
    next.transpose().map_err(|error| error::exception(py, &error, &open.origin))
}

/// Directory entry as returned by the engine.
struct Listed {
    name: Vec<u8>,
    ino: u64,
    file_type: Option<FileType>,
}

fn listed(entry: Result<fs::DirEntry>) -> Result<Listed> {
    let entry = entry?;
    let (name, ino) = (entry.file_name().to_vec(), entry.ino().0);
    Ok(Listed { name, ino, file_type: entry.file_type().ok() })
}

/// Iterator over the entries of a directory.
#[pyclass(frozen, module = "diskwright._diskwright")]
pub(crate) struct ScanDir {
    open: Arc<SharedImage>,
    directory: Arc<[u8]>,
    batches: Mutex<Batches<fs::ReadDir, Listed>>,
}

impl ScanDir {
    pub(crate) fn new(open: Arc<SharedImage>, directory: Vec<u8>, entries: fs::ReadDir) -> Self {
        Self { open, directory: directory.into(), batches: Mutex::new(Batches::new(entries)) }
    }
}

#[pymethods]
impl ScanDir {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<DirEntry>> {
        let next = advance(py, &self.open, &self.batches, listed)?;
        let (open, directory) = (&self.open, &self.directory);
        Ok(next.map(|listed| DirEntry {
            open: Arc::clone(open),
            directory: Arc::clone(directory),
            listed,
        }))
    }

    /// Ends the listing.
    fn close(&self, py: Python<'_>) {
        let items = py.detach(|| {
            let mut batches = lock(&self.batches);
            batches.ready.clear();
            batches.items.take()
        });
        drop(items);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, py: Python<'_>, _details: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}

/// Directory entry, like os.DirEntry.
#[pyclass(frozen, module = "diskwright")]
pub(crate) struct DirEntry {
    open: Arc<SharedImage>,
    directory: Arc<[u8]>,
    listed: Listed,
}

impl DirEntry {
    fn whole_path(&self) -> Vec<u8> {
        join(&self.directory, &self.listed.name)
    }

    fn metadata(&self, py: Python<'_>, follows: bool) -> PyResult<Metadata> {
        let path = self.whole_path();
        self.open.call(py, |image| match follows {
            true => image.metadata(&path),
            false => image.symlink_metadata(&path),
        })
    }

    /// Returns whether the entry has a type. A dangling link has none.
    fn is(&self, py: Python<'_>, wanted: FileType, follows: bool) -> PyResult<bool> {
        match self.listed.file_type {
            Some(FileType::Symlink) if follows => {}
            Some(file_type) => return Ok(file_type == wanted),
            None => {}
        }
        match self.metadata(py, follows) {
            Ok(metadata) => Ok(metadata.file_type() == wanted),
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyFileNotFoundError>(py) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

#[pymethods]
impl DirEntry {
    /// Name of the entry.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.listed.name)
    }

    /// Directory path as passed to scandir, joined with the name.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.whole_path())
    }

    /// Returns the inode number.
    fn inode(&self) -> u64 {
        self.listed.ino
    }

    /// Returns whether the entry is a directory, or a symbolic link to one.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Directory, follow_symlinks)
    }

    /// Returns whether the entry is a regular file, or a symbolic link to one.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Regular, follow_symlinks)
    }

    /// Returns whether the entry is a symbolic link.
    fn is_symlink(&self, py: Python<'_>) -> PyResult<bool> {
        self.is(py, FileType::Symlink, false)
    }

    /// Returns the attributes of the entry.
    #[pyo3(signature = (*, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Stat> {
        self.metadata(py, follow_symlinks).map(Stat)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<DirEntry {}>", decode(py, &self.listed.name)?.repr()?))
    }
}

/// File visited by a walk.
struct Visited {
    path: Vec<u8>,
    metadata: Metadata,
}

fn visited(entry: Result<fs::WalkEntry>) -> Result<Visited> {
    let entry = entry?;
    Ok(Visited { path: entry.path().to_vec(), metadata: *entry.metadata() })
}

/// Iterator over all files below a directory, with attributes.
#[pyclass(frozen, module = "diskwright._diskwright")]
pub(crate) struct Tree {
    open: Arc<SharedImage>,
    batches: Mutex<Batches<fs::Walk, Visited>>,
    /// Callback for errors. Without it, errors are raised.
    onerror: Option<Py<PyAny>>,
}

impl Tree {
    pub(crate) fn new(open: Arc<SharedImage>, walk: fs::Walk, onerror: Option<Py<PyAny>>) -> Self {
        Self { open, batches: Mutex::new(Batches::new(walk)), onerror }
    }

    /// Reports an error of one file to `onerror`, or returns it.
    fn report(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        let is_of_file = error.is_instance_of::<PyOSError>(py)
            && !error.is_instance_of::<pyo3::exceptions::PyValueError>(py);
        match &self.onerror {
            Some(onerror) if is_of_file => onerror.call1(py, (error,)).map(drop),
            _ => Err(error),
        }
    }
}

#[pymethods]
impl Tree {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyString>, Stat)>> {
        self.open.check()?;
        let next = loop {
            match advance(py, &self.open, &self.batches, visited) {
                Ok(next) => break next,
                Err(error) => self.report(py, error)?,
            }
        };
        next.map(|Visited { path, metadata }| Ok((decode(py, &path)?, Stat(metadata)))).transpose()
    }
}
