//! Detects the contents of a device by magic numbers: file systems, volumes, disk images, archives and partition
//! tables.
//!
//! [`Signature::of`] is for programs that open ext and XFS, and need a name for anything else. [`find_all`] is for
//! programs that check before they overwrite a device (`blkid`, `mkfs`). Names are those that libblkid prints. The
//! tables cite the documents of the formats. The results were compared with `blkid -p`.

mod containers;
mod fat;
mod file_systems;
mod probe;
mod row;
mod table;
mod tables;
mod volumes;

use std::io;
use vfs::hint::{Advice, Hint};

use crate::BlockDevice;

use probe::Probe;

/// Number of bytes at the start of a device that are read for ext and XFS.
const PROBE_BYTES: u64 = 2048;
/// Offset of ext's magic number, at byte 56 of the superblock, which starts at byte 1024.
const EXT_MAGIC: (usize, [u8; 2]) = (1080, [0x53, 0xef]);

/// Contents of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// Another known format that is not a partition table.
    Other(Box<DetectedFormat>),
    /// An ext file system without its magic number, or an XFS file system without its first sector.
    Lost(Lost),
    /// Only zeros in the first bytes.
    Zeros,
    /// Unknown contents or a partition table.
    Unknown,
}

/// Traces of a file system that is no longer recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// `ext2/3/4` or `XFS`.
    pub format: &'static str,
    /// Offset of the structure that was found: a copy of the superblock, or a group header.
    pub at: u64,
}

/// Category of a format, as in libblkid's `USAGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A file system.
    FileSystem,
    /// A member of a RAID or of a volume group.
    Raid,
    /// An encrypted volume.
    Crypto,
    /// A swap area, a cache or other data of the system.
    Other,
    /// A disk image or an archive, which libblkid does not detect.
    Container,
    /// A partition table.
    Table,
}

impl Usage {
    /// Returns libblkid's name of the category. `None` for containers and partition tables.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::FileSystem => Some("filesystem"),
            Self::Raid => Some("raid"),
            Self::Crypto => Some("crypto"),
            Self::Other => Some("other"),
            Self::Container | Self::Table => None,
        }
    }
}

/// A detected format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedFormat {
    /// Name as libblkid prints it in `TYPE`, or in `PTTYPE` for a partition table.
    pub name: &'static str,
    /// Category.
    pub usage: Usage,
    /// Plural noun for messages.
    pub what: &'static str,
    /// Next step for a user.
    pub advice: Advice,
    /// Offset of the magic number.
    pub at: u64,
    /// Length of the magic number in bytes.
    pub magic_len: u64,
    /// Offset of ext or XFS inside a volume with contiguous data. Only [`Signature::of`] sets it.
    pub inner: Option<u64>,
    /// Properties that are cheap to read.
    pub details: SignatureDetails,
}

/// Properties of a format, as libblkid prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignatureDetails {
    /// `VERSION`.
    pub version: Option<String>,
    /// `LABEL`, as stored.
    pub label: Option<Vec<u8>>,
    /// `UUID`, or `PTUUID` for a partition table.
    pub uuid: Option<String>,
    /// `UUID_SUB`.
    pub uuid_sub: Option<String>,
    /// `BLOCK_SIZE` in bytes.
    pub block_size: Option<u64>,
    /// Further properties: `SEC_TYPE`, `LABEL_FATBOOT`, `SUBSYSTEM`.
    pub more: Vec<(&'static str, Vec<u8>)>,
    /// Offset of the data of a volume with contiguous data.
    pub data: Option<u64>,
    /// Offset and length of a magic number without a fixed offset.
    place: Option<(u64, u64)>,
}

/// The usual start of partitions and of data in volumes.
const USUAL_START: u64 = 1 << 20;

impl DetectedFormat {
    /// Noun for messages, with the offset of a file system inside.
    #[must_use]
    pub fn description(&self) -> String {
        match self.inner {
            Some(start) => {
                format!("{} (with a file system that {} reads)", self.what, Hint::Offset(start))
            }
            None => self.what.to_owned(),
        }
    }
}

impl Signature {
    /// Detects the contents of a device.
    ///
    /// # Errors
    /// If the device cannot be read.
    pub fn of(device: &dyn BlockDevice) -> io::Result<Self> {
        let mut probe = vec![0; device.len().min(PROBE_BYTES) as usize];
        device.read_at(0, &mut probe)?;
        if let Some(own) = Self::own(&probe) {
            return Ok(own);
        }
        let probe = Probe::new(device)?;
        let mut found = table::find(&probe)?;
        found.retain(|found| found.usage != Usage::Table);
        if let Some(mut found) = found.into_iter().next() {
            found.inner = inner_start(device, &found)?;
            return Ok(Self::Other(Box::new(found)));
        }
        if let Some(lost) = table::lost(&probe)? {
            return Ok(Self::Lost(lost));
        }
        Ok(if probe.starts_with_zeros(PROBE_BYTES as usize) { Self::Zeros } else { Self::Unknown })
    }

    /// Detects the formats that this project opens.
    fn own(probe: &[u8]) -> Option<Self> {
        let (at, magic) = EXT_MAGIC;
        if probe.starts_with(b"XFSB") {
            return Some(Self::Xfs);
        }
        (probe.get(at..at + magic.len()) == Some(&magic[..])).then_some(Self::Ext)
    }
}

/// Returns the offset of ext or XFS inside a volume with contiguous data.
fn inner_start(device: &dyn BlockDevice, found: &DetectedFormat) -> io::Result<Option<u64>> {
    let starts = [found.details.data, (found.usage == Usage::Raid).then_some(USUAL_START)];
    for start in starts.into_iter().flatten() {
        let Some(len) = device.len().checked_sub(start).filter(|len| *len >= PROBE_BYTES) else {
            continue;
        };
        let mut probe = vec![0; len.min(PROBE_BYTES) as usize];
        device.read_at(start, &mut probe)?;
        if Signature::own(&probe).is_some() {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// Finds all formats but ext and XFS whose magic numbers and sanity checks match: volumes first, then file systems, then
/// partition tables.
///
/// # Errors
/// If the device cannot be read.
pub fn find_all(device: &dyn BlockDevice) -> io::Result<Vec<DetectedFormat>> {
    table::find(&Probe::new(device)?)
}

#[cfg(test)]
mod tests;
