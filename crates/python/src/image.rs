//! An open image: opening, closing, and all that is done by path.

use std::sync::{Arc, RwLock};

use diskwright::copy::CopyOptions;
use diskwright::fs::{
    BlockDevice, DeviceNumber, Ext4Options, FileTimes, FormatOptions, Image, ImageOptions,
    OpenOptions, RenameMode, SpecialFile, Timestamp, XfsOptions,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::device::Origin;
use crate::error;
use crate::file::File;
use crate::kept::Kept;
use crate::listing::{ScanDir, Tree};
use crate::names::{HostPath, Name, decode};
use crate::open::Open;
use crate::place::Place;
use crate::stat::Stat;

/// An open image.
#[pyclass(frozen, subclass, module = "diskwright._diskwright")]
pub(crate) struct Volume {
    pub(crate) open: Arc<Open>,
}

/// What a new file system shall be.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct NewFs {
    fs: String,
    size: Option<u64>,
    label: Option<String>,
    uuid: Option<[u8; 16]>,
    features: String,
    block_size: Option<u32>,
    small: bool,
}

impl NewFs {
    fn options(&self) -> PyResult<FormatOptions> {
        let label = self.label.clone().unwrap_or_default();
        Ok(match &*self.fs {
            "ext4" => {
                let mut options = Ext4Options::new().label(label).features(&self.features);
                options = self.uuid.map_or(options.clone(), |uuid| options.uuid(uuid));
                self.block_size.map_or(options.clone(), |bytes| options.block_size(bytes)).into()
            }
            "xfs" => {
                let mut options = XfsOptions::new().label(label).features(&self.features);
                options = options.allow_small(self.small);
                options = self.uuid.map_or(options.clone(), |uuid| options.uuid(uuid));
                self.block_size.map_or(options.clone(), |bytes| options.block_size(bytes)).into()
            }
            other => {
                let problem = format!("fs is {other:?}: it is \"ext4\" or \"xfs\"");
                return Err(PyValueError::new_err(problem));
            }
        })
    }

    /// Makes the file system on a device, or in a new file.
    fn make(&self, py: Python<'_>, place: Place, origin: &Origin) -> PyResult<Image> {
        let options = self.options()?;
        let made = match place {
            Place::Path(path) => {
                let problem = "a new image in a file needs a size";
                let size = self.size.ok_or_else(|| PyValueError::new_err(problem))?;
                py.detach(|| Image::create(path, size, options))
            }
            Place::Device(device) => py.detach(|| Image::format(device, options)),
        };
        made.map_err(|error| error::exception(py, &error, origin))
    }
}

fn time(nanoseconds: i128) -> PyResult<Timestamp> {
    let (sec, nsec) =
        (nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000));
    let problem = |_| PyValueError::new_err("a time too far from 1970");
    Ok(Timestamp { sec: sec.try_into().map_err(problem)?, nsec: nsec as u32 })
}

/// The path itself, or what it leads to.
fn followed(image: &Image, path: &[u8], follow: bool) -> diskwright::Result<Vec<u8>> {
    if follow { image.canonicalize(path) } else { Ok(path.to_vec()) }
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (source, /, *, writable, partition, offset, norecovery, cache_bytes, owner, new))]
    #[allow(clippy::too_many_arguments, reason = "they are named where it is called")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        writable: bool,
        partition: Option<u32>,
        offset: u64,
        norecovery: bool,
        cache_bytes: Option<usize>,
        owner: (u32, u32),
        new: Option<NewFs>,
    ) -> PyResult<Self> {
        let (place, origin) = Place::of(source)?;
        origin.check()?;
        let mut options = ImageOptions::new().write(writable).offset(offset);
        options = options.norecovery(norecovery).owner(owner.0, owner.1);
        options = partition.map_or(options.clone(), |number| options.partition(number));
        options = cache_bytes.map_or(options.clone(), |bytes| options.cache_bytes(bytes));
        let image = match new {
            Some(new) => new.make(py, place, &origin)?,
            None => py
                .detach(|| match place {
                    Place::Path(path) => options.open(path),
                    Place::Device(device) => options.open_device(device as Arc<dyn BlockDevice>),
                })
                .map_err(|error| error::exception(py, &error, &origin))?,
        };
        let is_writable = image.is_writable();
        let (image, home) = (RwLock::new(Some(Kept::new(image))), Kept::new(()));
        Ok(Self { open: Arc::new(Open { image, origin, home, is_writable }) })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.open.close(py)
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.open.is_closed(py)
    }

    #[getter]
    fn writable(&self) -> bool {
        self.open.is_writable
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.open.call(py, Image::sync)
    }

    fn _statfs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.open.call(py, Image::statfs)?;
        let totals = PyDict::new(py);
        totals.set_item("block_size", found.block_size)?;
        totals.set_item("blocks", found.blocks)?;
        totals.set_item("blocks_free", found.blocks_free)?;
        totals.set_item("inodes", found.inodes)?;
        totals.set_item("inodes_free", found.inodes_free)?;
        totals.set_item("name_len_max", found.name_len_max)?;
        Ok(totals)
    }

    #[getter]
    fn label<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.open.call(py, Image::label)?)
    }

    #[setter]
    fn set_label(&self, py: Python<'_>, label: Name) -> PyResult<()> {
        self.open.call(py, |image| image.set_label(&label.0))
    }

    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, path: Name, follow_symlinks: bool) -> PyResult<Stat> {
        let found = self.open.call(py, |image| match follow_symlinks {
            true => image.metadata(&path.0),
            false => image.symlink_metadata(&path.0),
        });
        found.map(Stat)
    }

    fn lstat(&self, py: Python<'_>, path: Name) -> PyResult<Stat> {
        self.open.call(py, |image| image.symlink_metadata(&path.0)).map(Stat)
    }

    fn exists(&self, py: Python<'_>, path: Name) -> PyResult<bool> {
        self.open.call(py, |image| match image.metadata(&path.0) {
            Err(diskwright::Error::File { source, .. }) if says_no(&source) => Ok(false),
            found => found.map(|_| true),
        })
    }

    fn resolve<'py>(&self, py: Python<'py>, path: Name) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.open.call(py, |image| image.canonicalize(&path.0))?)
    }

    fn readlink<'py>(&self, py: Python<'py>, path: Name) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.open.call(py, |image| image.read_link(&path.0))?)
    }

    fn read_bytes<'py>(&self, py: Python<'py>, path: Name) -> PyResult<Bound<'py, PyBytes>> {
        let contents = self.open.call(py, |image| image.read(&path.0))?;
        Ok(PyBytes::new(py, &contents))
    }

    fn write_bytes(&self, py: Python<'_>, path: Name, data: Bytes) -> PyResult<usize> {
        self.open.call(py, |image| image.write(&path.0, &data.0).map(|()| data.0.len()))
    }

    fn listdir<'py>(&self, py: Python<'py>, path: Name) -> PyResult<Bound<'py, PyList>> {
        let names = self.open.call(py, |image| {
            let entries = image.read_dir(&path.0)?;
            entries
                .map(|entry| entry.map(|entry| entry.file_name().to_vec()))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let names = names.iter().map(|name| decode(py, name));
        PyList::new(py, names.collect::<PyResult<Vec<_>>>()?)
    }

    fn _scandir(&self, py: Python<'_>, path: Name) -> PyResult<ScanDir> {
        let entries = self.open.call(py, |image| image.read_dir(&path.0))?;
        Ok(ScanDir::new(Arc::clone(&self.open), path.0, entries))
    }

    fn _tree(&self, py: Python<'_>, path: Name, sorted: bool) -> PyResult<Tree> {
        let walk = self.open.call(py, |image| {
            let walk = image.walk(&path.0);
            Ok(if sorted { walk.sorted() } else { walk })
        })?;
        Ok(Tree::new(Arc::clone(&self.open), walk))
    }

    #[pyo3(signature = (path, *, read, write, append, truncate, create, create_new, mode))]
    #[allow(clippy::too_many_arguments, reason = "they are named where it is called")]
    fn _open(
        &self,
        py: Python<'_>,
        path: Name,
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        create: bool,
        create_new: bool,
        mode: u32,
    ) -> PyResult<File> {
        let options = OpenOptions::new().read(read).write(write).append(append).truncate(truncate);
        let options = options.create(create).create_new(create_new).mode(mode);
        let file = self.open.call(py, |image| options.open(image, &path.0))?;
        Ok(File::new(Arc::clone(&self.open), file))
    }

    fn _mkdir(&self, py: Python<'_>, path: Name, mode: Option<u32>) -> PyResult<()> {
        self.open.call(py, |image| {
            image.create_dir(&path.0)?;
            mode.map_or(Ok(()), |mode| image.set_permissions(&path.0, mode))
        })
    }

    fn _makedirs(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.open.call(py, |image| image.create_dir_all(&path.0))
    }

    fn rmdir(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.open.call(py, |image| image.remove_dir(&path.0))
    }

    fn rmtree(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.open.call(py, |image| image.remove_dir_all(&path.0))
    }

    fn unlink(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.open.call(py, |image| image.remove_file(&path.0))
    }

    #[pyo3(signature = (source, target, *, replace = true))]
    fn rename(&self, py: Python<'_>, source: Name, target: Name, replace: bool) -> PyResult<()> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        self.open.call(py, |image| image.rename_with(&source.0, &target.0, mode))
    }

    fn exchange(&self, py: Python<'_>, one: Name, other: Name) -> PyResult<()> {
        self.open.call(py, |image| image.rename_with(&one.0, &other.0, RenameMode::Exchange))
    }

    fn symlink(&self, py: Python<'_>, target: Name, path: Name) -> PyResult<()> {
        self.open.call(py, |image| image.symlink(&target.0, &path.0))
    }

    fn link(&self, py: Python<'_>, original: Name, path: Name) -> PyResult<()> {
        self.open.call(py, |image| image.hard_link(&original.0, &path.0))
    }

    #[pyo3(signature = (path, mode, *, major = 0, minor = 0))]
    fn mknod(&self, py: Python<'_>, path: Name, mode: u32, major: u32, minor: u32) -> PyResult<()> {
        let number = DeviceNumber { major, minor };
        let file = match mode & u32::from(S_IFMT) {
            0o020_000 => SpecialFile::CharDevice(number),
            0o060_000 => SpecialFile::BlockDevice(number),
            0o010_000 => SpecialFile::Fifo,
            0o140_000 => SpecialFile::Socket,
            _ => {
                return Err(PyValueError::new_err("mode has the type of a device, pipe or socket"));
            }
        };
        self.open.call(py, |image| image.create_special(&path.0, file, mode & 0o7777))
    }

    fn copy_file(&self, py: Python<'_>, source: Name, target: Name) -> PyResult<u64> {
        self.open.call(py, |image| image.copy(&source.0, &target.0))
    }

    fn chmod(&self, py: Python<'_>, path: Name, mode: u32) -> PyResult<()> {
        self.open.call(py, |image| image.set_permissions(&path.0, mode & 0o7777))
    }

    #[pyo3(signature = (path, uid = None, gid = None, *, follow_symlinks = true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: Name,
        uid: Option<u32>,
        gid: Option<u32>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.open.call(py, |image| match follow_symlinks {
            true => image.chown(&path.0, uid, gid),
            false => image.lchown(&path.0, uid, gid),
        })
    }

    #[pyo3(signature = (path, atime_ns, mtime_ns, follow_symlinks))]
    fn _utime(
        &self,
        py: Python<'_>,
        path: Name,
        atime_ns: Option<i128>,
        mtime_ns: Option<i128>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let mut times = FileTimes::new();
        if let Some(nanoseconds) = atime_ns {
            times = times.set_accessed(time(nanoseconds)?);
        }
        if let Some(nanoseconds) = mtime_ns {
            times = times.set_modified(time(nanoseconds)?);
        }
        self.open.call(py, |image| match follow_symlinks {
            true => image.set_times(&path.0, times),
            false => image.set_times_nofollow(&path.0, times),
        })
    }

    fn truncate(&self, py: Python<'_>, path: Name, size: u64) -> PyResult<()> {
        self.open
            .call(py, |image| OpenOptions::new().write(true).open(image, &path.0)?.set_len(size))
    }

    #[pyo3(signature = (path, name, *, follow_symlinks = true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: Name,
        name: Name,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.open.call(py, |image| {
            let at = followed(image, &path.0, follow_symlinks)?;
            let value = image.get_xattr(&at, &name.0)?;
            let missing = || diskwright::Error::file(&path.0, diskwright::fs::FsError::NoAttribute);
            value.ok_or_else(missing)
        })?;
        Ok(PyBytes::new(py, &value))
    }

    #[pyo3(signature = (path, name, value, *, follow_symlinks = true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: Name,
        name: Name,
        value: Bytes,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.open.call(py, |image| {
            image.set_xattr(&followed(image, &path.0, follow_symlinks)?, &name.0, &value.0)
        })
    }

    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: Name,
        follow_symlinks: bool,
    ) -> PyResult<Vec<Bound<'py, PyString>>> {
        let names = self
            .open
            .call(py, |image| image.list_xattrs(&followed(image, &path.0, follow_symlinks)?))?;
        names.iter().map(|name| decode(py, name)).collect()
    }

    #[pyo3(signature = (path, name, *, follow_symlinks = true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: Name,
        name: Name,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.open.call(py, |image| {
            image.remove_xattr(&followed(image, &path.0, follow_symlinks)?, &name.0)
        })
    }

    fn _copy_in<'py>(
        &self,
        py: Python<'py>,
        source: HostPath,
        target: Name,
        preserve: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = CopyOptions::default().recursive(true).preserve(preserve);
        let mut warnings = Warnings::default();
        let report = self
            .open
            .call(py, |image| image.copy_in(&source.0, &target.0, options, &mut warnings))?;
        warnings.report(py, report)
    }

    fn _copy_out<'py>(
        &self,
        py: Python<'py>,
        source: Name,
        target: HostPath,
        preserve: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = CopyOptions::default().recursive(true).preserve(preserve);
        let mut warnings = Warnings::default();
        let report = self
            .open
            .call(py, |image| image.copy_out(&source.0, &target.0, options, &mut warnings))?;
        warnings.report(py, report)
    }
}

/// The type bits of a mode.
const S_IFMT: u16 = 0o170_000;

/// Whether a path leads nowhere, as `os.path.exists` has it.
fn says_no(error: &diskwright::fs::FsError) -> bool {
    use diskwright::fs::FsError as E;
    matches!(
        error,
        E::NotFound | E::NotADirectory | E::SymlinkLoop | E::NameTooLong | E::Invalid(_)
    )
}

/// Contents, of any object that has bytes.
struct Bytes(Vec<u8>);

impl FromPyObject<'_, '_> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        pyo3::buffer::PyBuffer::<u8>::get(&object)?.to_vec(object.py()).map(Self)
    }
}

/// What a copy warns of.
#[derive(Default)]
struct Warnings(Vec<String>);

impl diskwright::copy::Observer for Warnings {
    fn file(&mut self, _path: &[u8]) {}
    fn copied(&mut self, _bytes: u64) {}
    fn warning(&mut self, message: &str) {
        self.0.push(message.to_owned());
    }
}

impl Warnings {
    fn report<'py>(
        self,
        py: Python<'py>,
        report: diskwright::copy::CopyReport,
    ) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        told.set_item("files", report.files)?;
        told.set_item("bytes", report.bytes)?;
        told.set_item("left_out", report.left_out)?;
        told.set_item("warnings", self.0)?;
        Ok(told)
    }
}
