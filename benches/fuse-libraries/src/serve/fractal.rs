//! `fractal-fuse`: FUSE over io_uring, with one thread bound to each processor.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use fractal_fuse::{
    Errno, FileAttr, FileHandleId, Filesystem, FsResult, InodeId, MountOptions, ReplyAttr,
    ReplyEntry, ReplyInit, Request, Session, SetAttr,
};

use crate::memory::{Attributes, MAX_BACKGROUND, MAX_WRITE, Memory, VALID_SECONDS};

const VALID: Duration = Duration::from_secs(VALID_SECONDS);
/// Number of requests in a processor's queue. The library's default of 256 needs 256 MiB for each processor.
const QUEUE_DEPTH: u16 = 16;

pub fn serve(memory: Memory, mountpoint: &Path) -> io::Result<()> {
    let options = MountOptions::new()
        .fs_name("memory")
        .default_permissions(true)
        .write_back(true)
        .no_open_support(true)
        .no_open_dir_support(true);
    Session::new(mountpoint.to_owned(), options)?.with_queue_depth(QUEUE_DEPTH).run(Adapter(memory))
}

struct Adapter(Memory);

fn error(errno: rustix::io::Errno) -> Errno {
    errno.raw_os_error()
}

fn attributes(of: &Attributes) -> FileAttr {
    FileAttr {
        ino: of.inode,
        size: of.size,
        blocks: of.blocks(),
        mode: of.mode,
        nlink: of.links,
        blksize: 4096,
        ..FileAttr::default()
    }
}

fn entry(result: Result<Attributes, rustix::io::Errno>) -> FsResult<ReplyEntry> {
    let attr = attributes(&result.map_err(error)?);
    Ok(ReplyEntry { ttl: VALID, attr, generation: 0 })
}

fn attr(result: Result<Attributes, rustix::io::Errno>) -> FsResult<ReplyAttr> {
    let attr = attributes(&result.map_err(error)?);
    Ok(ReplyAttr { ttl: VALID, attr })
}

// All other requests are answered with ENOSYS: opening, creating, flushing.
impl Filesystem for Adapter {
    async fn init(&self, _: Request) -> FsResult<ReplyInit> {
        Ok(ReplyInit {
            max_write: MAX_WRITE,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND / 4 * 3,
            ..ReplyInit::default()
        })
    }

    async fn lookup(&self, _: Request, parent: InodeId, name: &OsStr) -> FsResult<ReplyEntry> {
        entry(self.0.lookup(parent.0, name.as_bytes()))
    }

    async fn getattr(
        &self,
        _: Request,
        inode: InodeId,
        _: Option<FileHandleId>,
        _: u32,
    ) -> FsResult<ReplyAttr> {
        attr(self.0.attributes(inode.0))
    }

    async fn setattr(
        &self,
        _: Request,
        inode: InodeId,
        _: Option<FileHandleId>,
        change: SetAttr,
    ) -> FsResult<ReplyAttr> {
        attr(self.0.change(inode.0, change.size))
    }

    async fn mknod(
        &self,
        _: Request,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        _: u32,
    ) -> FsResult<ReplyEntry> {
        entry(self.0.make(parent.0, name.as_bytes(), mode))
    }

    async fn mkdir(
        &self,
        _: Request,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        _: u32,
    ) -> FsResult<ReplyEntry> {
        entry(self.0.make(parent.0, name.as_bytes(), mode | libc::S_IFDIR))
    }

    async fn unlink(&self, _: Request, parent: InodeId, name: &OsStr) -> FsResult<()> {
        self.0.remove(parent.0, name.as_bytes()).map_err(error)
    }

    async fn rmdir(&self, _: Request, parent: InodeId, name: &OsStr) -> FsResult<()> {
        self.0.remove(parent.0, name.as_bytes()).map_err(error)
    }

    async fn read(
        &self,
        _: Request,
        inode: InodeId,
        _: FileHandleId,
        offset: u64,
        room: &mut [u8],
    ) -> FsResult<usize> {
        let len = room.len();
        let take = |data: &[u8]| {
            room[..data.len()].copy_from_slice(data);
            data.len()
        };
        self.0.read(inode.0, offset, len, take).map_err(error)
    }

    async fn write(
        &self,
        _: Request,
        inode: InodeId,
        _: FileHandleId,
        offset: u64,
        data: &[u8],
        _: u32,
        _: u32,
    ) -> FsResult<usize> {
        let fill = |room: &mut [u8]| room.copy_from_slice(data);
        self.0.write(inode.0, offset, data.len(), fill).map_err(error)?;
        Ok(data.len())
    }

    async fn fsync(&self, _: Request, _: InodeId, _: FileHandleId, _: bool) -> FsResult<()> {
        Ok(())
    }
}
