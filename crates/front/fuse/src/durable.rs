//! `sync` and `dirsync`: changes that are durable before their request is answered.
//!
//! For contents, the kernel itself uses synchronous writes if a mount is `sync`. For names and attributes it leaves
//! that to the file system, and for FUSE to this module.

use linux::{Errno, Handler, Kernel, Operation, PageCache, Reply, Request, Settings, ioctl};

use crate::Adapter;

/// Answers like the adapter, and syncs after changes that must be durable.
pub struct Durable<'a> {
    adapter: &'a Adapter<'a>,
    /// Changes of directories are synchronous.
    directories: bool,
    /// Changes of attributes are synchronous.
    attributes: bool,
}

impl<'a> Durable<'a> {
    /// With `sync` all changes are durable when they are answered, with `dirsync` those of directories.
    pub fn new(adapter: &'a Adapter<'a>, sync: bool, dirsync: bool) -> Self {
        // As in mount(2), `MS_SYNCHRONOUS` includes `MS_DIRSYNC`.
        Self { adapter, directories: sync || dirsync, attributes: sync }
    }

    /// Returns whether an operation must be durable when it is answered.
    fn waits(&self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. } => self.directories,
            Operation::Setattr(_)
            | Operation::Setxattr { .. }
            | Operation::Removexattr { .. }
            | Operation::Fallocate(_)
            | Operation::CopyFileRange { .. } => self.attributes,
            Operation::Ioctl { args, .. } => self.attributes && ioctl::takes_input(args.cmd),
            _ => false,
        }
    }
}

impl Durable<'_> {
    /// Syncs after a completed request, if it must be durable.
    fn make_durable(&self, request: &Request<'_>) -> Result<(), Errno> {
        if !self.waits(&request.operation) {
            return Ok(());
        }
        let sync = Request { header: request.header, operation: Operation::Syncfs };
        self.adapter.handle(&sync, &mut Reply::new(&mut []))
    }
}

impl Handler for Durable<'_> {
    fn init(&self, kernel: &Kernel) -> Settings {
        self.adapter.init(kernel)
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        self.adapter.handle(request, reply)?;
        self.make_durable(request)
    }

    fn is_quick(&self, request: &Request<'_>) -> bool {
        !self.waits(&request.operation) && self.adapter.is_quick(request)
    }

    fn is_late(&self, operation: &Operation<'_>) -> bool {
        self.adapter.is_late(operation)
    }

    fn handle_late(
        &self,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        cache: &PageCache<'_>,
    ) -> Result<(), Errno> {
        self.adapter.handle_late(request, reply, cache)?;
        self.make_durable(request)
    }
}
