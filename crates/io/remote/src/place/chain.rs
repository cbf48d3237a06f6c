//! Files that a virtual disk names: backing files and data files of a qcow2, extents of a VMDK.

use disk::hint::Setting;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use imago::file::File as ImageFile;
use imago::format::gate::ImplicitOpenGate;
use imago::{FormatAccess, FormatDriverBuilder, Storage, StorageOpenOptions};
use parking_lot::Mutex;

use crate::place::qcow2::{Qcow2Error, Qcow2Header};

/// Maximum number of files that depend on each other. Each takes stack space while it is opened.
const FILES_MAX: usize = 128;

/// Rules for the files that a disk names.
#[derive(Clone, Copy)]
pub struct NamedFiles<'a> {
    /// Opens and locks a file, for reading or also for writing. Accepts only regular files and block devices, and does
    /// not block on pipes.
    pub open: &'a dyn Fn(&Path, bool) -> io::Result<File>,
    /// Allows the contents of a disk to be in another file that it names. Otherwise a qcow2 with an external data file
    /// is rejected, and so are extents of a VMDK outside of its directory.
    pub allow_data_files: bool,
}

/// Locks of the files that a disk names. Held as long as the disk is open.
pub(crate) type Locks = Arc<Mutex<Vec<File>>>;

/// A file that is being opened, and the files above it. Each file names the next. A file that names a file above it is
/// rejected.
#[derive(Clone)]
pub(crate) struct Chain<'a> {
    files: NamedFiles<'a>,
    locks: Locks,
    /// The disk is opened for writing.
    is_writable: bool,
    above: Vec<PathBuf>,
    /// The file named most recently.
    named: Option<PathBuf>,
    /// The next file to be opened is the one that the caller named.
    is_fresh: bool,
    /// The directory in which all extents must be, if that is required.
    extents_in: Option<PathBuf>,
}

impl<'a> Chain<'a> {
    /// Starts with the qcow2 that the caller named. Also returns the locks of the files that it names.
    pub(crate) fn new(path: &Path, is_writable: bool, files: NamedFiles<'a>) -> (Self, Locks) {
        let locks = Locks::default();
        let chain = Self {
            files,
            locks: Arc::clone(&locks),
            is_writable,
            above: vec![identity(path)],
            named: None,
            is_fresh: true,
            extents_in: None,
        };
        (chain, locks)
    }

    /// Starts with the VMDK that the caller named.
    pub(crate) fn of_vmdk(path: &Path, files: NamedFiles<'a>) -> (Self, Locks) {
        let (mut chain, locks) = Self::new(path, false, files);
        if !files.allow_data_files {
            chain.extents_in = identity(path).parent().map(Path::to_owned);
        }
        (chain, locks)
    }

    fn add(&mut self, path: &Path, is_written: bool) -> io::Result<()> {
        let file = identity(path);
        if self.above.contains(&file) {
            let what = format!(
                "{} is its own backing file, directly or through other files",
                path.display()
            );
            return Err(damaged(&what));
        }
        if self.above.len() == FILES_MAX {
            return Err(damaged(&format!("more than {FILES_MAX} backing files")));
        }
        if self.extents_in.as_deref().is_some_and(|dir| file.parent() != Some(dir)) {
            let what = format!(
                "the extent {} is outside the directory of the disk and can be any file of this \
                 host; if you trust the disk, use {}",
                path.display(),
                Setting::ALLOW_DATA_FILES
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let locked = (self.files.open)(path, is_written)?;
        check_header(&locked, self.files.allow_data_files)?;
        self.locks.lock().push(locked);
        self.named = Some(file);
        Ok(())
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Returns the path of a file without symbolic links.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Checks the header of a qcow2. Files of other formats have none.
fn check_header(file: &File, allow_data_files: bool) -> io::Result<()> {
    let mut magic = Vec::new();
    file.take(4).read_to_end(&mut magic)?;
    if magic != b"QFI\xfb" {
        return Ok(());
    }
    let header = match Qcow2Header::read(&disk::FileDevice::new(file.try_clone()?)?) {
        Ok(header) => header,
        Err(Qcow2Error::Read(error)) => return Err(error),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    match header.data_file {
        Some(name) if !allow_data_files => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, Qcow2Error::DataFile { name }))
        }
        _ => Ok(()),
    }
}

impl ImplicitOpenGate<ImageFile> for Chain<'_> {
    fn open_format<F: FormatDriverBuilder<ImageFile>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<ImageFile>> {
        let mut below = self.clone();
        below.above.extend(below.named.take());
        // Backing files are never changed.
        below.is_writable = false;
        Ok(FormatAccess::new(builder.open(below)?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImageFile> {
        let is_first = std::mem::take(&mut self.is_fresh);
        // imago always opens data files for writing.
        let is_written = options.get_writable() && self.is_writable;
        if let Some(path) = options.get_filename().filter(|_| !is_first) {
            self.add(path, is_written)?;
        }
        ImageFile::open(options.write(is_written))
    }
}
