//! Conformance tests for every format: random operations in one and in several threads, compared with the reference
//! model, and failing operations, which must leave no trace.
//!
//! All functions panic with the complete details, because their callers are tests.

mod failing;
mod full;
mod overwrites;
mod random;
mod refusals;
mod rounds;
mod space;
mod stopping;
mod taken;
mod threads;
mod unordered;
pub mod waiting;
mod watchdog;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Ino, NewInode, Timestamp};

pub use failing::{fail_allocations, fail_reads};
pub use full::{freeing_when_full, random_when_full};
pub use overwrites::overwrites;
pub use random::{on_image, one_thread, several_threads};
pub use refusals::{refusals, unnamed};
pub use rounds::rounds;
pub use space::space_comes_back;
pub use stopping::fail_writes;
pub use taken::taken;
pub use threads::{many_threads, no_circle};
pub use unordered::{scattered_writes, writes_out_of_order};
pub use watchdog::Watchdog;

use crate::crash::{CrashTarget, OpenFileSystem};

/// Configuration of a trial.
pub struct Trial<'t> {
    /// Creates and opens file systems.
    pub target: &'t dyn CrashTarget,
    /// Allocation unit in bytes.
    pub block_bytes: u64,
    /// True if a request for much space may be several operations, and the first ones stay when a later one finds no
    /// space.
    pub parts_long_requests: bool,
    /// Name in failures.
    pub name: String,
    /// Panics unless a closed image is sound.
    pub check: &'t (dyn Fn(&MemoryDevice) + Sync),
    /// Selection among similar images for checks.
    pub alike: Alike,
}

/// Selects among images that differ only in the time at which an operation failed.
pub struct Alike {
    one_in: u64,
    seen: AtomicU64,
}

impl Alike {
    /// Selects the first image and every `one_in`th after it.
    pub fn one_in(one_in: u64) -> Self {
        Self { one_in, seen: AtomicU64::new(0) }
    }

    fn chooses(&self) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
    }
}

impl Trial<'_> {
    fn make(&self) -> Arc<MemoryDevice> {
        let made = self.target.make(0);
        Arc::new(made.unwrap_or_else(|error| panic!("{}: {error}", self.name)))
    }

    #[track_caller]
    fn open(&self, device: Arc<dyn BlockDevice>) -> Box<dyn OpenFileSystem> {
        self.target.open(device).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Checks one of many similar images, if it is selected.
    #[track_caller]
    fn check_alike(&self, device: &MemoryDevice) {
        if self.alike.chooses() {
            (self.check)(device);
        }
    }

    /// Closes a file system and checks the image.
    #[track_caller]
    fn close(&self, mounted: Box<dyn OpenFileSystem>, device: &MemoryDevice) {
        mounted.close().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (self.check)(device);
    }
}

const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 5 };
const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 1, gid: 2, time: TIME, parent_time: Some(TIME) };

fn later(sec: i64) -> Option<Timestamp> {
    Some(Timestamp { sec: TIME.sec + sec, nsec: 0 })
}

/// Returns names and inodes of a directory, sorted, without `.` and `..`.
fn entries(fs: &dyn FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut all = Vec::new();
    fs.readdir(dir, vfs::Cookie(0), &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            all.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })
    .unwrap_or_else(|error| panic!("listing {dir}: {error}"));
    all.sort();
    all
}
