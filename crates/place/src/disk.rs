//! Virtual disks of other programs: qcow2 to read and write, with its backing files; VMDK with flat extents to read.
//!
//! The metadata of a qcow2 are verified before the first write ([`crate::qcow2`]), and headers also before reading.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use blockdev::{BlockDevice, FileDevice};
use imago::file::File as ImageFile;
use imago::qcow2::Qcow2;
use imago::vmdk::Vmdk;
use imago::{FormatAccess, FormatDriverBuilder, PermissiveImplicitOpenGate};
use thiserror::Error;

use crate::chain::Chain;
use crate::qcow2::{self, Header, Qcow2Error};

/// Why a virtual disk cannot be opened.
#[derive(Debug, Error)]
pub enum DiskError {
    /// Its kind is not one that is read.
    #[error(
        "{}: {kind} disks are not read; convert it: qemu-img convert -O qcow2 {} disk.qcow2",
        path.display(),
        path.display()
    )]
    Kind {
        /// `vhdx` or `vpc`.
        kind: String,
        /// The file.
        path: PathBuf,
    },
    /// It is damaged, has features that are not known, or a file that it needs is missing.
    #[error("{}: as {kind}: {source}", path.display())]
    Open {
        /// `qcow2` or `vmdk`.
        kind: String,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The metadata of a qcow2 are damaged, so that writing to it could destroy it, or reading it is impossible.
    #[error(
        "{}: {source}; nothing was written; repair the image with: qemu-img check -r all {}",
        path.display(),
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        source: qcow2::Damage,
    },
}

impl DiskError {
    fn of_qcow2(path: &Path, error: Qcow2Error) -> Self {
        let source = match error {
            Qcow2Error::Damaged(source) => return Self::Damaged { path: path.to_owned(), source },
            Qcow2Error::Read(source) => source,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        };
        Self::Open { kind: "qcow2".into(), path: path.to_owned(), source }
    }
}

/// Checks a qcow2 before the crate opens it: its header, or all of its metadata if it is to be changed.
fn check_qcow2(path: &Path, is_writable: bool) -> Result<(), DiskError> {
    let check = || -> Result<(), Qcow2Error> {
        let device = FileDevice::new(File::open(path)?)?;
        if is_writable { qcow2::verify(&device) } else { Header::read(&device).map(drop) }
    };
    check().map_err(|error| DiskError::of_qcow2(path, error))
}

/// The contents of a virtual disk.
pub struct VirtualDisk {
    access: FormatAccess<ImageFile>,
    is_writable: bool,
    /// Keeps others out while it is open.
    _lock: Option<File>,
}

impl VirtualDisk {
    /// Opens the disk in a file, with the backing files that it names. What is given as `lock` is held as long as it is
    /// open.
    ///
    /// # Errors
    /// If it is no such disk, is damaged, or needs something that is not there.
    pub fn open(
        kind: &str,
        path: &Path,
        is_writable: bool,
        lock: Option<File>,
    ) -> Result<Self, DiskError> {
        let access = match kind {
            "qcow2" => {
                check_qcow2(path, is_writable)?;
                let builder = Qcow2::<ImageFile>::builder_path(path).write(is_writable);
                builder.open(Chain::new(path)).map(FormatAccess::new)
            }
            "vmdk" if !is_writable => {
                let gate = PermissiveImplicitOpenGate::default();
                Vmdk::<ImageFile>::builder_path(path).open(gate).map(FormatAccess::new)
            }
            _ => return Err(DiskError::Kind { kind: kind.to_owned(), path: path.to_owned() }),
        };
        let failed =
            |source| DiskError::Open { kind: kind.to_owned(), path: path.to_owned(), source };
        Ok(Self { access: access.map_err(failed)?, is_writable, _lock: lock })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let size = self.access.size();
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let what = format!("bytes {offset}+{len} lie past the end of the disk ({size} bytes)");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }
}

impl BlockDevice for VirtualDisk {
    fn len(&self) -> u64 {
        self.access.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        self.access.read(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        self.check_writable()?;
        self.access.write(data, offset)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        self.check_writable()?;
        self.access.write_zeroes(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_writable {
            self.access.flush()?;
            self.access.sync()?;
        }
        Ok(())
    }
}
