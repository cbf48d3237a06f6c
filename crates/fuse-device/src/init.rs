//! What the two sides can do.

use bitflags::bitflags;

bitflags! {
    /// Features of the protocol: bits of `flags` and, from 32 on, of `flags2` of INIT (`FUSE_...`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at once.
        const ASYNC_READ = 1 << 0;
        /// `FUSE_POSIX_LOCKS`.
        const POSIX_LOCKS = 1 << 1;
        /// OPEN truncates.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// Names `.` and `..` are looked up, so that NFS can export the mount.
        const EXPORT_SUPPORT = 1 << 4;
        /// `FUSE_BIG_WRITES`.
        const BIG_WRITES = 1 << 5;
        /// The umask comes with the request and is not applied.
        const DONT_MASK = 1 << 6;
        /// `FUSE_SPLICE_WRITE`.
        const SPLICE_WRITE = 1 << 7;
        /// `FUSE_SPLICE_MOVE`.
        const SPLICE_MOVE = 1 << 8;
        /// `FUSE_SPLICE_READ`.
        const SPLICE_READ = 1 << 9;
        /// `FUSE_FLOCK_LOCKS`.
        const FLOCK_LOCKS = 1 << 10;
        /// `FUSE_HAS_IOCTL_DIR`.
        const HAS_IOCTL_DIR = 1 << 11;
        /// `FUSE_AUTO_INVAL_DATA`.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Listings may bring attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel decides when they should.
        const READDIRPLUS_AUTO = 1 << 14;
        /// `FUSE_ASYNC_DIO`.
        const ASYNC_DIO = 1 << 15;
        /// Writes stay in the page cache until the kernel writes them back; it keeps sizes and times meanwhile.
        const WRITEBACK_CACHE = 1 << 16;
        /// `ENOSYS` to OPEN means that opening needs no message any more.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Several look-ups and listings of one directory at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// `FUSE_HANDLE_KILLPRIV`.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The handler stores ACLs, inherits them and keeps mode and ACL in step; the kernel checks them.
        const POSIX_ACL = 1 << 20;
        /// `FUSE_ABORT_ERROR`.
        const ABORT_ERROR = 1 << 21;
        /// The answer says how many pages a request may have.
        const MAX_PAGES = 1 << 22;
        /// Targets of links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// The same of OPENDIR.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// `FUSE_EXPLICIT_INVAL_DATA`.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The handler clears set-user-id, set-group-id and capabilities when files change.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// The upper 32 bits count.
        const INIT_EXT = 1 << 30;
        /// `FUSE_CREATE_SUPP_GROUP`.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// `FUSE_DIRECT_IO_ALLOW_MMAP`.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// `FUSE_NO_EXPORT_SUPPORT`.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// `FUSE_ALLOW_IDMAP`.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may come through io_uring.
        const OVER_IO_URING = 1 << 41;
    }
}
