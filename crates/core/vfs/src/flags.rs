//! Inode flags, named as in chattr(1) and ioctl_xfs_fsgetxattr(2), and the operations that they forbid.

use bitflags::bitflags;

use crate::{AllocateMode, Error, Result, Timestamp};

bitflags! {
    /// Inode flags of all formats. The lower 32 bits are those of FS_IOC_GETFLAGS (`FS_*_FL`). Flags that only
    /// FS_IOC_FSGETXATTR has (`FS_XFLAG_*`) are shifted left by 32 bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u64 {
        /// `s`: zero the blocks on deletion. Stored, but not implemented.
        const SECURE_DELETE = 0x1;
        /// `u`: keep the contents after deletion. Stored, but not implemented.
        const UNDELETE = 0x2;
        /// `c`: compress the contents. Stored, but not implemented.
        const COMPRESS = 0x4;
        /// `S`: writes are synchronous.
        const SYNC = 0x8;
        /// `i`: the inode is immutable.
        const IMMUTABLE = 0x10;
        /// `a`: append-only; in a directory, names can only be added.
        const APPEND = 0x20;
        /// `d`: excluded from dump(8) backups.
        const NODUMP = 0x40;
        /// `A`: the access time is not updated.
        const NOATIME = 0x80;
        /// `m`: do not compress the contents.
        const NOCOMPRESS = 0x400;
        /// `E`: the contents are encrypted.
        const ENCRYPTED = 0x800;
        /// `I`: the directory has a hash index.
        const INDEXED = 0x1000;
        /// `j`: the kernel journals the data, too.
        const JOURNAL_DATA = 0x4000;
        /// `t`: do not merge the tail. Stored, but not implemented.
        const NOTAIL = 0x8000;
        /// `D`: changes of the directory are synchronous.
        const DIRSYNC = 0x1_0000;
        /// `T`: the allocator treats the directory as the top of a hierarchy.
        const TOPDIR = 0x2_0000;
        /// `e`: the blocks are mapped by extents.
        const EXTENTS = 0x8_0000;
        /// `V`: protected by fs-verity.
        const VERITY = 0x10_0000;
        /// `C`: no copy-on-write. Used by other file systems only.
        const NOCOW = 0x80_0000;
        /// `x`: direct access (DAX), if the device supports it.
        const DAX = 0x200_0000;
        /// `N`: the contents are stored in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// `P`: new entries of the directory inherit its project.
        const PROJINHERIT = 0x2000_0000;
        /// `F`: look-ups in the directory ignore case.
        const CASEFOLD = 0x4000_0000;
        /// The data is on the realtime device.
        const REALTIME = 0x1 << 32;
        /// The file has preallocated space past its end.
        const PREALLOCATED = 0x2 << 32;
        /// Data of new files in the directory is allocated on the realtime device.
        const RTINHERIT = 0x100 << 32;
        /// Symbolic links cannot be created in the directory.
        const NOSYMLINKS = 0x400 << 32;
        /// The inode has an extent size hint.
        const EXTSIZE = 0x800 << 32;
        /// New files in the directory inherit its extent size hint.
        const EXTSZINHERIT = 0x1000 << 32;
        /// Excluded from defragmentation.
        const NODEFRAG = 0x2000 << 32;
        /// Data of files below the directory is allocated in one group (filestreams allocator).
        const FILESTREAM = 0x4000 << 32;
        /// The inode has a copy-on-write extent size hint.
        const COWEXTSIZE = 0x1_0000 << 32;
        /// The inode has extended attributes.
        const HASATTR = 0x8000_0000 << 32;
    }
}

/// Flags that both ioctls have, with their bits in FS_IOC_FSGETXATTR (`FS_XFLAG_*`).
const IN_BOTH: [(InodeFlags, u32); 8] = [
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
    (InodeFlags::VERITY, 0x2_0000),
];

impl InodeFlags {
    /// Flags that describe the inode's state. Requests to set or clear them are ignored, as in the kernel.
    pub const DESCRIBING: Self = Self::ENCRYPTED
        .union(Self::INDEXED)
        .union(Self::VERITY)
        .union(Self::INLINE_DATA)
        .union(Self::PREALLOCATED)
        .union(Self::HASATTR);

    /// Flags of FS_IOC_GETFLAGS and FS_IOC_SETFLAGS.
    pub const OF_GETFLAGS: Self = Self::from_bits_truncate(u32::MAX as u64);

    /// Returns the bits of FS_IOC_GETFLAGS.
    pub const fn to_getflags(self) -> u32 {
        self.bits() as u32
    }

    /// Converts the bits of FS_IOC_SETFLAGS. Returns `None` if a bit is unknown.
    pub const fn from_getflags(flags: u32) -> Option<Self> {
        Self::from_bits(flags as u64)
    }

    /// Returns the bits of FS_IOC_FSGETXATTR (`fsx_xflags`).
    pub fn to_xflags(self) -> u32 {
        let own = (self.bits() >> 32) as u32;
        IN_BOTH
            .iter()
            .fold(own, |all, &(flag, bit)| if self.contains(flag) { all | bit } else { all })
    }

    /// Converts the bits of FS_IOC_FSSETXATTR. Returns `None` if a bit is unknown.
    pub fn from_xflags(xflags: u32) -> Option<Self> {
        let both = IN_BOTH.iter().filter(|(_, bit)| xflags & bit != 0);
        let (flags, known) = both
            .fold((Self::empty(), 0), |(flags, known), &(flag, bit)| (flags | flag, known | bit));
        Self::from_bits(u64::from(xflags & !known) << 32).map(|own| own | flags)
    }

    /// Returns the flags of FS_IOC_FSGETXATTR.
    pub fn of_xflags() -> Self {
        let both = IN_BOTH.iter().fold(Self::empty(), |all, &(flag, _)| all | flag);
        (Self::all() - Self::OF_GETFLAGS) | both
    }
}

/// Flags, project and allocation hints of an inode, as in chattr(1) and xfs_io(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// Inode flags.
    pub flags: InodeFlags,
    /// Project ID.
    pub project_id: u32,
    /// Extent size hint in bytes; 0 for none.
    pub extent_size_bytes: u32,
    /// Copy-on-write extent size hint in bytes; 0 for none.
    pub cow_extent_size_bytes: u32,
    /// Number of data extents, if the format counts them.
    pub extents: u32,
}

/// A change of [`FileAttributes`]; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributesChange {
    /// Flags to set.
    pub set: InodeFlags,
    /// Flags to clear.
    pub clear: InodeFlags,
    /// New project ID.
    pub project_id: Option<u32>,
    /// New extent size hint in bytes; 0 removes the hint and its flags.
    pub extent_size_bytes: Option<u32>,
    /// New copy-on-write extent size hint in bytes; 0 removes the hint and its flag.
    pub cow_extent_size_bytes: Option<u32>,
    /// New ctime; `None` leaves it unchanged.
    pub ctime: Option<Timestamp>,
}

/// Restrictions by inode flags, following the rules of Linux. Violations return `NotPermitted` (`EPERM`). Removing the
/// flags themselves is not restricted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// [`InodeFlags::IMMUTABLE`] is set.
    pub is_immutable: bool,
    /// [`InodeFlags::APPEND`] is set.
    pub is_append_only: bool,
}

const IMMUTABLE: Error =
    Error::NotPermitted("the file is immutable; clear the flag with chattr -i first");
const APPEND_ONLY: Error =
    Error::NotPermitted("the file is append-only; clear the flag with chattr -a first");

impl Protection {
    /// Returns whether any restriction applies.
    pub const fn is_any(self) -> bool {
        self.is_immutable || self.is_append_only
    }

    /// Checks a change other than appending: of attributes, names of the inode or size.
    pub const fn check_change(self) -> Result<()> {
        match self {
            Self { is_immutable: true, .. } => Err(IMMUTABLE),
            Self { is_append_only: true, .. } => Err(APPEND_ONLY),
            _ => Ok(()),
        }
    }

    /// Checks changes that append-only inodes allow: new names in a directory, or setting times to the current time.
    pub const fn check_addition(self) -> Result<()> {
        if self.is_immutable { Err(IMMUTABLE) } else { Ok(()) }
    }

    /// Checks a write at `offset` into a file of `size` bytes.
    pub const fn check_write(self, offset: u64, size: u64) -> Result<()> {
        match self {
            Self { is_immutable: true, .. } => Err(IMMUTABLE),
            Self { is_append_only: true, .. } if offset < size => Err(APPEND_ONLY),
            _ => Ok(()),
        }
    }

    /// Checks `fallocate`. Append-only files allow preallocation only.
    pub const fn check_allocate(self, mode: AllocateMode) -> Result<()> {
        match mode {
            AllocateMode::Unwritten | AllocateMode::UnwrittenKeepSize => self.check_addition(),
            _ => self.check_change(),
        }
    }

    /// Checks the removal of a name from a directory with these restrictions; `of` are those of the named inode.
    pub fn check_removal(self, of: Self) -> Result<()> {
        self.check_change().and_then(|()| of.check_change())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_both_calls() {
        for flag in InodeFlags::all().iter() {
            let (low, high) = (flag.to_getflags(), flag.to_xflags());
            assert!(low != 0 || high != 0);
            if low != 0 {
                assert_eq!(InodeFlags::from_getflags(low), Some(flag));
            }
            if high != 0 {
                assert_eq!(InodeFlags::from_xflags(high), Some(flag));
                assert!(InodeFlags::of_xflags().contains(flag));
            }
        }
        assert_eq!(InodeFlags::from_getflags(0x100), None);
        assert_eq!(InodeFlags::from_xflags(0x4), None);
    }
}
