//! Reads everything in a file system, within fixed limits, for damaged images.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::BlockDevice;
use vfs::path::Order;
use vfs::{Cookie, Error, FileSystem, FileType, Ino, Paths};

/// Maximum number of entries of a directory and of runs of a file.
const ITEMS_MAX: usize = 5_000;
/// Maximum number of bytes read of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of files and directories below the root.
const PATHS_MAX: usize = 2_000;

/// A device that counts its reads.
pub struct Counted {
    inner: Arc<dyn BlockDevice>,
    reads: AtomicU64,
}

impl Counted {
    /// Starts counting the reads of a device.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { inner, reads: AtomicU64::new(0) })
    }

    /// Returns the number of reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl BlockDevice for Counted {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Result of a walk.
#[derive(Debug, Default)]
pub struct WalkResult {
    /// Errors.
    pub errors: Vec<Error>,
    /// Number of files and directories below the root.
    pub paths: usize,
    /// Number of directory entries, inode by inode.
    pub entries: usize,
    /// Number of bytes of files.
    pub bytes: u64,
    /// Number of device reads.
    pub reads: u64,
}

impl WalkResult {
    /// Records an error.
    pub fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }
}

/// Reads the attributes of everything below the root.
pub fn paths(fs: &dyn FileSystem, outcome: &mut WalkResult) {
    for step in Paths::new(fs).walk(fs.root(), Order::Physical).take(PATHS_MAX) {
        outcome.paths += 1;
        match step {
            // The path is that of the walk; resolving it again uses look-ups.
            Ok(walked) if outcome.paths.is_multiple_of(4) => {
                let found = Paths::new(fs).symlink_metadata(&walked.path);
                outcome.keep(found);
            }
            Ok(_) => {}
            Err(failed) => outcome.errors.push(failed.error),
        }
    }
}

/// Reads everything of an inode in use.
pub fn inode(fs: &dyn FileSystem, ino: Ino, outcome: &mut WalkResult) {
    match fs.attributes(ino) {
        Err(Error::NotFound) => {}
        Err(error) => outcome.errors.push(error),
        Ok(attributes) => {
            match attributes.file_type {
                FileType::Directory => directory(fs, ino, outcome),
                FileType::Symlink => drop(outcome.keep(fs.readlink(ino))),
                _ => file(fs, ino, attributes.size, outcome),
            }
            extended_attributes(fs, ino, outcome);
            let mut left = ITEMS_MAX;
            let parents = fs.parents(ino, &mut |_, _| left = left.saturating_sub(1));
            outcome.keep(parents);
        }
    }
}

fn directory(fs: &dyn FileSystem, dir: Ino, outcome: &mut WalkResult) {
    let (mut names, mut cookies, mut left) = (Vec::new(), Vec::new(), ITEMS_MAX);
    let listed = fs.readdir(dir, Cookie(0), &mut |entry| {
        names.push(entry.name.to_vec());
        cookies.push(entry.next);
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    outcome.keep(listed);
    outcome.entries += names.len();
    names.push(b"a name that is not there".to_vec());
    for name in names.iter().step_by(1 + names.len() / 8) {
        match fs.lookup(dir, name) {
            Err(Error::NotFound) => {}
            other => drop(outcome.keep(other)),
        }
    }
    let strange = [Cookie(1), Cookie(1 << 40), Cookie(i64::MAX as u64), Cookie(u64::MAX)];
    for from in strange.into_iter().chain(cookies.into_iter().step_by(1 + names.len() / 4)) {
        let listed = fs.readdir(dir, from, &mut |_| ControlFlow::Break(()));
        outcome.keep(listed);
    }
}

fn file(fs: &dyn FileSystem, ino: Ino, size: u64, outcome: &mut WalkResult) {
    let (mut left, mut expected) = (ITEMS_MAX, 0);
    let mapped = fs.extent_map(ino, 0, u64::MAX, &mut |run| {
        assert!(run.len > 0 && run.offset == expected, "runs follow each other without gaps");
        expected = run.offset + run.len;
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    outcome.keep(mapped);
    let mut buffer = vec![0; 16 << 10];
    let mut offset = 0;
    while offset < size.min(FILE_BYTES_MAX) {
        let Some(count) = outcome.keep(fs.read(ino, offset, &mut buffer)) else { break };
        outcome.bytes += count as u64;
        offset += count as u64;
        if count == 0 {
            break;
        }
    }
    for far in [size.saturating_sub(3), size, u64::MAX - 1] {
        outcome.keep(fs.read(ino, far, &mut buffer));
    }
}

fn extended_attributes(fs: &dyn FileSystem, ino: Ino, outcome: &mut WalkResult) {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let listed = fs.list_xattrs(ino, &mut |name| {
        if names.len() < ITEMS_MAX {
            names.push(name.to_vec());
        }
    });
    outcome.keep(listed);
    for name in names.iter().take(16) {
        match fs.get_xattr(ino, name) {
            Err(Error::NoAttribute) => {}
            other => drop(outcome.keep(other)),
        }
    }
}
