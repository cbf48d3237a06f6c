//! The words every file system and every user of one share.

use std::fmt;
use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Protection, Result};

/// Longest name of a directory entry, in bytes, in every format supported.
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

/// What an inode is.
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
    /// The type bits of a POSIX mode.
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

    /// The type a POSIX mode names, if any.
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

    /// Whether it is a regular file.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Regular)
    }

    /// Whether it is a directory.
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Whether it is a symbolic link.
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// The letter `ls -l` and `find -type` use (`-` is `f` for `find`).
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
        // No host has times that 64 bits cannot count.
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
    /// This time as the host has times; `None` if it has none so early or so late.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.sec.unsigned_abs());
        let whole = match self.sec {
            0.. => UNIX_EPOCH.checked_add(seconds),
            _ => UNIX_EPOCH.checked_sub(seconds),
        };
        whole?.checked_add(Duration::from_nanos(self.nsec.into()))
    }
}

/// Device number of a character or block device, as Linux splits it.
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
    /// Its generation: changes when the number is used again.
    pub generation: u32,
    /// Its type.
    pub file_type: FileType,
    /// Permission bits, with set-user-id, set-group-id and sticky (below 0o10000).
    pub permissions: u16,
    /// Number of links. A directory that can hold no more counts 1.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in 512-byte units.
    pub blocks_512: u64,
    /// Device number, for devices.
    pub device: DeviceNumber,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the format keeps it.
    pub crtime: Option<Timestamp>,
    /// What its flags forbid.
    pub protection: Protection,
    /// Whether its flags say that its access time stays.
    pub is_noatime: bool,
}

/// What a new inode starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewInode {
    /// Permission bits (below 0o10000).
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All of its times.
    pub time: Timestamp,
    /// The new mtime and ctime of its directory; `None` leaves them.
    pub parent_time: Option<Timestamp>,
}

/// Attributes to change; `None` leaves one as it is.
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
    /// Creation, where the format keeps it.
    pub crtime: Option<Timestamp>,
    /// On whose behalf.
    pub purpose: ChangePurpose,
}

/// Why attributes change, which decides whether the flags of an inode forbid it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangePurpose {
    /// Somebody asked for these values: not of an inode that is immutable or may only be appended to.
    #[default]
    Request,
    /// Somebody asked for times that are now: not of an inode that is immutable.
    Touch,
    /// It goes with something that was done, and that was not forbidden.
    Consequence,
}

impl SetAttributes {
    /// Whether nothing but times of access and change are set.
    pub const fn is_of_times(&self) -> bool {
        self.permissions.is_none()
            && self.uid.is_none()
            && self.gid.is_none()
            && self.crtime.is_none()
    }

    /// Whether the flags of an inode allow it.
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

/// A special file that `mknod` makes.
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

/// Where a directory listing goes on. 0 is the start; other values come from [`DirEntry::next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(pub u64);

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// The type, where the directory itself says so.
    pub file_type: Option<FileType>,
    /// Where a listing goes on after this entry.
    pub next: Cookie,
}

/// A run of a file's bytes that lies in one piece on the device, or is known not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
    /// Where the bytes are.
    pub place: ExtentPlace,
}

/// Bytes that lie together in a file of the host's.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<'a> {
    /// That file.
    pub file: &'a File,
    /// First byte there.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
}

/// Where a run of a file's bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPlace {
    /// At this byte of the device.
    Device(u64),
    /// Allocated at this byte of the device but never written: reads as zeros.
    Unwritten(u64),
    /// Not allocated: reads as zeros.
    Hole,
    /// Inside metadata (inline data): read it through the file system.
    Inline,
}

/// What `allocate` does with a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Space where there is none, which reads as zeros; the file grows if the range ends past its
    /// size (`fallocate` without flags).
    Unwritten,
    /// As `Unwritten`, but the size stays (`FALLOC_FL_KEEP_SIZE`).
    UnwrittenKeepSize,
    /// Gives the space of whole blocks back and zeroes the rest; the size stays
    /// (`FALLOC_FL_PUNCH_HOLE`).
    PunchHole,
    /// The range reads as zeros and has space; the file grows if the range ends past its size
    /// (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// As `Zero`, but the size stays.
    ZeroKeepSize,
    /// Written space over whatever the blocks held, for a builder that is about to fill all of it
    /// through the device. Only an image in progress without a log allows it.
    Exposed,
}

impl AllocateMode {
    /// Whether the size stays where the range ends past it.
    pub const fn keeps_size(self) -> bool {
        matches!(self, Self::UnwrittenKeepSize | Self::ZeroKeepSize)
    }

    /// Whether the range reads as zeros afterwards, whatever it held.
    pub const fn zeroes(self) -> bool {
        matches!(self, Self::Zero | Self::ZeroKeepSize)
    }
}

/// What `rename` does if the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// What the new name stood for is removed.
    Replace,
    /// `Exists`.
    NoReplace,
    /// The two change places; both must be there.
    Exchange,
}

/// Totals of a file system, in blocks and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks that can hold files and metadata (without the format's fixed overhead).
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that ordinary users may take.
    pub blocks_available: u64,
    /// Free blocks that contents of files may take, of any owner: all but those that are kept for
    /// operations that free.
    pub blocks_for_contents: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
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
        // Hosts differ in how far their times go.
        for sec in [i64::MAX, -i64::MAX] {
            let time = Timestamp { sec, nsec: 999_999_999 };
            assert!(time.to_system_time().is_none_or(|of_host| Timestamp::from(of_host) == time));
        }
    }
}
