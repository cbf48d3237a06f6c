//! `fuse-backend-rs`: all threads poll the same device with epoll before they read from it.

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{CreateIn, stat64};
use fuse_backend_rs::api::filesystem::{
    Context, Entry, FileSystem, FsOptions, OpenOptions, SetattrValid, ZeroCopyReader,
    ZeroCopyWriter,
};
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{FuseChannel, FuseSession};

use crate::memory::{Attributes, Memory, VALID_SECONDS};

const VALID: Duration = Duration::from_secs(VALID_SECONDS);

pub fn serve(memory: Memory, mountpoint: &Path, threads: usize) -> io::Result<()> {
    let server = Arc::new(Server::new(Adapter(memory)));
    let mut session =
        FuseSession::new(mountpoint, "memory", "", false).map_err(io::Error::other)?;
    session.mount().map_err(io::Error::other)?;
    let mut workers = Vec::new();
    for _ in 0..threads {
        let channel = session.new_channel().map_err(io::Error::other)?;
        let server = server.clone();
        workers.push(thread::spawn(move || answer(&server, channel)));
    }
    for worker in workers {
        worker.join().map_err(|_| io::Error::other("a thread panicked"))?;
    }
    Ok(())
}

/// Answers requests until the channel ends, which the library reports as an error.
fn answer(server: &Server<Adapter>, mut channel: FuseChannel) {
    while let Ok(Some((reader, writer))) = channel.get_request() {
        // If no answer can be sent, the kernel has cancelled the request.
        let _ = server.handle_message(reader, writer.into(), None, None);
    }
}

struct Adapter(Memory);

fn no_such_call() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSYS)
}

fn stat(of: &Attributes) -> stat64 {
    // SAFETY: a stat contains only numbers, for which zero is a valid value.
    let mut stat: stat64 = unsafe { std::mem::zeroed() };
    stat.st_ino = of.inode;
    stat.st_mode = of.mode;
    stat.st_nlink = of.links.into();
    stat.st_size = of.size as i64;
    stat.st_blocks = of.blocks() as i64;
    stat.st_blksize = 4096;
    stat
}

fn entry(of: &Attributes) -> Entry {
    Entry {
        inode: of.inode,
        attr: stat(of),
        attr_timeout: VALID,
        entry_timeout: VALID,
        ..Entry::default()
    }
}

impl FileSystem for Adapter {
    type Inode = u64;
    type Handle = u64;

    fn init(&self, _: FsOptions) -> io::Result<FsOptions> {
        Ok(FsOptions::ASYNC_READ
            | FsOptions::BIG_WRITES
            | FsOptions::MAX_PAGES
            | FsOptions::WRITEBACK_CACHE
            | FsOptions::ZERO_MESSAGE_OPEN
            | FsOptions::ZERO_MESSAGE_OPENDIR
            | FsOptions::PARALLEL_DIROPS
            | FsOptions::ASYNC_DIO)
    }

    fn lookup(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<Entry> {
        Ok(entry(&self.0.lookup(parent, name.to_bytes())?))
    }

    fn getattr(&self, _: &Context, inode: u64, _: Option<u64>) -> io::Result<(stat64, Duration)> {
        Ok((stat(&self.0.attributes(inode)?), VALID))
    }

    fn setattr(
        &self,
        _: &Context,
        inode: u64,
        attr: stat64,
        _: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        let size = valid.contains(SetattrValid::SIZE).then_some(attr.st_size as u64);
        Ok((stat(&self.0.change(inode, size)?), VALID))
    }

    fn mknod(
        &self,
        _: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        _: u32,
        _: u32,
    ) -> io::Result<Entry> {
        Ok(entry(&self.0.make(parent, name.to_bytes(), mode)?))
    }

    fn mkdir(&self, _: &Context, parent: u64, name: &CStr, mode: u32, _: u32) -> io::Result<Entry> {
        Ok(entry(&self.0.make(parent, name.to_bytes(), mode | libc::S_IFDIR)?))
    }

    fn unlink(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        Ok(self.0.remove(parent, name.to_bytes())?)
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        Ok(self.0.remove(parent, name.to_bytes())?)
    }

    fn open(
        &self,
        _: &Context,
        _: u64,
        _: u32,
        _: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        Err(no_such_call())
    }

    fn opendir(&self, _: &Context, _: u64, _: u32) -> io::Result<(Option<u64>, OpenOptions)> {
        Err(no_such_call())
    }

    fn create(
        &self,
        _: &Context,
        _: u64,
        _: &CStr,
        _: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        Err(no_such_call())
    }

    fn read(
        &self,
        _: &Context,
        inode: u64,
        _: u64,
        writer: &mut dyn ZeroCopyWriter,
        size: u32,
        offset: u64,
        _: Option<u64>,
        _: u32,
    ) -> io::Result<usize> {
        self.0.read(inode, offset, size as usize, |data| {
            writer.write_all(data)?;
            Ok(data.len())
        })?
    }

    fn write(
        &self,
        _: &Context,
        inode: u64,
        _: u64,
        reader: &mut dyn ZeroCopyReader,
        size: u32,
        offset: u64,
        _: Option<u64>,
        _: bool,
        _: u32,
        _: u32,
    ) -> io::Result<usize> {
        self.0.write(inode, offset, size as usize, |room| reader.read_exact(room))??;
        Ok(size as usize)
    }

    fn fsync(&self, _: &Context, _: u64, _: bool, _: u64) -> io::Result<()> {
        Ok(())
    }
}
