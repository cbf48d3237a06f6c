//! Types shared by all file systems and their users.

use std::fmt;
use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Protection, Result};

/// Maximum length of a directory entry's name in bytes, in all supported formats.
pub const NAME_LEN_MAX: usize = 255;

/// An inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ino({})", self.0)
    }
}

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
}

/// Mask of the file-type bits of a POSIX mode.
pub const S_IFMT: u16 = 0o170_000;

impl FileType {
    /// Returns the type bits of a POSIX mode.
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Returns the type in a POSIX mode, or `None` if it is invalid.
    pub const fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & S_IFMT {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns whether it is a regular file.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Regular)
    }

    /// Returns whether it is a directory.
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Returns whether it is a symbolic link.
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// Returns the letter that `ls -l` and `find -type` use (`-` is `f` for `find`).
    pub const fn letter(self) -> char {
        match self {
            Self::Regular => '-',
            Self::Directory => 'd',
            Self::Symlink => 'l',
            Self::CharDevice => 'c',
            Self::BlockDevice => 'b',
            Self::Fifo => 'p',
            Self::Socket => 's',
        }
    }
}

/// A point in time: seconds since 1970-01-01 UTC and nanoseconds within that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        // The times of all hosts fit into 64 bits.
        let seconds = |since: Duration| i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { sec: seconds(since), nsec: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                match before.subsec_nanos() {
                    0 => Self { sec: -seconds(before), nsec: 0 },
                    nsec => Self { sec: -seconds(before) - 1, nsec: 1_000_000_000 - nsec },
                }
            }
        }
    }
}

impl Timestamp {
    /// Converts to the host's type; `None` if it is out of the host's range.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.sec.unsigned_abs());
        let whole = match self.sec {
            0.. => UNIX_EPOCH.checked_add(seconds),
            _ => UNIX_EPOCH.checked_sub(seconds),
        };
        whole?.checked_add(Duration::from_nanos(self.nsec.into()))
    }
}

/// Device number of a character or block device, split as in Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number, below 4096 on disk.
    pub major: u32,
    /// Minor number, below 2^20 on disk.
    pub minor: u32,
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub ino: Ino,
    /// Generation: changes when the inode number is reused.
    pub generation: u32,
    /// File type.
    pub file_type: FileType,
    /// Permission bits, with set-user-id, set-group-id and sticky (below 0o10000).
    pub permissions: u16,
    /// Number of links. A directory with more links than the format can count has 1.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space, in 512-byte units.
    pub blocks_512: u64,
    /// Device number, for devices.
    pub device: DeviceNumber,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation time, if the format stores it.
    pub crtime: Option<Timestamp>,
    /// Restrictions by inode flags.
    pub protection: Protection,
    /// True if the access time is not updated (`NOATIME`).
    pub is_noatime: bool,
}

/// Initial attributes of a new inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewInode {
    /// Permission bits (below 0o10000).
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Value of all timestamps.
    pub time: Timestamp,
    /// New mtime and ctime of the parent directory; `None` leaves them unchanged.
    pub parent_time: Option<Timestamp>,
}

/// Attributes to change; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits (below 0o10000).
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the contents.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode.
    pub ctime: Option<Timestamp>,
    /// Creation time, if the format stores it.
    pub crtime: Option<Timestamp>,
    /// Reason for the change.
    pub purpose: ChangePurpose,
}

/// Reason for a change of attributes. It determines which inode flags forbid the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangePurpose {
    /// A caller requested these values. Forbidden for immutable and append-only inodes.
    #[default]
    Request,
    /// A caller requested the current time. Forbidden for immutable inodes.
    Touch,
    /// A side effect of another, permitted operation.
    Consequence,
}

impl SetAttributes {
    /// Returns whether only access and modification times are set.
    pub const fn is_of_times(&self) -> bool {
        self.permissions.is_none()
            && self.uid.is_none()
            && self.gid.is_none()
            && self.crtime.is_none()
    }

    /// Checks whether the flags of an inode permit the change.
    ///
    /// # Errors
    /// `NotPermitted` if they do not.
    pub const fn check(&self, protection: Protection) -> Result<()> {
        match self.purpose {
            ChangePurpose::Request => protection.check_change(),
            ChangePurpose::Touch => protection.check_addition(),
            ChangePurpose::Consequence => Ok(()),
        }
    }
}

/// A special file for `mknod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
}

/// Position in a directory listing. 0 is the start; other values come from [`DirEntry::next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(pub u64);

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Inode of the entry.
    pub ino: Ino,
    /// File type, if the directory stores it.
    pub file_type: Option<FileType>,
    /// Position behind this entry.
    pub next: Cookie,
}

/// A range of a file with one kind of location; contiguous if it is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
    /// Location of the bytes.
    pub place: ExtentPlace,
}

/// A contiguous range of a host file.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<'a> {
    /// The host file.
    pub file: &'a File,
    /// First byte in the host file.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
}

/// Location of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPlace {
    /// On the device, at this byte.
    Device(u64),
    /// Allocated on the device at this byte, but never written: reads as zeros.
    Unwritten(u64),
    /// Not allocated: reads as zeros.
    Hole,
    /// In metadata (inline data). Readable only through the file system.
    Inline,
}

/// Operation of `allocate` on a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Allocates missing space, which reads as zeros. The file grows if the range ends past its size (`fallocate`
    /// without flags).
    Unwritten,
    /// Like `Unwritten`, but the size does not change (`FALLOC_FL_KEEP_SIZE`).
    UnwrittenKeepSize,
    /// Deallocates whole blocks and zeroes the rest; the size does not change (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// Allocates missing space and makes the whole range read as zeros. The file grows if the range ends past its size
    /// (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// Like `Zero`, but the size does not change.
    ZeroKeepSize,
    /// Allocates written blocks without zeroing them, for a builder that fills all of them through the device. Only
    /// valid for an image in progress without a log.
    Exposed,
}

impl AllocateMode {
    /// Returns whether the size is unchanged if the range ends past it.
    pub const fn keeps_size(self) -> bool {
        matches!(self, Self::UnwrittenKeepSize | Self::ZeroKeepSize)
    }

    /// Returns whether the whole range reads as zeros afterwards.
    pub const fn zeroes(self) -> bool {
        matches!(self, Self::Zero | Self::ZeroKeepSize)
    }
}

/// Behaviour of `rename` if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces the existing entry.
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Exchanges the two entries; both must exist.
    Exchange,
}

/// Totals of a file system, in blocks and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks for files and metadata, without the format's fixed overhead.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks available to unprivileged users.
    pub blocks_available: u64,
    /// Free blocks available for file contents of any owner: all but the reserve for operations that free space.
    pub blocks_for_contents: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// Maximum length of a name in bytes.
    pub name_len_max: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_host_are_the_same_times() {
        for (sec, nsec) in
            [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-2, 999_999_999), (1 << 33, 7)]
        {
            let time = Timestamp { sec, nsec };
            let of_host = time.to_system_time().unwrap();
            assert_eq!(Timestamp::from(of_host), time);
        }
        // The range of the host's times differs between hosts.
        for sec in [i64::MAX, -i64::MAX] {
            let time = Timestamp { sec, nsec: 999_999_999 };
            assert!(time.to_system_time().is_none_or(|of_host| Timestamp::from(of_host) == time));
        }
    }
}
