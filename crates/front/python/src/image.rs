//! Open images: opening, closing, and operations by path.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use diskwright::Format;
use diskwright::copy::CopyOptions;
use diskwright::fs::{
    BlockDevice, DeviceNumber, Ext4Options, FileTimes, FormatOptions, FsError, Image, OpenOptions,
    RenameMode, SpecialFile, Timestamp, XfsOptions,
};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::check::salvaged;
use crate::device::Origin;
use crate::error::{self, Said, fields};
use crate::file::File;
use crate::kept::ProcessLocal;
use crate::listing::{ScanDir, Tree};
use crate::names::{HostPath, Name, PathArg, decode};
use crate::open::SharedImage;
use crate::place::{ImageSource, part};
use crate::stat::Stat;

/// Open image.
#[pyclass(frozen, subclass, module = "diskwright._diskwright")]
pub(crate) struct Volume {
    pub(crate) open: Arc<SharedImage>,
}

/// Options of a new file system.
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
        Ok(match crate::build::format(&self.fs)? {
            Format::Ext4 => {
                let mut options = Ext4Options::new().label(label).features(&self.features);
                options = self.uuid.map_or(options.clone(), |uuid| options.uuid(uuid));
                self.block_size.map_or(options.clone(), |bytes| options.block_size(bytes)).into()
            }
            Format::Xfs => {
                let mut options = XfsOptions::new().label(label).features(&self.features);
                options = options.allow_small(self.small);
                options = self.uuid.map_or(options.clone(), |uuid| options.uuid(uuid));
                self.block_size.map_or(options.clone(), |bytes| options.block_size(bytes)).into()
            }
        })
    }

    /// Creates the file system on a device or in a new file.
    fn make(&self, py: Python<'_>, place: ImageSource, origin: &Origin) -> PyResult<Image> {
        let options = self.options()?;
        let made = match place {
            ImageSource::Path(path) => {
                let problem = "a new image in a file needs a size";
                let size = self.size.ok_or_else(|| PyValueError::new_err(problem))?;
                py.detach(|| Image::create(path, size, options))
            }
            ImageSource::Device(device) => py.detach(|| Image::format(device, options)),
        };
        made.map_err(|error| match &error {
            // An empty file system has no data, so the device is too small.
            diskwright::Error::Image { image, source: FsError::NoSpace | FsError::NoInodes } => {
                Said::invalid("the size is too small for this file system", image).raise(py, origin)
            }
            _ => error::exception(py, &error, origin),
        })
    }
}

fn time(nanoseconds: i128) -> PyResult<Timestamp> {
    let (sec, nsec) =
        (nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000));
    let problem = |_| PyValueError::new_err("the time is out of range");
    Ok(Timestamp { sec: sec.try_into().map_err(problem)?, nsec: nsec as u32 })
}

/// Returns the path itself or, with `follow`, the path of its target.
fn followed(image: &Image, path: &[u8], follow: bool) -> diskwright::Result<Vec<u8>> {
    if follow { image.canonicalize(path) } else { Ok(path.to_vec()) }
}

/// Options for opening an image.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct OpenArgs {
    writable: bool,
    partition: Option<u32>,
    offset: u64,
    norecovery: bool,
    salvage: bool,
    cache_bytes: Option<usize>,
    owner: (u32, u32),
}

impl OpenArgs {
    fn open(&self, py: Python<'_>, place: ImageSource, origin: &Origin) -> PyResult<Image> {
        if self.salvage {
            let ImageSource::Path(path) = place else {
                let problem = "salvage needs a file of the host, not a file object";
                return Err(PyTypeError::new_err(problem));
            };
            if self.writable || self.norecovery {
                let problem = "salvage only reads; leave out writable and norecovery";
                return Err(PyValueError::new_err(problem));
            }
            return salvaged(py, &path, &part(self.partition, self.offset, false));
        }
        let mut options = part(self.partition, self.offset, self.norecovery).write(self.writable);
        (options.owner, options.cache_bytes) = (self.owner, self.cache_bytes);
        let opened = py.detach(|| match place {
            ImageSource::Path(path) => options.open(path),
            ImageSource::Device(device) => options.open_device(device as Arc<dyn BlockDevice>),
        });
        opened.map_err(|error| error::exception(py, &error, origin))
    }
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (source, how, new, /))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        how: &Bound<'_, PyAny>,
        new: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let how: OpenArgs = fields(how)?;
        let (place, origin) = ImageSource::of(source)?;
        origin.check()?;
        let image = match new {
            Some(new) => fields::<NewFs>(new)?.make(py, place, &origin)?,
            None => how.open(py, place, &origin)?,
        };
        let is_writable = image.is_writable();
        let (image, home) = (RwLock::new(Some(ProcessLocal::new(image))), ProcessLocal::new(()));
        let files = AtomicUsize::new(0);
        Ok(Self { open: Arc::new(SharedImage { image, origin, home, is_writable, files }) })
    }

    /// Raises an error in a child process after a fork, and in a call of the image's own device.
    fn _check(&self) -> PyResult<()> {
        self.open.check()
    }

    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        self.open.close(py)
    }

    /// Returns a number that identifies the image during its lifetime.
    #[getter]
    fn _identity(&self) -> usize {
        self.open.identity()
    }

    /// Returns the number of existing file objects of the image, including closed ones.
    fn _file_count(&self) -> usize {
        self.open.files.load(Ordering::Relaxed)
    }

    /// True if the image is closed. Always true in a child process after a fork.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.open.is_closed(py)
    }

    /// True if the image was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.open.is_writable
    }

    /// Returns when all earlier changes are durable. Data in the buffers of open files is not included: flush them first.
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

    /// The label of the file system: at most 16 bytes in ext4, 12 in XFS.
    #[getter]
    fn label<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.open.call(py, Image::label)?)
    }

    #[setter]
    fn set_label(&self, py: Python<'_>, label: Name) -> PyResult<()> {
        self.open.call(py, |image| image.set_label(&label.0))
    }

    /// Returns the attributes of a file, as os.stat does.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, path: PathArg, follow_symlinks: bool) -> PyResult<Stat> {
        let found = self.open.call_at(py, &[&path], |image| match follow_symlinks {
            true => image.metadata(&path.bytes),
            false => image.symlink_metadata(&path.bytes),
        });
        found.map(Stat)
    }

    /// Returns the attributes of a file without following a symbolic link.
    fn lstat(&self, py: Python<'_>, path: PathArg) -> PyResult<Stat> {
        self.open.call_at(py, &[&path], |image| image.symlink_metadata(&path.bytes)).map(Stat)
    }

    /// Returns whether a path leads to a file. False for a broken or looping symbolic link.
    fn exists(&self, py: Python<'_>, path: PathArg) -> PyResult<bool> {
        self.open.call_at(py, &[&path], |image| match image.metadata(&path.bytes) {
            Err(diskwright::Error::File { source, .. }) if says_no(&source) => Ok(false),
            found => found.map(|_| true),
        })
    }

    /// Returns a path without symbolic links and `..`.
    fn resolve<'py>(&self, py: Python<'py>, path: PathArg) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.open.call_at(py, &[&path], |image| image.canonicalize(&path.bytes))?)
    }

    /// Returns the target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, path: PathArg) -> PyResult<Bound<'py, PyString>> {
        decode(py, &self.open.call_at(py, &[&path], |image| image.read_link(&path.bytes))?)
    }

    /// Returns the contents of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: PathArg) -> PyResult<Bound<'py, PyBytes>> {
        let contents = self.open.call_at(py, &[&path], |image| image.read(&path.bytes))?;
        Ok(PyBytes::new(py, &contents))
    }

    /// Creates or replaces the contents of a file, and returns the number of bytes.
    fn write_bytes(&self, py: Python<'_>, path: PathArg, data: Bytes) -> PyResult<usize> {
        let write = |image: &Image| image.write(&path.bytes, &data.0).map(|()| data.0.len());
        self.open.call_at(py, &[&path], write)
    }

    fn _listdir<'py>(&self, py: Python<'py>, path: PathArg) -> PyResult<Bound<'py, PyList>> {
        let names = self.open.call_at(py, &[&path], |image| {
            let entries = image.read_dir(&path.bytes)?;
            entries
                .map(|entry| entry.map(|entry| entry.file_name().to_vec()))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let names = names.iter().map(|name| decode(py, name));
        PyList::new(py, names.collect::<PyResult<Vec<_>>>()?)
    }

    fn _scandir(&self, py: Python<'_>, path: PathArg) -> PyResult<ScanDir> {
        let entries = self.open.call_at(py, &[&path], |image| image.read_dir(&path.bytes))?;
        Ok(ScanDir::new(Arc::clone(&self.open), path.bytes, entries))
    }

    fn _tree(
        &self,
        py: Python<'_>,
        path: PathArg,
        sorted: bool,
        onerror: Option<Py<PyAny>>,
    ) -> PyResult<Tree> {
        let walk = self.open.call_at(py, &[&path], |image| {
            let walk = image.walk(&path.bytes);
            Ok(if sorted { walk.sorted() } else { walk })
        })?;
        Ok(Tree::new(Arc::clone(&self.open), walk, onerror))
    }

    #[pyo3(signature = (path, *, read, write, append, truncate, create, create_new, mode))]
    #[allow(clippy::too_many_arguments, reason = "callers pass keyword arguments")]
    fn _open(
        &self,
        py: Python<'_>,
        path: PathArg,
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
        let file = self.open.call_at(py, &[&path], |image| options.open(image, &path.bytes))?;
        Ok(File::new(Arc::clone(&self.open), file))
    }

    fn _mkdir(&self, py: Python<'_>, path: PathArg, mode: Option<u32>) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| {
            image.create_dir(&path.bytes)?;
            mode.map_or(Ok(()), |mode| image.set_permissions(&path.bytes, mode))
        })
    }

    fn _makedirs(&self, py: Python<'_>, path: PathArg) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| image.create_dir_all(&path.bytes))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: PathArg) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| image.remove_dir(&path.bytes))
    }

    /// Removes a directory recursively.
    fn rmtree(&self, py: Python<'_>, path: PathArg) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| image.remove_dir_all(&path.bytes))
    }

    /// Removes a file that is not a directory.
    fn unlink(&self, py: Python<'_>, path: PathArg) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| image.remove_file(&path.bytes))
    }

    /// Removes a file that is not a directory. Same as unlink.
    fn remove(&self, py: Python<'_>, path: PathArg) -> PyResult<()> {
        self.unlink(py, path)
    }

    /// Renames a file or directory. An existing target is replaced. If `replace` is false, it raises FileExistsError
    /// instead.
    #[pyo3(signature = (source, target, *, replace = true))]
    fn rename(
        &self,
        py: Python<'_>,
        source: PathArg,
        target: PathArg,
        replace: bool,
    ) -> PyResult<()> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        let rename = |image: &Image| image.rename_with(&source.bytes, &target.bytes, mode);
        self.open.call_at(py, &[&source, &target], rename)
    }

    /// Renames a file or directory, and replaces an existing target.
    fn replace(&self, py: Python<'_>, source: PathArg, target: PathArg) -> PyResult<()> {
        self.rename(py, source, target, true)
    }

    /// Exchanges two names atomically.
    fn exchange(&self, py: Python<'_>, one: PathArg, other: PathArg) -> PyResult<()> {
        let mode = RenameMode::Exchange;
        let exchange = |image: &Image| image.rename_with(&one.bytes, &other.bytes, mode);
        self.open.call_at(py, &[&one, &other], exchange)
    }

    /// Creates a symbolic link at `path`. The target need not exist.
    fn symlink(&self, py: Python<'_>, target: Name, path: PathArg) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| image.symlink(&target.0, &path.bytes))
    }

    /// Creates a hard link at `path` to an existing file.
    fn link(&self, py: Python<'_>, original: PathArg, path: PathArg) -> PyResult<()> {
        let link = |image: &Image| image.hard_link(&original.bytes, &path.bytes);
        self.open.call_at(py, &[&original, &path], link)
    }

    fn _mknod(
        &self,
        py: Python<'_>,
        path: PathArg,
        mode: u32,
        major: u32,
        minor: u32,
    ) -> PyResult<()> {
        let number = DeviceNumber { major, minor };
        let file = match mode & u32::from(S_IFMT) {
            0o020_000 => SpecialFile::CharDevice(number),
            0o060_000 => SpecialFile::BlockDevice(number),
            0o010_000 => SpecialFile::Fifo,
            0o140_000 => SpecialFile::Socket,
            0 | 0o100_000 => {
                let options = OpenOptions::new().write(true).create_new(true).mode(mode & 0o7777);
                let make = |image: &Image| options.open(image, &path.bytes).map(drop);
                return self.open.call_at(py, &[&path], make);
            }
            kind => {
                let problem =
                    format!("mode has the file type {kind:#o}, which mknod cannot create");
                return Err(PyValueError::new_err(problem));
            }
        };
        let make = |image: &Image| image.create_special(&path.bytes, file, mode & 0o7777);
        self.open.call_at(py, &[&path], make)
    }

    fn _copy_file(&self, py: Python<'_>, source: PathArg, target: PathArg) -> PyResult<u64> {
        let copy = |image: &Image| image.copy(&source.bytes, &target.bytes);
        self.open.call_at(py, &[&source, &target], copy)
    }

    /// Sets the permission bits of a file. Symbolic links have none: raises NotImplementedError if a link is not
    /// followed.
    #[pyo3(signature = (path, mode, *, follow_symlinks = true))]
    fn chmod(
        &self,
        py: Python<'_>,
        path: PathArg,
        mode: u32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let is_set = self.open.call_at(py, &[&path], |image| {
            if !follow_symlinks && image.symlink_metadata(&path.bytes)?.is_symlink() {
                return Ok(false);
            }
            image.set_permissions(&path.bytes, mode & 0o7777).map(|()| true)
        })?;
        if is_set {
            return Ok(());
        }
        Err(PyNotImplementedError::new_err(
            "chmod: symbolic links have no permissions of their own",
        ))
    }

    /// Sets the owner and group of a file. None and -1 keep the current value.
    #[pyo3(signature = (path, uid = None, gid = None, *, follow_symlinks = true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: PathArg,
        uid: Option<i64>,
        gid: Option<i64>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (uid, gid) = (id("uid", uid)?, id("gid", gid)?);
        self.open.call_at(py, &[&path], |image| match follow_symlinks {
            true => image.chown(&path.bytes, uid, gid),
            false => image.lchown(&path.bytes, uid, gid),
        })
    }

    #[pyo3(signature = (path, atime_ns, mtime_ns, follow_symlinks))]
    fn _utime(
        &self,
        py: Python<'_>,
        path: PathArg,
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
        self.open.call_at(py, &[&path], |image| match follow_symlinks {
            true => image.set_times(&path.bytes, times),
            false => image.set_times_nofollow(&path.bytes, times),
        })
    }

    /// Sets the size of a file.
    #[pyo3(signature = (path, length))]
    fn truncate(&self, py: Python<'_>, path: PathArg, length: i128) -> PyResult<()> {
        let size = u64::try_from(length).map_err(|_| {
            PyValueError::new_err(format!("length is {length}: it must be from 0 to 2**64 - 1"))
        })?;
        let open = OpenOptions::new().write(true);
        self.open.call_at(py, &[&path], |image| open.open(image, &path.bytes)?.set_len(size))
    }

    /// Returns the value of an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathArg,
        attribute: Name,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.open.call_at(py, &[&path], |image| {
            let at = followed(image, &path.bytes, follow_symlinks)?;
            let value = image.get_xattr(&at, &attribute.0)?;
            value.ok_or_else(|| diskwright::Error::file(&path.bytes, FsError::NoAttribute))
        })?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets an extended attribute. `flags` is 0, os.XATTR_CREATE or os.XATTR_REPLACE.
    #[pyo3(signature = (path, attribute, value, flags = 0, *, follow_symlinks = true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathArg,
        attribute: Name,
        value: Bytes,
        flags: u32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        if flags > XATTR_REPLACE {
            let problem = "flags must be 0, os.XATTR_CREATE or os.XATTR_REPLACE";
            return Err(PyValueError::new_err(problem));
        }
        self.open.call_at(py, &[&path], |image| {
            let at = followed(image, &path.bytes, follow_symlinks)?;
            if flags != 0 {
                let problem = match (flags, image.get_xattr(&at, &attribute.0)?) {
                    (XATTR_CREATE, Some(_)) => Some(FsError::Exists),
                    (XATTR_REPLACE, None) => Some(FsError::NoAttribute),
                    _ => None,
                };
                if let Some(problem) = problem {
                    return Err(diskwright::Error::file(&path.bytes, problem));
                }
            }
            image.set_xattr(&at, &attribute.0, &value.0)
        })
    }

    /// Returns the names of the extended attributes of a file.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathArg,
        follow_symlinks: bool,
    ) -> PyResult<Vec<Bound<'py, PyString>>> {
        let names = self.open.call_at(py, &[&path], |image| {
            image.list_xattrs(&followed(image, &path.bytes, follow_symlinks)?)
        })?;
        names.iter().map(|name| decode(py, name)).collect()
    }

    /// Removes an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: PathArg,
        attribute: Name,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.open.call_at(py, &[&path], |image| {
            image.remove_xattr(&followed(image, &path.bytes, follow_symlinks)?, &attribute.0)
        })
    }

    fn _copy_in<'py>(
        &self,
        py: Python<'py>,
        source: HostPath,
        target: PathArg,
        preserve: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = CopyOptions::default().recursive(true).preserve(preserve);
        let mut heard = Heard::default();
        let copy = |image: &Image| image.copy_in(&source.0, &target.bytes, options, &mut heard);
        let report = self.open.call_at(py, &[&target], copy)?;
        heard.report(py, report, &self.open.origin)
    }

    /// Copies to the host. With `keep_going`, the report contains the errors of all unreadable files.
    fn _copy_out<'py>(
        &self,
        py: Python<'py>,
        source: PathArg,
        target: HostPath,
        preserve: bool,
        keep_going: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = CopyOptions::default().recursive(true).preserve(preserve);
        let options = options.keep_going(keep_going);
        let mut heard = Heard::default();
        let copy = |image: &Image| image.copy_out(&source.bytes, &target.0, options, &mut heard);
        let report = self.open.call_at(py, &[&source], copy)?;
        heard.report(py, report, &self.open.origin)
    }
}

/// Flags of setxattr with their values on Linux.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// Converts a user or group ID as accepted by os.chown.
fn id(what: &str, id: Option<i64>) -> PyResult<Option<u32>> {
    match id {
        None | Some(-1) => Ok(None),
        Some(id) => u32::try_from(id).map(Some).map_err(|_| {
            PyOverflowError::new_err(format!("{what} is {id}: it must be from -1 to 2**32 - 1"))
        }),
    }
}

/// File type bits of a mode.
const S_IFMT: u16 = 0o170_000;

/// Returns whether an error means that a path does not exist, as in `os.path.exists`.
fn says_no(error: &FsError) -> bool {
    use FsError as E;
    matches!(
        error,
        E::NotFound | E::NotADirectory | E::SymlinkLoop | E::NameTooLong | E::Invalid(_)
    )
}

/// Contents from any bytes-like object.
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

/// Maximum number of errors that a copy keeps. Further ones are only counted.
const ERRORS_MAX: usize = 10_000;

/// Warnings and errors of a copy.
#[derive(Default)]
struct Heard {
    warnings: Vec<String>,
    errors: Vec<Said>,
    unreadable: u64,
}

impl diskwright::copy::Observer for Heard {
    fn file(&mut self, _path: &[u8]) {}
    fn copied(&mut self, _bytes: u64) {}
    fn warning(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }
    fn unreadable(&mut self, error: &diskwright::Error) {
        self.unreadable += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(Said::of(error));
        }
    }
}

impl Heard {
    fn report<'py>(
        self,
        py: Python<'py>,
        report: diskwright::copy::CopyReport,
        origin: &Origin,
    ) -> PyResult<Bound<'py, PyDict>> {
        let answer = PyDict::new(py);
        answer.set_item("files", report.files)?;
        answer.set_item("bytes", report.bytes)?;
        answer.set_item("left_out", report.left_out)?;
        answer.set_item("unreadable", self.unreadable)?;
        answer.set_item("warnings", self.warnings)?;
        let errors = self.errors.iter().map(|said| said.raise(py, origin));
        answer.set_item("errors", errors.collect::<Vec<_>>())?;
        Ok(answer)
    }
}
