//! Features that the kernel and a session negotiate.

use bitflags::bitflags;

bitflags! {
    /// Features of the protocol: bits of `flags` in INIT and, from bit 32 on, of `flags2`
    /// (`FUSE_...`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Concurrent reads of one file.
        const ASYNC_READ = 1 << 0;
        /// `FUSE_POSIX_LOCKS`.
        const POSIX_LOCKS = 1 << 1;
        /// OPEN truncates if `O_TRUNC` is set.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP handles `.` and `..`, so that NFS can export the mount.
        const EXPORT_SUPPORT = 1 << 4;
        /// `FUSE_BIG_WRITES`.
        const BIG_WRITES = 1 << 5;
        /// The kernel passes the umask with the request instead of applying it.
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
        /// Directory listings may include attributes (READDIRPLUS).
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between READDIR and READDIRPLUS.
        const READDIRPLUS_AUTO = 1 << 14;
        /// `FUSE_ASYNC_DIO`.
        const ASYNC_DIO = 1 << 15;
        /// Writes stay in the page cache until write-back. Until then the kernel maintains file
        /// sizes and timestamps.
        const WRITEBACK_CACHE = 1 << 16;
        /// `ENOSYS` in reply to OPEN means that the kernel need not send further OPENs.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Concurrent lookups and listings in one directory.
        const PARALLEL_DIROPS = 1 << 18;
        /// `FUSE_HANDLE_KILLPRIV`.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The handler stores ACLs, inherits them and keeps mode and ACL consistent. The kernel
        /// checks permissions.
        const POSIX_ACL = 1 << 20;
        /// `FUSE_ABORT_ERROR`.
        const ABORT_ERROR = 1 << 21;
        /// The reply to INIT contains the maximum number of pages per request.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// `ENOSYS` in reply to OPENDIR means that the kernel need not send further OPENDIRs.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// `FUSE_EXPLICIT_INVAL_DATA`.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The handler clears set-user-ID, set-group-ID and capabilities when files change.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has an extended structure with flags.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid.
        const INIT_EXT = 1 << 30;
        /// `FUSE_CREATE_SUPP_GROUP`.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// `FUSE_DIRECT_IO_ALLOW_MMAP`.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// `FUSE_NO_EXPORT_SUPPORT`.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// `FUSE_ALLOW_IDMAP`.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may use io_uring.
        const OVER_IO_URING = 1 << 41;
    }
}
