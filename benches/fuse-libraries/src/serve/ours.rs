//! This project's `linux` crate: over the device with the requested number of threads, or over io_uring.

use std::io;
use std::path::Path;

use linux::abi::{Attr, AttrOut, EntryOut, FATTR_SIZE, WriteOut};
use linux::{
    Errno, Handler, InitFlags, Kernel, MountOptions, Operation, Reply, Request, Session,
    SessionOptions, Settings,
};

use crate::memory::{Attributes, MAX_WRITE, Memory, VALID_SECONDS};

pub fn serve(memory: Memory, mountpoint: &Path, options: &SessionOptions) -> io::Result<()> {
    let mount = MountOptions { fs_name: "memory".into(), ..MountOptions::default() };
    Session::mount(mountpoint, &mount)?.serve(&Adapter(memory), options, || ()).map(drop)
}

struct Adapter(Memory);

fn attr(of: &Attributes) -> Attr {
    Attr {
        ino: of.inode,
        size: of.size,
        blocks: of.blocks(),
        mode: of.mode,
        nlink: of.links,
        blksize: 4096,
        ..Attr::default()
    }
}

fn entry_out(of: &Attributes) -> EntryOut {
    EntryOut {
        nodeid: of.inode,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        attr: attr(of),
        ..EntryOut::default()
    }
}

fn attr_out(of: &Attributes) -> AttrOut {
    AttrOut { attr_valid: VALID_SECONDS, attr: attr(of), ..AttrOut::default() }
}

impl Handler for Adapter {
    fn init(&self, kernel: &Kernel) -> Settings {
        let features = InitFlags::ASYNC_READ
            | InitFlags::WRITEBACK_CACHE
            | InitFlags::NO_OPEN_SUPPORT
            | InitFlags::NO_OPENDIR_SUPPORT
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::ASYNC_DIO;
        let max_readahead = kernel.max_readahead;
        Settings { features, max_write: MAX_WRITE, max_readahead, time_gran: 1 }
    }

    fn is_quick(&self, request: &Request<'_>) -> bool {
        !matches!(request.operation, Operation::Read(_) | Operation::Write { .. })
    }

    // All other requests are answered with ENOSYS: opening, creating, flushing.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let node = request.header.nodeid;
        match request.operation {
            Operation::Lookup { name } => reply.put(&entry_out(&self.0.lookup(node, name)?)),
            Operation::Getattr(_) => reply.put(&attr_out(&self.0.attributes(node)?)),
            Operation::Setattr(args) => {
                let size = (args.valid & FATTR_SIZE != 0).then_some(args.size);
                reply.put(&attr_out(&self.0.change(node, size)?))
            }
            Operation::Mknod { args, name } => {
                reply.put(&entry_out(&self.0.make(node, name, args.mode)?))
            }
            Operation::Mkdir { args, name } => {
                reply.put(&entry_out(&self.0.make(node, name, args.mode | libc::S_IFDIR)?))
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => self.0.remove(node, name),
            Operation::Read(args) => {
                self.0.read(node, args.offset, args.size as usize, |data| reply.put_bytes(data))?
            }
            Operation::Write { args, data } => {
                self.0.write(node, args.offset, data.len(), |room| room.copy_from_slice(data))?;
                reply.put(&WriteOut { size: args.size, padding: 0 })
            }
            Operation::Fsync(_) => Ok(()),
            _ => Err(Errno::NOSYS),
        }
    }
}
