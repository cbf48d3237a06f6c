//! File attributes in the form of `os.stat_result`.

use diskwright::fs::{Metadata, Timestamp};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Value of `st_blksize`, independent of the block size.
const BLKSIZE: u32 = 4096;

/// Attributes of a file, with the fields of os.stat_result.
#[pyclass(frozen, eq, module = "diskwright")]
#[derive(Clone, PartialEq)]
pub(crate) struct Stat(pub(crate) Metadata);

fn seconds(time: Timestamp) -> f64 {
    time.sec as f64 + f64::from(time.nsec) * 1e-9
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}

#[pymethods]
impl Stat {
    /// Type and permission bits.
    #[getter]
    fn st_mode(&self) -> u32 {
        self.0.mode()
    }

    /// Inode number.
    #[getter]
    fn st_ino(&self) -> u64 {
        self.0.ino().0
    }

    /// Always 0: an image is one file system.
    #[getter]
    fn st_dev(&self) -> u64 {
        0
    }

    /// Number of hard links.
    #[getter]
    fn st_nlink(&self) -> u64 {
        self.0.nlink()
    }

    /// User ID of the owner.
    #[getter]
    fn st_uid(&self) -> u32 {
        self.0.uid()
    }

    /// Group ID.
    #[getter]
    fn st_gid(&self) -> u32 {
        self.0.gid()
    }

    /// Size in bytes.
    #[getter]
    fn st_size(&self) -> u64 {
        self.0.len()
    }

    /// Access time in seconds since 1970.
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.0.atime())
    }

    /// Modification time in seconds since 1970.
    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.0.mtime())
    }

    /// Time of the last change of contents or attributes, in seconds since 1970.
    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.0.ctime())
    }

    /// Creation time in seconds since 1970; None if the image does not store it.
    #[getter]
    fn st_birthtime(&self) -> Option<f64> {
        self.0.crtime().map(seconds)
    }

    /// Access time in nanoseconds since 1970.
    #[getter]
    fn st_atime_ns(&self) -> i128 {
        nanoseconds(self.0.atime())
    }

    /// Modification time in nanoseconds since 1970.
    #[getter]
    fn st_mtime_ns(&self) -> i128 {
        nanoseconds(self.0.mtime())
    }

    /// Time of the last change of contents or attributes, in nanoseconds since 1970.
    #[getter]
    fn st_ctime_ns(&self) -> i128 {
        nanoseconds(self.0.ctime())
    }

    /// Creation time in nanoseconds since 1970; None if the image does not store it.
    #[getter]
    fn st_birthtime_ns(&self) -> Option<i128> {
        self.0.crtime().map(nanoseconds)
    }

    /// Allocated space in units of 512 bytes.
    #[getter]
    fn st_blocks(&self) -> u64 {
        self.0.blocks()
    }

    /// Preferred I/O size in bytes.
    #[getter]
    fn st_blksize(&self) -> u32 {
        BLKSIZE
    }

    /// Device number of a device file, encoded like os.makedev on Linux.
    #[getter]
    fn st_rdev(&self) -> u64 {
        let number = self.0.rdev();
        let (major, minor) = (u64::from(number.major), u64::from(number.minor));
        ((major & 0xffff_f000) << 32)
            | ((major & 0xfff) << 8)
            | ((minor & !0xff) << 12)
            | (minor & 0xff)
    }

    /// Major number of a device file.
    #[getter]
    fn st_major(&self) -> u32 {
        self.0.rdev().major
    }

    /// Minor number of a device file.
    #[getter]
    fn st_minor(&self) -> u32 {
        self.0.rdev().minor
    }

    /// Returns the first ten fields as a tuple, in the order of os.stat_result.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let time = |time: Timestamp| time.sec;
        let it = &self.0;
        (
            it.mode(),
            it.ino().0,
            0_u64,
            it.nlink(),
            it.uid(),
            it.gid(),
            it.len(),
            time(it.atime()),
            time(it.mtime()),
            time(it.ctime()),
        )
            .into_pyobject(py)
    }

    fn __len__(&self) -> usize {
        10
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let place = if index < 0 { index + 10 } else { index };
        let place = usize::try_from(place).ok().filter(|place| *place < 10);
        let place = place.ok_or_else(|| PyIndexError::new_err("a stat result has 10 items"))?;
        self.fields(py)?.get_item(place)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.fields(py)?.try_iter()?.into_any())
    }

    fn __hash__(&self) -> u64 {
        self.0.ino().0
    }

    fn __repr__(&self) -> String {
        let it = &self.0;
        format!(
            "Stat(st_mode={:#o}, st_ino={}, st_nlink={}, st_uid={}, st_gid={}, st_size={}, st_mtime_ns={})",
            it.mode(),
            it.ino().0,
            it.nlink(),
            it.uid(),
            it.gid(),
            it.len(),
            nanoseconds(it.mtime()),
        )
    }
}
