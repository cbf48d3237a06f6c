//! Virtual disks: qcow2 for reading and writing, with its backing files; VMDK with flat extents for reading.
//!
//! The metadata of a qcow2 is verified before the first write ([`crate::place::qcow2`]), and its header also before reading.

use disk::hint::Setting;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use disk::{BlockDevice, FileDevice};
use imago::file::File as ImageFile;
use imago::qcow2::Qcow2;
use imago::vmdk::Vmdk;
use imago::{FormatAccess, FormatDriverBuilder, Mapping};
use thiserror::Error;

use crate::place::chain::{Chain, Locks, NamedFiles};
use crate::place::qcow2::{self, Feature, Qcow2Error, Qcow2Header};

/// The reason why a virtual disk cannot be opened.
#[derive(Debug, Error)]
pub enum DiskError {
    /// Unsupported format.
    #[error(
        "{}: {kind} disks are not supported; convert it: qemu-img convert -O qcow2 {} disk.qcow2",
        disk::address::shown(path.as_os_str().as_encoded_bytes()),
        disk::address::shown(path.as_os_str().as_encoded_bytes())
    )]
    Kind {
        /// `vhdx` or `vpc`.
        kind: String,
        /// The file.
        path: PathBuf,
    },
    /// Damaged disk, unknown feature, or missing file that the disk depends on.
    #[error("{}: as {kind}: {source}", disk::address::shown(path.as_os_str().as_encoded_bytes()))]
    Open {
        /// `qcow2` or `vmdk`.
        kind: String,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Unsupported feature of a qcow2.
    #[error("{}: {feature} is not supported; {}", path.display(), feature.way_out(path))]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The feature.
        feature: Feature,
    },
    /// External data file of a qcow2, which may be any file of the host.
    #[error(
        "{}: its data is in the file {name:?}, which can be any file of this host; if you trust \
         the image, use {}",
        path.display(),
        Setting::ALLOW_DATA_FILES
    )]
    DataFile {
        /// The image.
        path: PathBuf,
        /// The name of the data file in the image.
        name: String,
    },
    /// Damaged metadata of a qcow2: writing could destroy the image, or reading is impossible.
    #[error(
        "{}: {source}; nothing was written; repair the image with: qemu-img check -r all {}",
        disk::address::shown(path.as_os_str().as_encoded_bytes()),
        disk::address::shown(path.as_os_str().as_encoded_bytes())
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
            Qcow2Error::Unsupported(feature) => {
                return Self::Unsupported { path: path.to_owned(), feature };
            }
            Qcow2Error::DataFile { name } => return Self::DataFile { path: path.to_owned(), name },
            Qcow2Error::Read(source) => source,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        };
        Self::Open { kind: "qcow2".into(), path: path.to_owned(), source }
    }
}

/// Checks a qcow2 before imago opens it: its header, or all of its metadata if it is opened for writing.
fn check_qcow2(
    path: &Path,
    file: Option<&File>,
    is_writable: bool,
    allow_data_files: bool,
) -> Result<(), DiskError> {
    let check = || -> Result<(), Qcow2Error> {
        let file = file.map_or_else(|| File::open(path), File::try_clone)?;
        let device = FileDevice::new(file)?;
        let header = Qcow2Header::read(&device)?;
        match header.data_file {
            Some(name) if !allow_data_files => Err(Qcow2Error::DataFile { name }),
            _ if is_writable => qcow2::verify(&device),
            _ => Ok(()),
        }
    };
    check().map_err(|error| DiskError::of_qcow2(path, error))
}

/// The contents of a virtual disk.
pub struct VirtualDisk {
    access: FormatAccess<ImageFile>,
    is_writable: bool,
    /// Lock that excludes other programs while the disk is open.
    _lock: Option<File>,
    /// Locks of the files that the disk names.
    _locks: Locks,
}

impl VirtualDisk {
    /// Opens the disk in a file, with the files that it names, by the rules of `files`. Holds `lock` as long as the
    /// disk is open.
    ///
    /// # Errors
    /// If the file is not such a disk, is damaged, or depends on a missing file.
    pub fn open(
        kind: &str,
        path: &Path,
        is_writable: bool,
        lock: Option<File>,
        files: NamedFiles<'_>,
    ) -> Result<Self, DiskError> {
        let (access, locks) = match kind {
            "qcow2" => {
                check_qcow2(path, lock.as_ref(), is_writable, files.allow_data_files)?;
                let builder = Qcow2::<ImageFile>::builder_path(path).write(is_writable);
                let (chain, locks) = Chain::new(path, is_writable, files);
                (builder.open(chain).map(FormatAccess::new), locks)
            }
            "vmdk" if !is_writable => {
                let (chain, locks) = Chain::of_vmdk(path, files);
                (Vmdk::<ImageFile>::builder_path(path).open(chain).map(FormatAccess::new), locks)
            }
            _ => return Err(DiskError::Kind { kind: kind.to_owned(), path: path.to_owned() }),
        };
        let failed =
            |source| DiskError::Open { kind: kind.to_owned(), path: path.to_owned(), source };
        Ok(Self { access: access.map_err(failed)?, is_writable, _lock: lock, _locks: locks })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let size = self.access.size();
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let what = format!("bytes {offset}+{len} are past the end of the disk ({size} bytes)");
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

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        self.check(offset, len).ok()?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (mapping, count) = self.access.get_mapping(at, end - at).ok()?;
            if count == 0 {
                return None;
            }
            let next = at + count.min(end - at);
            if matches!(mapping, Mapping::Zero { .. }) {
                return Some(at..next);
            }
            at = next;
        }
        None
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
