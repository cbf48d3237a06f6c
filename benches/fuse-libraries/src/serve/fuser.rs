//! `fuser`: reads from the device with the requested number of threads, each with its own descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::memory::{Attributes, MAX_BACKGROUND, MAX_WRITE, Memory, VALID_SECONDS};

const VALID: Duration = Duration::from_secs(VALID_SECONDS);

pub fn serve(memory: Memory, mountpoint: &Path, threads: usize) -> io::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::DefaultPermissions];
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    fuser::mount(Adapter(memory), mountpoint, &config)
}

struct Adapter(Memory);

fn error(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn attributes(of: &Attributes) -> FileAttr {
    let directory = of.mode & libc::S_IFMT == libc::S_IFDIR;
    FileAttr {
        ino: INodeNo(of.inode),
        size: of.size,
        blocks: of.blocks(),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if directory { FileType::Directory } else { FileType::RegularFile },
        perm: (of.mode & 0o7777) as u16,
        nlink: of.links,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn entry(result: Result<Attributes, rustix::io::Errno>, reply: ReplyEntry) {
    match result {
        Ok(of) => reply.entry(&VALID, &attributes(&of), Generation(0)),
        Err(errno) => reply.error(error(errno)),
    }
}

fn attr(result: Result<Attributes, rustix::io::Errno>, reply: ReplyAttr) {
    match result {
        Ok(of) => reply.attr(&VALID, &attributes(&of)),
        Err(errno) => reply.error(error(errno)),
    }
}

fn empty(result: Result<(), rustix::io::Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_WRITEBACK_CACHE
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO;
        let unsupported = io::ErrorKind::Unsupported;
        config.add_capabilities(wanted).map_err(|_| unsupported)?;
        config.set_max_write(MAX_WRITE).map_err(|_| unsupported)?;
        config.set_max_background(MAX_BACKGROUND).map_err(|_| unsupported)?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.0.lookup(parent.0, name.as_bytes()), reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attr(self.0.attributes(inode.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        attr(self.0.change(inode.0, size), reply);
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        entry(self.0.make(parent.0, name.as_bytes(), mode), reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        entry(self.0.make(parent.0, name.as_bytes(), mode | libc::S_IFDIR), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.0.remove(parent.0, name.as_bytes()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.0.remove(parent.0, name.as_bytes()), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Sending the reply consumes it, and a lock is held while the data is borrowed.
        let mut reply = Some(reply);
        let result = self.0.read(inode.0, offset, size as usize, |data| {
            if let Some(reply) = reply.take() {
                reply.data(data);
            }
        });
        if let (Err(errno), Some(reply)) = (result, reply) {
            reply.error(error(errno));
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(inode.0, offset, data.len(), |room| room.copy_from_slice(data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
