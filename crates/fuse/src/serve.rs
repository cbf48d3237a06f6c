//! Requests in, answers out: which part of the adapter does what.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use fuse_device::{
    Errno, Handler, InitFlags, Kernel, Operation, PageCache, Reply, Request, Settings, abi,
};
use vfs::{Error, FileSystem, Ino};

use crate::attributes::VALID_SEC;
use crate::errno::errno;
use crate::ioctl::{self, Ioctl};
use crate::known::Known;
use crate::protect::Protected;
use crate::shutdown::is_shutdown;
use crate::space::Space;
use crate::{OnDamage, Options};

/// Most bytes of one read or write.
const MAX_WRITE: u32 = 1 << 20;

/// Space of files that are freed at once, in 512-byte units: 16 MiB.
const SMALL_BLOCKS_512: u64 = 32 * 1024;

/// Inodes that are soon forgotten, if they are small.
const QUICK_NODES: usize = 16;

/// What is used where the kernel has it.
const FEATURES: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::EXPORT_SUPPORT)
    .union(InitFlags::DONT_MASK)
    .union(InitFlags::HAS_IOCTL_DIR)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::WRITEBACK_CACHE)
    .union(InitFlags::NO_OPEN_SUPPORT)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::POSIX_ACL)
    .union(InitFlags::CACHE_SYMLINKS)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::EXPLICIT_INVAL_DATA)
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::SETXATTR_EXT);

/// A file system, served to the kernel.
pub struct Adapter<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) options: Options,
    /// Inodes that the kernel knows.
    pub(crate) known: Known,
    /// How long the kernel may keep which inode a name stands for, in seconds.
    pub(crate) entry_valid_sec: u64,
    /// What is left, and what found no room.
    pub(crate) space: Space,
    /// The image was found damaged.
    damaged: AtomicBool,
    /// Something could not be written.
    lost: AtomicBool,
    /// It was asked to stop for good.
    pub(crate) shut_down: AtomicBool,
    /// Something has changed since [`Self::take_changed`].
    changed: AtomicBool,
    pub(crate) protected: Protected,
}

impl<'a> Adapter<'a> {
    /// Serves `fs`.
    pub fn new(fs: &'a dyn FileSystem, options: Options) -> Self {
        Self {
            fs,
            options,
            known: Known::default(),
            // The kernel takes names that differ for different entries: it must ask each time.
            entry_valid_sec: if fs.folds_names() { 0 } else { VALID_SEC },
            space: Space::default(),
            damaged: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            protected: Protected::default(),
        }
    }

    /// Lets go of all inodes that the kernel knew, for after the mount: files that were open and have no
    /// name are then gone. Dropping the adapter does the same.
    ///
    /// # Errors
    /// The first that the file system has with one. The others are let go of all the same.
    pub fn finish(&self) -> vfs::Result<()> {
        self.known.close_all(self.fs)
    }

    /// Whether the image was found damaged so far.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether nothing is written any more, because the image was found damaged.
    pub(crate) fn has_stopped(&self) -> bool {
        self.is_damaged() && self.options.on_damage == OnDamage::ReadOnly
    }

    /// Something has changed. To be called after it has.
    pub(crate) fn note_change(&self) {
        // Either this sees that the last change was taken, or the thread that took it syncs this one too.
        fence(Ordering::SeqCst);
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something has changed since the last call. All of that is done: a sync that follows
    /// makes it durable.
    pub(crate) fn take_changed(&self) -> bool {
        let changed = self.changed.swap(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        changed
    }

    /// The inode of a node: the number is the same, but the root is always node 1.
    pub(crate) fn ino(&self, nodeid: u64) -> Ino {
        if nodeid == abi::ROOT_ID { self.fs.root() } else { Ino(nodeid) }
    }

    /// The node of an inode.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        if ino == self.fs.root() { abi::ROOT_ID } else { ino.0 }
    }

    /// Changes are about to be made.
    ///
    /// # Errors
    /// `EROFS` if none may be made (any more).
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        if self.options.read_only || self.has_stopped() { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Requests are to be answered.
    ///
    /// # Errors
    /// `EIO` if it was shut down.
    fn check_served(&self) -> Result<(), Errno> {
        if self.is_shut_down() { Err(Errno::IO) } else { Ok(()) }
    }

    /// Whether freeing an inode is soon done.
    fn is_small(&self, nodeid: u64) -> bool {
        let attributes = self.fs.attributes(self.ino(nodeid));
        attributes.is_ok_and(|attributes| attributes.blocks_512 <= SMALL_BLOCKS_512)
    }

    /// The number for an error. Every error of the file system comes through here.
    pub(crate) fn failed(&self, error: &Error) -> Errno {
        if matches!(error, Error::Corrupt(_)) && !self.damaged.swap(true, Ordering::Relaxed) {
            // The caller gets a number. Who looks at this process can be told more.
            tracing::error!("{error}");
            if self.has_stopped() {
                self.space.end();
            }
        }
        errno(error)
    }

    /// The same for an error of something that was to be stored. Once the device has failed, writes do not wait:
    /// each is told at once whether it was stored.
    pub(crate) fn not_stored(&self, error: &Error) -> Errno {
        if matches!(error, Error::Device(_)) && !self.lost.swap(true, Ordering::Relaxed) {
            tracing::error!("a change could not be stored: {error}");
            self.space.end();
        }
        self.failed(error)
    }
}

impl Drop for Adapter<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            self.failed(&error);
        }
    }
}

/// The same besides where nothing can be changed.
///
/// Direct requests that nobody waits for are left to mounts without writes: Linux (seen with 6.18) forgets
/// the pages that a direct write makes stale before it sends the write, and after it only if the caller has
/// waited. Pages that others read meanwhile would stay, and be written back over newer bytes.
const READ_ONLY_FEATURES: InitFlags = FEATURES.union(InitFlags::ASYNC_DIO);

impl Handler for Adapter<'_> {
    fn init(&self, kernel: &Kernel) -> Settings {
        let features = if self.options.read_only { READ_ONLY_FEATURES } else { FEATURES };
        let shows_others = self.options.uid.is_some() || self.options.gid.is_some();
        let may_map = self.options.idmap && !shows_others;
        let idmap = if may_map { InitFlags::ALLOW_IDMAP } else { InitFlags::empty() };
        Settings {
            features: features | idmap,
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
            // What is forgotten may be gone for good, and its space has to be freed.
            Operation::Forget { .. } => self.is_small(request.header.nodeid),
            Operation::BatchForget { nodes } => {
                nodes.len() <= QUICK_NODES && nodes.iter().all(|node| self.is_small(node.nodeid))
            }
            _ => false,
        }
    }

    fn is_late(&self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Lseek(_) => !self.options.read_only,
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

/// Whether a request may have changed something, access times apart.
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
            | Operation::Fsync(_)
            | Operation::Fsyncdir(_)
            | Operation::Syncfs
    )
}

impl Adapter<'_> {
    /// Has a request answered by who does that.
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
            Operation::Statfs => self.statfs(reply),
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
            Operation::CopyFileRange { args, wide } => {
                self.copy_file_range(header, node, &args, wide, reply)
            }
            Operation::Fsync(_) | Operation::Fsyncdir(_) => self.fsync(node),
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
            Operation::Destroy | Operation::Interrupt => Ok(()),
            // Opening and closing need no message, and a file is made by MKNOD: nodes are all that
            // requests name, and `Known` keeps them. The kernel remembers each `ENOSYS`.
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
