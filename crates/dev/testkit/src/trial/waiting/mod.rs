//! Files that wait in memory before they are added to their directory: the difference is not visible.

mod durable;
mod failing;
mod order;
mod seen;
mod threads;

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::deferred_create::DeferPolicy;
use vfs::{FileSystem, Ino};

pub use durable::{crashes, datasyncs, syncs, times_of_datasyncs};
pub use failing::{failing_checkpoints, full_image};
pub use order::{Order, order};
pub use seen::{
    counts, few_at_a_time, inodes_once, moves, not_empty, one_file, seen, shrunk, times,
};
pub use threads::threads;

use super::{NEW, Watchdog, entries, later};
use crate::crash::OpenFileSystem;

/// Files wait in each directory of several blocks, few at a time.
pub const SOON: DeferPolicy =
    DeferPolicy { blocks_min: 2, streak_per_block: 0, files_max: 60, parts: 4, blocks_per_part: 1 };

/// Without a limit.
const ALL: DeferPolicy = DeferPolicy { files_max: usize::MAX, ..SOON };

/// Size of the cache in bytes.
const CACHE_BYTES: usize = 8 << 20;

/// A file system with waiting files.
pub trait MayWait: OpenFileSystem {
    /// Returns the number of waiting files.
    fn files_deferred(&self) -> usize;
}

/// Opens a file system on a device, with a given cache size in bytes.
pub type OpenWaiting<'t> = dyn Fn(Arc<dyn BlockDevice>, usize, Option<DeferPolicy>) -> vfs::Result<Box<dyn MayWait>>
    + Sync
    + 't;

/// Configuration of a trial.
pub struct WaitingTrial<'t> {
    /// Name in failures.
    pub name: &'t str,
    /// Creates a file system with space for some thousand files.
    pub make: &'t dyn Fn() -> MemoryDevice,
    /// Opens it.
    pub open: &'t OpenWaiting<'t>,
    /// Panics unless a closed image is sound.
    pub check: &'t dyn Fn(&MemoryDevice),
}

/// An open file system, and a directory in it.
struct OpenTrial {
    device: Arc<MemoryDevice>,
    mounted: Box<dyn MayWait>,
    dir: Ino,
}

impl WaitingTrial<'_> {
    /// Returns a new file system with an empty, durable directory.
    fn empty(&self, policy: DeferPolicy) -> OpenTrial {
        let device = Arc::new((self.make)());
        let opened = self.open(device, CACHE_BYTES, Some(policy), |fs| {
            let dir = fs.mkdir(fs.root(), b"d", &NEW)?;
            fs.sync().map(|()| dir)
        });
        opened.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn open(
        &self,
        device: Arc<MemoryDevice>,
        cache_bytes: usize,
        policy: Option<DeferPolicy>,
        dir: impl FnOnce(&dyn FileSystem) -> vfs::Result<Ino>,
    ) -> vfs::Result<OpenTrial> {
        let mounted = (self.open)(device.clone(), cache_bytes, policy)?;
        let dir = dir(mounted.file_system())?;
        Ok(OpenTrial { device, mounted, dir })
    }

    /// Returns a directory of several blocks in which 200 files do not wait and 100 do.
    fn filled(&self) -> OpenTrial {
        self.filled_with(ALL)
    }

    fn filled_with(&self, policy: DeferPolicy) -> OpenTrial {
        let opened = self.empty(policy);
        (0..200).for_each(|number| opened.create(number));
        opened.fs().sync().unwrap();
        assert_eq!(opened.waiting(), 0);
        (200..300).for_each(|number| opened.create(number));
        opened
    }

    /// Opens the image in its state after a crash.
    fn after_crash(&self, device: &MemoryDevice) -> OpenTrial {
        let device = Arc::new(device.fork());
        let opened = self.open(device, CACHE_BYTES, None, |fs| fs.lookup(fs.root(), b"d"));
        opened.unwrap_or_else(|error| panic!("{}, after a crash: {error}", self.name))
    }

    #[track_caller]
    fn close(&self, opened: OpenTrial) {
        opened.mounted.close().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (self.check)(&opened.device);
    }
}

impl OpenTrial {
    fn fs(&self) -> &dyn FileSystem {
        self.mounted.file_system()
    }

    fn waiting(&self) -> usize {
        self.mounted.files_deferred()
    }

    #[track_caller]
    fn create(&self, number: u32) {
        self.fs().create(self.dir, &name(number), &NEW).unwrap();
    }

    #[track_caller]
    fn ino(&self, number: u32) -> Ino {
        self.fs().lookup(self.dir, &name(number)).unwrap()
    }

    fn has(&self, number: u32) -> bool {
        self.fs().lookup(self.dir, &name(number)).is_ok()
    }

    fn entries(&self) -> Vec<(Vec<u8>, Ino)> {
        entries(self.fs(), self.dir)
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("a file of some length, number {number}").into_bytes()
}
