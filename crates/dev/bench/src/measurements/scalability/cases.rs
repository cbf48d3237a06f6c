//! Operations of each thread in a separate directory.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::MemoryDevice;
use vfs::{Cookie, FileSystem, Ino, NewInode, RenameMode, Result, SetAttributes, Timestamp};

use crate::measurements::options::BuildFormat;

/// Size of an image per thread in bytes.
const BYTES_PER_WORKER: u64 = 128 << 20;
/// Minimum number of threads for the size of an image, so that it has an ordinary size.
const WORKERS_MIN: u32 = 16;
/// Size of the metadata cache in bytes: enough to avoid write-back.
const CACHE_BYTES: usize = 1 << 30;
/// Number of threads that write a checkpoint.
pub(super) const CHECKPOINT_THREADS: Option<NonZeroUsize> = NonZeroUsize::new(8);
/// Number of names in a directory for each file of the operations.
const FILL: u32 = 4;
/// Size of reads and writes in bytes.
const REQUEST: usize = 4096;
/// Time of all new files.
const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };
/// A new file or directory, which also sets the time of its directory.
const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 0, gid: 0, time: TIME, parent_time: Some(TIME) };

/// A thread's directory, and the files that it created there.
pub(super) struct Worker {
    dir: Ino,
    files: Vec<Ino>,
    buffer: Vec<u8>,
}

/// A kind of operation.
pub(super) struct OperationCase {
    pub(super) name: &'static str,
    /// True if it only prepares the next case.
    pub(super) is_between: bool,
    /// Number of files per execution.
    pub(super) one_in: u32,
    /// Executes it for the file with this number.
    pub(super) run: fn(&dyn FileSystem, &mut Worker, u32) -> Result<()>,
}

const fn case(
    name: &'static str,
    run: fn(&dyn FileSystem, &mut Worker, u32) -> Result<()>,
) -> OperationCase {
    OperationCase { name, is_between: false, one_in: 1, run }
}

/// All cases, ordered so that each finds its prerequisites.
pub(super) static CASES: [OperationCase; 14] = [
    // Enough for an XFS directory with separate index blocks, and an ext4 directory with a tree.
    OperationCase {
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
    OperationCase {
        one_in: 16,
        ..case("readdir, all names", |fs, worker, _| {
            fs.readdir(worker.dir, Cookie::default(), &mut |_| ControlFlow::Continue(()))
        })
    },
    OperationCase {
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
    OperationCase {
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

    /// Creates and removes files, for a trial with many threads.
    pub(super) fn make_and_remove(&mut self, fs: &dyn FileSystem, at: u32) -> Result<()> {
        let name = name(b't', at);
        fs.create(self.dir, &name, &NEW)?;
        fs.unlink(self.dir, &name, Some(TIME))
    }
}

/// Returns a name of eight bytes without an allocation.
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

/// Creates a file system in memory with journal or log, of the same size and number of groups as in workloads with this
/// number of threads, and a directory for each thread.
pub(super) fn prepare(
    format: BuildFormat,
    workers: u32,
) -> Result<(Arc<dyn FileSystem>, Vec<Worker>)> {
    let bytes = u64::from(workers.max(WORKERS_MIN)) * BYTES_PER_WORKER;
    let device = Arc::new(MemoryDevice::new(bytes));
    let fs: Arc<dyn FileSystem> = match format {
        BuildFormat::Ext4 => {
            let layout = ext4::mkfs::plan(&ext4::mkfs::Options::new(bytes))?;
            ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros)?;
            let options = ext4::OpenOptions {
                cache_bytes: CACHE_BYTES,
                checkpoint_threads: CHECKPOINT_THREADS,
                ..Default::default()
            };
            Arc::new(ext4::Ext4::open_writable(device, &options)?)
        }
        BuildFormat::Xfs => {
            let options = xfs::mkfs::Options {
                ag_count: Some(workers.max(4)),
                allow_small: true,
                ..xfs::mkfs::Options::new(bytes)
            };
            let layout = xfs::mkfs::plan(&options)?;
            xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros)?;
            let options = xfs::OpenOptions {
                cache_bytes: CACHE_BYTES,
                checkpoint_threads: CHECKPOINT_THREADS,
                ..Default::default()
            };
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
