//! Disks as the system describes them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{AlignedDevice, BlockDevice, FileDevice};

/// A disk, as the system describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostDisk {
    /// Path of the whole disk.
    pub(crate) path: PathBuf,
    /// Size in bytes. 0 without a medium.
    pub(crate) size_bytes: u64,
    /// Unit of its requests in bytes. 0 for disks without such a limit.
    pub(crate) sector_bytes: u32,
    /// Name of the model.
    pub(crate) model: Option<String>,
    /// True if the system permits no writes.
    pub(crate) is_read_only: bool,
    /// True if it is derived from another device or from memory.
    pub(crate) is_derived: bool,
    /// True if the running system is on it.
    pub(crate) is_system: bool,
    /// Mount points of the disk itself, without those of its partitions.
    pub(crate) mounted_at: Vec<String>,
    /// Partitions in the order of their numbers.
    pub(crate) partitions: Vec<HostPartition>,
}

/// A partition, as the system describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostPartition {
    /// Path, on systems where partitions have one.
    pub(crate) path: Option<PathBuf>,
    /// Offset on the disk in bytes, if the system reports it.
    pub(crate) offset: Option<u64>,
    /// Size in bytes.
    pub(crate) size_bytes: u64,
    /// Mount points.
    pub(crate) mounted_at: Vec<String>,
}

impl HostDisk {
    /// Returns whether a list shows it without being asked for all disks.
    pub(crate) fn is_usual(&self) -> bool {
        !self.is_derived && self.size_bytes > 0
    }

    /// Opens the disk, or one of its partitions of `size_bytes`, for reading.
    ///
    /// # Errors
    /// Returns the errors of the host.
    pub(crate) fn open(&self, path: &Path, size_bytes: u64) -> io::Result<Arc<dyn BlockDevice>> {
        self.device(File::open(path)?, size_bytes)
    }

    /// Returns the device of an open disk or partition.
    pub(crate) fn device(&self, file: File, size_bytes: u64) -> io::Result<Arc<dyn BlockDevice>> {
        if self.sector_bytes == 0 {
            return Ok(Arc::new(FileDevice::new(file)?));
        }
        let device = FileDevice::with_len(file, size_bytes);
        Ok(Arc::new(AlignedDevice::new(device, self.sector_bytes)?))
    }
}

/// Returns the reason why a device could not be opened.
pub(crate) fn not_opened(error: &io::Error) -> String {
    format!("cannot be opened: {}", with_advice(error))
}

/// Returns an error of the host with advice.
pub(crate) fn with_advice(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied if cfg!(windows) => "; run the program as administrator",
        io::ErrorKind::PermissionDenied => "; run the program as root, for example with sudo",
        _ => "",
    };
    format!("{error}{advice}")
}
