//! Dispatch of requests to the parts of the adapter.

use linux::abi::OpenOut;
use linux::{
    Errno, Handler, InitFlags, Kernel, Operation, PageCache, Reply, Request, Settings, abi,
};
use rustix::fs::OFlags;

use crate::Adapter;
use crate::ioctl::{self, Ioctl};
use crate::shutdown::is_shutdown;

/// Maximum size of a read or write in bytes.
const MAX_WRITE: u32 = 1 << 20;

/// Maximum space of files that are freed immediately, in 512-byte units: 16 MiB.
const SMALL_BLOCKS_512: u64 = 32 * 1024;

/// Maximum number of small inodes that are forgotten immediately.
const QUICK_NODES: usize = 16;

/// Features to use if the kernel supports them.
const FEATURES: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::EXPORT_SUPPORT)
    .union(InitFlags::DONT_MASK)
    .union(InitFlags::HAS_IOCTL_DIR)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::WRITEBACK_CACHE)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::POSIX_ACL)
    .union(InitFlags::CACHE_SYMLINKS)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::EXPLICIT_INVAL_DATA)
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::SETXATTR_EXT);

/// Features of read-only mounts.
///
/// Asynchronous direct I/O is limited to mounts without writes: Linux (tested with 6.18) invalidates the pages that a
/// direct write makes stale before it sends the write, and after it only if the caller waits. Pages read by others in
/// between would stay, and be written back over newer bytes.
const READ_ONLY_FEATURES: InitFlags = FEATURES.union(InitFlags::ASYNC_DIO);

impl Handler for Adapter<'_> {
    fn init(&self, kernel: &Kernel) -> Settings {
        let features = if self.options.read_only { READ_ONLY_FEATURES } else { FEATURES };
        let shows_others = self.options.uid.is_some() || self.options.gid.is_some();
        let may_map = self.options.idmap && !shows_others;
        let idmap = if may_map { InitFlags::ALLOW_IDMAP } else { InitFlags::empty() };
        let open = match self.options.parallel_direct {
            true => InitFlags::DIRECT_IO_ALLOW_MMAP,
            false => InitFlags::NO_OPEN_SUPPORT,
        };
        Settings {
            features: features | idmap | open,
            max_write: MAX_WRITE,
            max_readahead: kernel.max_readahead,
            time_gran: 1,
        }
    }

    fn is_quick(&self, request: &Request<'_>) -> bool {
        match request.operation {
            Operation::Lookup { .. }
            | Operation::Getattr(_)
            | Operation::Statx(_)
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Readlink
            | Operation::Getxattr { .. }
            | Operation::Statfs => true,
            Operation::Setattr(args) => args.valid & abi::FATTR_SIZE == 0,
            // A forgotten inode may have no names, and its space must be freed.
            Operation::Forget { .. } => self.is_small(request.header.nodeid),
            Operation::BatchForget { nodes } => {
                nodes.len() <= QUICK_NODES && nodes.iter().all(|node| self.is_small(node.nodeid))
            }
            _ => false,
        }
    }

    fn is_late(&self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Lseek(_) | Operation::Bmap(_) => !self.options.read_only,
            Operation::Ioctl { args, data } => {
                ioctl::may_forbid(args, data) || is_shutdown(operation)
            }
            Operation::Getattr(_) | Operation::Statx(_) => self.protected.has_refused(),
            _ => false,
        }
    }

    fn handle_late(
        &self,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        cache: &PageCache<'_>,
    ) -> Result<(), Errno> {
        self.check_served()?;
        match &request.operation {
            Operation::Lseek(args) => self.lseek_late(request.header.nodeid, args, reply, cache),
            Operation::Bmap(args) => self.bmap_late(request.header.nodeid, args, reply, cache),
            Operation::Ioctl { args, data } => {
                let (header, ino) = (&request.header, self.ino(request.header.nodeid));
                let outcome = self.ioctl(&Ioctl { header, ino, args, data }, reply, Some(cache));
                self.note_change();
                outcome
            }
            Operation::Getattr(_) | Operation::Statx(_) => {
                self.forget_refused(cache);
                self.handle(request, reply)
            }
            _ => self.handle(request, reply),
        }
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        self.check_served()?;
        let outcome = self.answer(request, reply);
        if may_change(&request.operation) {
            self.note_change();
        }
        outcome
    }
}

/// Returns whether a request may have changed something other than access times.
fn may_change(operation: &Operation<'_>) -> bool {
    if let Operation::Ioctl { args, .. } = operation {
        return ioctl::may_change(args);
    }
    !matches!(
        operation,
        Operation::Lookup { .. }
            | Operation::Getattr(_)
            | Operation::Statx(_)
            | Operation::Statfs
            | Operation::Readlink
            | Operation::Read(_)
            | Operation::Readdir(_)
            | Operation::Readdirplus(_)
            | Operation::Getxattr { .. }
            | Operation::Listxattr { .. }
            | Operation::Lseek(_)
            | Operation::Bmap(_)
            | Operation::Fsync(_)
            | Operation::Fsyncdir(_)
            | Operation::Syncfs
    )
}

/// Returns the flags of the answer to OPEN. The kernel permits parallel writes only if the file bypasses its cache.
const fn open_flags(flags: u32) -> u32 {
    if flags & OFlags::DIRECT.bits() == 0 {
        return abi::FOPEN_KEEP_CACHE;
    }
    abi::FOPEN_KEEP_CACHE | abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Adapter<'_> {
    /// Checks that requests are still served.
    ///
    /// # Errors
    /// `EIO` after a shutdown.
    fn check_served(&self) -> Result<(), Errno> {
        if self.is_shut_down() { Err(Errno::IO) } else { Ok(()) }
    }

    /// Returns whether freeing an inode is fast.
    fn is_small(&self, nodeid: u64) -> bool {
        let attributes = self.fs.attributes(self.ino(nodeid));
        attributes.is_ok_and(|attributes| attributes.blocks_512 <= SMALL_BLOCKS_512)
    }

    /// Dispatches a request.
    fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let header = &request.header;
        let node = self.ino(header.nodeid);
        match request.operation {
            Operation::Lookup { name } => self.lookup(node, name, reply),
            Operation::Forget { nlookup } => self.forget(node, nlookup),
            Operation::BatchForget { nodes } => self.forget_all(nodes),
            Operation::Getattr(args) => self.getattr_before_write(node, &args, reply),
            Operation::Statx(_) => self.statx(node, reply),
            Operation::Setattr(args) => self.setattr(header, node, &args, reply),
            Operation::Statfs => self.statfs(node, reply),
            Operation::Readlink => self.readlink(node, reply),
            Operation::Symlink { name, target } => self.symlink(header, node, name, target, reply),
            Operation::Mknod { args, name } => self.mknod(header, node, name, &args, reply),
            Operation::Mkdir { args, name } => self.mkdir(header, node, name, &args, reply),
            Operation::Tmpfile { args } => self.tmpfile(header, node, &args, reply),
            Operation::Unlink { name } => self.unlink(node, name),
            Operation::Rmdir { name } => self.rmdir(node, name),
            Operation::Rename { newdir, flags, name, newname } => {
                self.rename(header, (node, name), (self.ino(newdir), newname), flags)
            }
            Operation::Link { oldnodeid, name } => {
                self.link(self.ino(oldnodeid), node, name, reply)
            }
            Operation::Read(args) => self.read(node, &args, reply),
            Operation::Write { args, data } => self.write(header, node, &args, data, reply),
            Operation::Fallocate(args) => self.fallocate(header, node, &args),
            Operation::Lseek(args) => self.lseek(node, &args, reply),
            Operation::Bmap(args) => self.bmap(node, &args, reply),
            Operation::CopyFileRange { args, wide } => {
                self.copy_file_range(header, node, &args, wide, reply)
            }
            Operation::Fsync(args) | Operation::Fsyncdir(args) => self.fsync(node, &args),
            Operation::Syncfs => self.syncfs(),
            Operation::Readdir(args) => self.readdir(node, &args, reply),
            Operation::Readdirplus(args) => self.readdirplus(node, &args, reply),
            Operation::Getxattr { size, name } => self.getxattr(header, node, name, size, reply),
            Operation::Listxattr { size } => self.listxattr(header, node, size, reply),
            Operation::Setxattr { args, name, value } => self.setxattr(node, name, value, &args),
            Operation::Removexattr { name } => self.removexattr(node, name),
            Operation::Ioctl { args, data } => {
                self.ioctl(&Ioctl { header, ino: node, args: &args, data }, reply, None)
            }
            Operation::Open(args) if self.options.parallel_direct => {
                reply.put(&OpenOut { fh: 0, open_flags: open_flags(args.flags), backing_id: 0 })
            }
            Operation::Release(_) if self.options.parallel_direct => Ok(()),
            Operation::Destroy | Operation::Interrupt => Ok(()),
            // OPEN and CREATE are not needed, and files are created by MKNOD: requests contain nodes only, which
            // `Known` keeps open. The kernel remembers each `ENOSYS`.
            Operation::Open(_)
            | Operation::Opendir(_)
            | Operation::Create { .. }
            | Operation::Flush
            | Operation::Release(_)
            | Operation::Releasedir(_)
            | Operation::Access { .. }
            | Operation::Init(_)
            | Operation::Other { .. } => Err(Errno::NOSYS),
        }
    }
}
