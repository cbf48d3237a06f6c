//! Flags of inodes, as chattr(1) and ioctl_xfs_fsgetxattr(2) name them, and what they forbid.

use bitflags::bitflags;

use crate::{AllocateMode, Error, Result, Timestamp};

bitflags! {
    /// Flags of an inode, of all formats. The lower 32 bits are those of FS_IOC_GETFLAGS (`FS_*_FL`);
    /// what only FS_IOC_FSGETXATTR knows is there as `FS_XFLAG_*`, 32 bits higher.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u64 {
        /// `s`: its blocks are to be zeroed when it is deleted. Kept, but nobody does it.
        const SECURE_DELETE = 0x1;
        /// `u`: its contents are to be kept when it is deleted. Kept, but nobody does it.
        const UNDELETE = 0x2;
        /// `c`: to be compressed. Kept, but nobody does it.
        const COMPRESS = 0x4;
        /// `S`: what is written to it is durable at once.
        const SYNC = 0x8;
        /// `i`: nothing about it may change.
        const IMMUTABLE = 0x10;
        /// `a`: it may only be appended to; of a directory, names may only be added.
        const APPEND = 0x20;
        /// `d`: backups leave it out.
        const NODUMP = 0x40;
        /// `A`: its access time stays.
        const NOATIME = 0x80;
        /// `m`: not to be compressed.
        const NOCOMPRESS = 0x400;
        /// `E`: the contents are encrypted.
        const ENCRYPTED = 0x800;
        /// `I`: a hashed directory.
        const INDEXED = 0x1000;
        /// `j`: a kernel's journal holds its data, too.
        const JOURNAL_DATA = 0x4000;
        /// `t`: its tail is not to be merged. Kept, but nobody does it.
        const NOTAIL = 0x8000;
        /// `D`: changes of the directory are durable at once.
        const DIRSYNC = 0x1_0000;
        /// `T`: the directory is at the top of its own hierarchy, for allocation.
        const TOPDIR = 0x2_0000;
        /// `e`: its blocks are mapped by extents.
        const EXTENTS = 0x8_0000;
        /// `V`: protected by fs-verity.
        const VERITY = 0x10_0000;
        /// `C`: not to be copied when it is written to. Other formats than these have it.
        const NOCOW = 0x80_0000;
        /// `x`: to be mapped without a cache, where devices can.
        const DAX = 0x200_0000;
        /// `N`: the contents lie in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// `P`: what is made in the directory belongs to its project.
        const PROJINHERIT = 0x2000_0000;
        /// `F`: names are looked up without regard to case.
        const CASEFOLD = 0x4000_0000;
        /// The data is on the realtime device.
        const REALTIME = 0x1 << 32;
        /// It has space past its end on purpose.
        const PREALLOCATED = 0x2 << 32;
        /// New files in the directory have their data on the realtime device.
        const RTINHERIT = 0x100 << 32;
        /// No symbolic links may be made in the directory.
        const NOSYMLINKS = 0x400 << 32;
        /// It has a hint of how much to allocate at once.
        const EXTSIZE = 0x800 << 32;
        /// New files in the directory get its hint.
        const EXTSZINHERIT = 0x1000 << 32;
        /// Defragmenters leave it alone.
        const NODEFRAG = 0x2000 << 32;
        /// What is made in the directory is to be allocated together.
        const FILESTREAM = 0x4000 << 32;
        /// It has a hint of how much to copy at once when what it shares is written to.
        const COWEXTSIZE = 0x1_0000 << 32;
        /// It has extended attributes.
        const HASATTR = 0x8000_0000 << 32;
    }
}

/// The flags that both calls know, and the bit that FS_IOC_FSGETXATTR has for each (`FS_XFLAG_*`).
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
    /// Flags that say how an inode is. Nobody sets or clears them: where that is asked for, they stay, as
    /// kernels leave them.
    pub const DESCRIBING: Self = Self::ENCRYPTED
        .union(Self::INDEXED)
        .union(Self::VERITY)
        .union(Self::INLINE_DATA)
        .union(Self::PREALLOCATED)
        .union(Self::HASATTR);

    /// What FS_IOC_GETFLAGS and FS_IOC_SETFLAGS know.
    pub const OF_GETFLAGS: Self = Self::from_bits_truncate(u32::MAX as u64);

    /// As FS_IOC_GETFLAGS has them.
    pub const fn to_getflags(self) -> u32 {
        self.bits() as u32
    }

    /// Those of FS_IOC_SETFLAGS. `None` if there is one that no format has.
    pub const fn from_getflags(flags: u32) -> Option<Self> {
        Self::from_bits(flags as u64)
    }

    /// As FS_IOC_FSGETXATTR has them (`fsx_xflags`).
    pub fn to_xflags(self) -> u32 {
        let own = (self.bits() >> 32) as u32;
        IN_BOTH
            .iter()
            .fold(own, |all, &(flag, bit)| if self.contains(flag) { all | bit } else { all })
    }

    /// Those of FS_IOC_FSSETXATTR. `None` if there is one that no format has.
    pub fn from_xflags(xflags: u32) -> Option<Self> {
        let both = IN_BOTH.iter().filter(|(_, bit)| xflags & bit != 0);
        let (flags, known) = both
            .fold((Self::empty(), 0), |(flags, known), &(flag, bit)| (flags | flag, known | bit));
        Self::from_bits(u64::from(xflags & !known) << 32).map(|own| own | flags)
    }

    /// The flags that FS_IOC_FSGETXATTR knows.
    pub fn of_xflags() -> Self {
        let both = IN_BOTH.iter().fold(Self::empty(), |all, &(flag, _)| all | flag);
        (Self::all() - Self::OF_GETFLAGS) | both
    }
}

/// What chattr(1) and xfs_io(8) show and change of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// Its flags.
    pub flags: InodeFlags,
    /// The project it belongs to.
    pub project_id: u32,
    /// How much to allocate at once, in bytes; 0 for no hint.
    pub extent_size_bytes: u32,
    /// How much to copy at once when what it shares is written to, in bytes; 0 for no hint.
    pub cow_extent_size_bytes: u32,
    /// Extents of its contents, where the format counts them.
    pub extents: u32,
}

/// What to change of it; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributesChange {
    /// Flags to set.
    pub set: InodeFlags,
    /// Flags to clear.
    pub clear: InodeFlags,
    /// The project it belongs to.
    pub project_id: Option<u32>,
    /// How much to allocate at once, in bytes; with 0, the hint goes, and its flags with it.
    pub extent_size_bytes: Option<u32>,
    /// The same for copying.
    pub cow_extent_size_bytes: Option<u32>,
    /// The time of this change of the inode; `None` leaves it.
    pub ctime: Option<Timestamp>,
}

/// What the flags of an inode forbid, by the rules of Linux: `NotPermitted` (`EPERM`) says so. Removing
/// the flags is not among it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// [`InodeFlags::IMMUTABLE`].
    pub is_immutable: bool,
    /// [`InodeFlags::APPEND`].
    pub is_append_only: bool,
}

const IMMUTABLE: Error = Error::NotPermitted("it is immutable: chattr -i first");
const APPEND_ONLY: Error = Error::NotPermitted("it may only be appended to: chattr -a first");

impl Protection {
    /// Whether there is any.
    pub const fn is_any(self) -> bool {
        self.is_immutable || self.is_append_only
    }

    /// Anything about the inode that is no appending: attributes, names of it, its size.
    pub const fn check_change(self) -> Result<()> {
        match self {
            Self { is_immutable: true, .. } => Err(IMMUTABLE),
            Self { is_append_only: true, .. } => Err(APPEND_ONLY),
            _ => Ok(()),
        }
    }

    /// What may be done while it can be appended to: a name in a directory, times that are now.
    pub const fn check_addition(self) -> Result<()> {
        if self.is_immutable { Err(IMMUTABLE) } else { Ok(()) }
    }

    /// Writing at `offset` into a file of `size` bytes.
    pub const fn check_write(self, offset: u64, size: u64) -> Result<()> {
        match self {
            Self { is_immutable: true, .. } => Err(IMMUTABLE),
            Self { is_append_only: true, .. } if offset < size => Err(APPEND_ONLY),
            _ => Ok(()),
        }
    }

    /// `fallocate`: space in advance alone goes with appending.
    pub const fn check_allocate(self, mode: AllocateMode) -> Result<()> {
        match mode {
            AllocateMode::Unwritten | AllocateMode::UnwrittenKeepSize => self.check_addition(),
            _ => self.check_change(),
        }
    }

    /// Removing, from a directory that is protected like this, a name of an inode protected like `of`.
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
