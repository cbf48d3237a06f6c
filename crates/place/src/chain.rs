//! Backing files and data files that a qcow2 names.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use imago::file::File as ImageFile;
use imago::format::gate::ImplicitOpenGate;
use imago::{FormatAccess, FormatDriverBuilder, Storage, StorageOpenOptions};

use crate::qcow2::{Header, Qcow2Error};

/// Limit of files that depend on each other. Each one takes space on the stack while it is opened.
const FILES_MAX: usize = 128;

/// A file that is being opened, and the files above it. Each one names the next. A file that names one of them
/// is refused.
#[derive(Clone)]
pub(crate) struct Chain {
    above: Vec<PathBuf>,
    /// The file that was named last.
    named: Option<PathBuf>,
    /// The next file to be opened is the one that the caller named.
    is_fresh: bool,
}

impl Chain {
    /// Starts with the disk that the caller named.
    pub(crate) fn new(path: &Path) -> Self {
        Self { above: vec![identity(path)], named: None, is_fresh: true }
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        let file = identity(path);
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if self.above.contains(&file) {
            let what =
                format!("{} is its own backing file, by itself or through others", path.display());
            return Err(damaged(&what));
        }
        if self.above.len() == FILES_MAX {
            return Err(damaged(&format!("more than {FILES_MAX} backing files")));
        }
        check_header(path)?;
        self.named = Some(file);
        Ok(())
    }
}

/// The name that a file has without links.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Checks the header of a qcow2. Other files have none.
fn check_header(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    let mut magic = Vec::new();
    (&mut file).take(4).read_to_end(&mut magic)?;
    if magic != b"QFI\xfb" {
        return Ok(());
    }
    match Header::read(&blockdev::FileDevice::new(file)?) {
        Ok(_) => Ok(()),
        Err(Qcow2Error::Read(error)) => Err(error),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

impl ImplicitOpenGate<ImageFile> for Chain {
    fn open_format<F: FormatDriverBuilder<ImageFile>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<ImageFile>> {
        let mut below = self.clone();
        below.above.extend(below.named.take());
        Ok(FormatAccess::new(builder.open(below)?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImageFile> {
        let is_first = std::mem::take(&mut self.is_fresh);
        if let Some(path) = options.get_filename().filter(|_| !is_first) {
            self.add(path)?;
        }
        ImageFile::open(options)
    }
}
