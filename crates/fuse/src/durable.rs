//! `sync` and `dirsync`: changes that are durable before their request is answered.
//!
//! The kernel has contents written through by itself, where a mount is `sync`. Of names and attributes it
//! leaves that to the file system, and for FUSE that is here.

use fuse_device::{Errno, Handler, Kernel, Operation, PageCache, Reply, Request, Settings, ioctl};

use crate::Adapter;

/// Answers as the adapter does, and syncs after what has to be durable then.
pub struct Durable<'a> {
    adapter: &'a Adapter<'a>,
    /// Changes of directories wait.
    directories: bool,
    /// Changes of attributes wait.
    attributes: bool,
}

impl<'a> Durable<'a> {
    /// With `sync` all changes are durable when they are answered, with `dirsync` those of directories.
    pub fn new(adapter: &'a Adapter<'a>, sync: bool, dirsync: bool) -> Self {
        // As mount(2) has it, `MS_SYNCHRONOUS` includes `MS_DIRSYNC`.
        Self { adapter, directories: sync || dirsync, attributes: sync }
    }

    /// Whether an operation has to be durable when it is answered.
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
    /// Syncs after a request that was done, if it has to be durable.
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
