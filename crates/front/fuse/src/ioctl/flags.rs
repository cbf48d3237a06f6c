//! Inode flags, projects and extent size hints, for chattr(1), lsattr(1) and xfs_io(8).
//!
//! The kernel checks `CAP_LINUX_IMMUTABLE` for flags that forbid changes, and ownership for all others. Requests
//! contain too little information to do it here.
//!
//! The kernel may have cached writes for a file that becomes read-only. So before such a flag is set, the kernel must
//! write back its cache and invalidate the cached attributes, which it then requests each time ([`crate::protect`]).
//! For that the request must be a late one.

use linux::abi::IoctlIn;
use linux::{Errno, PageCache, Reply, ioctl};
use vfs::{FileAttributes, FileAttributesChange, FileType, InodeFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Ioctl;
use crate::{Adapter, clock};

/// `FS_IOC_GETFLAGS`. The number encodes a `long`, but the argument is an `int`.
pub(super) const GETFLAGS: u32 = ioctl::read(b'f', 1, 8);
/// `FS_IOC_SETFLAGS`.
pub(super) const SETFLAGS: u32 = ioctl::write(b'f', 2, 8);
/// `FS_IOC_FSGETXATTR`.
pub(super) const FSGETXATTR: u32 = ioctl::read(b'X', 31, size_of::<FsXattr>());
/// `FS_IOC_FSSETXATTR`.
pub(super) const FSSETXATTR: u32 = ioctl::write(b'X', 32, size_of::<FsXattr>());

/// `struct fsxattr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const _: () = assert!(size_of::<FsXattr>() == 28);

/// Flags of extent size hints.
const OF_HINTS: InodeFlags =
    InodeFlags::EXTSIZE.union(InodeFlags::EXTSZINHERIT).union(InodeFlags::COWEXTSIZE);

/// Flags that forbid writing.
const FORBIDDING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Returns whether a request may set flags that forbid writing.
pub(crate) fn may_forbid(args: &IoctlIn, data: &[u8]) -> bool {
    let flags = match args.cmd {
        SETFLAGS => data
            .first_chunk()
            .and_then(|bytes| InodeFlags::from_getflags(u32::from_ne_bytes(*bytes))),
        FSSETXATTR => FsXattr::read_from_bytes(data)
            .ok()
            .and_then(|wanted| InodeFlags::from_xflags(wanted.xflags)),
        _ => None,
    };
    flags.is_some_and(|flags| flags.intersects(FORBIDDING))
}

impl Adapter<'_> {
    /// `FS_IOC_GETFLAGS`.
    pub(super) fn getflags(&self, request: &Ioctl<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let flags = self.file_attributes(request)?.flags;
        ioctl::answer(request.args, &flags.to_getflags(), reply)
    }

    /// `FS_IOC_SETFLAGS`.
    pub(super) fn setflags(
        &self,
        request: &Ioctl<'_>,
        reply: &mut Reply<'_>,
        cache: Option<&PageCache<'_>>,
    ) -> Result<(), Errno> {
        let wanted =
            InodeFlags::from_getflags(ioctl::input(request.data)?).ok_or(Errno::OPNOTSUPP)?;
        let old = self.file_attributes(request)?.flags & InodeFlags::OF_GETFLAGS;
        let change = FileAttributesChange {
            set: wanted - old,
            clear: old - wanted,
            ..FileAttributesChange::default()
        };
        self.change_file_attributes(request, change, cache)?;
        ioctl::answer(request.args, &[0_u8; 0], reply)
    }

    /// `FS_IOC_FSGETXATTR`.
    pub(super) fn fsgetxattr(
        &self,
        request: &Ioctl<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        let found = self.file_attributes(request)?;
        let answer = FsXattr {
            xflags: found.flags.to_xflags(),
            extsize: found.extent_size_bytes,
            nextents: found.extents,
            projid: found.project_id,
            cowextsize: found.cow_extent_size_bytes,
            ..FsXattr::default()
        };
        ioctl::answer(request.args, &answer, reply)
    }

    /// `FS_IOC_FSSETXATTR`.
    pub(super) fn fssetxattr(
        &self,
        request: &Ioctl<'_>,
        reply: &mut Reply<'_>,
        cache: Option<&PageCache<'_>>,
    ) -> Result<(), Errno> {
        let asked: FsXattr = ioctl::input(request.data)?;
        let wanted = InodeFlags::from_xflags(asked.xflags).ok_or(Errno::OPNOTSUPP)?;
        let found = self.file_attributes(request)?;
        let old = found.flags & InodeFlags::of_xflags();
        let hint = |flags: InodeFlags, value: u32| if wanted.intersects(flags) { value } else { 0 };
        let extent_size = hint(InodeFlags::EXTSIZE | InodeFlags::EXTSZINHERIT, asked.extsize);
        let cow_extent_size = hint(InodeFlags::COWEXTSIZE, asked.cowextsize);
        let differs = |new: u32, old: u32| (new != old).then_some(new);
        let change = FileAttributesChange {
            set: wanted - old - OF_HINTS,
            clear: old - wanted - OF_HINTS,
            project_id: differs(asked.projid, found.project_id),
            extent_size_bytes: differs(extent_size, found.extent_size_bytes),
            cow_extent_size_bytes: differs(cow_extent_size, found.cow_extent_size_bytes),
            ctime: None,
        };
        self.change_file_attributes(request, change, cache)?;
        ioctl::answer(request.args, &[0_u8; 0], reply)
    }

    fn file_attributes(&self, request: &Ioctl<'_>) -> Result<FileAttributes, Errno> {
        self.result(self.fs.file_attributes(request.ino))
    }

    /// Makes a change with the current time.
    fn change_file_attributes(
        &self,
        request: &Ioctl<'_>,
        mut change: FileAttributesChange,
        cache: Option<&PageCache<'_>>,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let forbids = change.set.intersects(FORBIDDING);
        if forbids && self.attributes(request.ino)?.file_type == FileType::Regular {
            // Over io_uring the kernel's cache cannot be written back.
            let cache = cache.ok_or(Errno::OPNOTSUPP)?;
            cache.write_back(request.header.nodeid, 0..u64::MAX)?;
            self.note_protection();
        }
        change.ctime = Some(clock::now());
        self.result(self.fs.set_file_attributes(request.ino, &change))
    }
}
