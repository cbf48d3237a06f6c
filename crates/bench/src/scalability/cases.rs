//! What each thread does in a directory of its own.

use std::ops::ControlFlow;
use std::sync::Arc;

use blockdev::MemoryDevice;
use vfs::{Cookie, FileSystem, Ino, NewInode, RenameMode, Result, SetAttributes, Timestamp};

use crate::BuildFormat;

/// Bytes of an image for each thread.
const BYTES_PER_WORKER: u64 = 128 << 20;
/// Fewest threads that an image is made for, so that it is one of usual size.
const WORKERS_MIN: u32 = 16;
/// Memory for cached metadata, in bytes: enough that nothing is written back meanwhile.
const CACHE_BYTES: usize = 1 << 30;
/// Names that are in a directory for each of the files that operations are about.
const FILL: u32 = 4;
/// Bytes that are read and written at once.
const REQUEST: usize = 4096;
/// The time of everything that is made.
const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };
/// A new file or directory, whose directory gets the time too.
const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 0, gid: 0, time: TIME, parent_time: Some(TIME) };

/// A thread's directory, and the files that it made there.
pub(super) struct Worker {
    dir: Ino,
    files: Vec<Ino>,
    buffer: Vec<u8>,
}

/// One kind of operation.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Whether it only prepares the case after it.
    pub(super) is_between: bool,
    /// It is done for one of so many files.
    pub(super) one_in: u32,
    /// Does it for the file of this number.
    pub(super) run: fn(&dyn FileSystem, &mut Worker, u32) -> Result<()>,
}

const fn case(
    name: &'static str,
    run: fn(&dyn FileSystem, &mut Worker, u32) -> Result<()>,
) -> Case {
    Case { name, is_between: false, one_in: 1, run }
}

/// All cases, in an order in which each finds what it needs.
pub(super) static CASES: [Case; 14] = [
    // So many that a directory of XFS has an index in blocks of its own, and one of ext4 a tree.
    Case {
        is_between: true,
        ..case("fill", |fs, worker, at| {
            let first = at * FILL;
            (first..first + FILL)
                .try_for_each(|at| fs.create(worker.dir, &name(b'e', at), &NEW).map(drop))
        })
    },
    case("create", |fs, worker, at| {
        let ino = fs.create(worker.dir, &name(b'f', at), &NEW)?;
        worker.files.push(ino);
        Ok(())
    }),
    case("look-up", |fs, worker, at| fs.lookup(worker.dir, &name(b'f', at)).map(drop)),
    case("attributes", |fs, worker, at| fs.attributes(worker.file(at)).map(drop)),
    case("chmod", |fs, worker, at| chmod(fs, worker.file(at), 0o640)),
    case("write, new block", |fs, worker, at| {
        fs.write(worker.file(at), 0, &worker.buffer, Some(TIME))
    }),
    case("overwrite", |fs, worker, at| fs.write(worker.file(at), 0, &worker.buffer, Some(TIME))),
    case("read", |fs, worker, at| {
        let ino = worker.file(at);
        fs.read(ino, 0, &mut worker.buffer).map(drop)
    }),
    Case {
        one_in: 16,
        ..case("readdir, all names", |fs, worker, _| {
            fs.readdir(worker.dir, Cookie::default(), &mut |_| ControlFlow::Continue(()))
        })
    },
    Case {
        one_in: 16,
        ..case("chmod and fsync", |fs, worker, at| {
            let ino = worker.file(at);
            chmod(fs, ino, 0o600)?;
            fs.fsync(ino)
        })
    },
    case("link", |fs, worker, at| {
        fs.link(worker.file(at), worker.dir, &name(b'l', at), Some(TIME))
    }),
    case("rename", |fs, worker, at| {
        let (from, to) = (name(b'l', at), name(b'r', at));
        fs.rename((worker.dir, &from), (worker.dir, &to), RenameMode::Replace, Some(TIME))
    }),
    Case {
        is_between: true,
        ..case("unlink of a link", |fs, worker, at| {
            fs.unlink(worker.dir, &name(b'r', at), Some(TIME))
        })
    },
    case("unlink", |fs, worker, at| fs.unlink(worker.dir, &name(b'f', at), Some(TIME))),
];

impl Worker {
    fn file(&self, at: u32) -> Ino {
        self.files[at as usize]
    }

    /// Makes files and removes them, for a trial of many threads.
    pub(super) fn make_and_remove(&mut self, fs: &dyn FileSystem, at: u32) -> Result<()> {
        let name = name(b't', at);
        fs.create(self.dir, &name, &NEW)?;
        fs.unlink(self.dir, &name, Some(TIME))
    }
}

/// A name of eight bytes, without memory for it.
fn name(letter: u8, at: u32) -> [u8; 8] {
    let mut name = [letter; 8];
    let mut rest = at;
    for digit in name[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

fn chmod(fs: &dyn FileSystem, ino: Ino, permissions: u16) -> Result<()> {
    let change = SetAttributes {
        permissions: Some(permissions),
        ctime: Some(TIME),
        ..SetAttributes::default()
    };
    fs.set_attributes(ino, &change)
}

/// A file system in memory with journal or log, as large and of as many groups as workloads make it for so many
/// threads, and a directory for each.
pub(super) fn prepare(
    format: BuildFormat,
    workers: u32,
) -> Result<(Arc<dyn FileSystem>, Vec<Worker>)> {
    let bytes = u64::from(workers.max(WORKERS_MIN)) * BYTES_PER_WORKER;
    let device = Arc::new(MemoryDevice::new(bytes));
    let fs: Arc<dyn FileSystem> = match format {
        BuildFormat::Ext4 => {
            let layout = ext4::mkfs::plan(&ext4::mkfs::Options::new(bytes))?;
            ext4::mkfs::format(&*device, &layout, ext4::mkfs::Contents::Zeros)?;
            let options = ext4::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
            Arc::new(ext4::Ext4::open_writable(device, &options)?)
        }
        BuildFormat::Xfs => {
            let options = xfs::mkfs::Options {
                ag_count: Some(workers.max(4)),
                allow_small: true,
                ..xfs::mkfs::Options::new(bytes)
            };
            let layout = xfs::mkfs::plan(&options)?;
            xfs::mkfs::format(&*device, &layout, xfs::mkfs::Contents::Zeros)?;
            let options = xfs::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
            Arc::new(xfs::Xfs::open_writable(device, &options)?)
        }
    };
    let worker = |number| {
        let dir = fs.mkdir(fs.root(), &name(b'd', number), &NEW)?;
        Ok(Worker { dir, files: Vec::new(), buffer: vec![0xA5; REQUEST] })
    };
    let workers = (0..workers).map(worker).collect::<Result<_>>()?;
    Ok((fs, workers))
}
