//! Deferred creates: new files that stay in memory before they are written to a leaf and to the inode table.
//!
//! Names are stored in the order of their hashes, so consecutive creates touch different leaves. In a large directory a
//! checkpoint touches each leaf about once, so each create would write most of a leaf to the journal and in place.
//! Instead, new files stay in memory until they must be durable, and are *applied* in batches by ranges of hashes.
//!
//! Invariants:
//! - A deferred file is not on disk. Its inode is reserved ([`InodeRun`]), and the space that its name may need is
//!   promised.
//! - A file is deferred, and applied, only while its directory is locked exclusively. Applying is atomic: the
//!   name, the inode and its bit become durable together.
//! - Any other change or listing of a directory flushes it first (`gate`): all files are applied and none is
//!   deferred until it ends. Any access to a file other than reading its attributes applies it first.
//! - A record is removed only after its file was applied: a file that is not found here is found on disk.

mod apply;
mod batch;
mod create;
mod directories;
mod filter;
mod flush;
mod format;
mod gate;
mod layer;
mod places;
mod ranges;
mod run;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use engine::locks::Mutex;
use engine::locks::atomic::AtomicUsize;
use engine::numbers::NumberMap;
use smallvec::SmallVec;
use vfs::Ino;

pub use batch::Batch;
pub use create::note_name;
use directories::Directories;
pub use flush::flush_file;
pub use format::{DeferCreates, HashNames};
use gate::Gates;
pub(crate) use layer::Layer;
pub use run::InodeRun;
pub use table::{BatchOrder, DeferredFile};
use table::{DeferredDirectory, RunOwner};

/// Conditions for deferred creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferPolicy {
    /// Minimum size of a directory, in blocks.
    pub blocks_min: u64,
    /// Number of files that must have been created there without other changes before, for each block of the directory.
    pub streak_per_block: usize,
    /// Maximum number of deferred files in all directories. Each directory may exceed it by 1/64 of it, at most 256
    /// files.
    pub files_max: usize,
    /// Maximum number of parts of a directory. Parts are applied one at a time.
    pub parts: usize,
    /// Minimum number of blocks for each part: a smaller directory has fewer parts.
    pub blocks_per_part: u64,
}

impl DeferPolicy {
    /// Policy for directories so large that no checkpoint touches a leaf twice. A deferred file takes about 100 bytes
    /// of memory.
    pub const LARGE: Self = Self {
        blocks_min: 1024,
        streak_per_block: 1,
        files_max: 500_000,
        parts: 256,
        blocks_per_part: 256,
    };

    /// Policy for formats that apply a part in the order of hashes. The number of parts is fixed before the first file
    /// is deferred, and stays as long as files are deferred. A large part would touch more inode blocks, in random
    /// order, than a checkpoint holds.
    pub const LARGE_IN_PARTS: Self = Self { blocks_per_part: 4, ..Self::LARGE };

    /// Returns the number of parts of a directory with `blocks` blocks.
    fn parts_of(&self, blocks: u64) -> usize {
        let parts = usize::try_from(blocks / self.blocks_per_part.max(1)).unwrap_or(usize::MAX);
        parts.clamp(1, self.parts.max(1))
    }
}

type SharedDirectory<H> = Arc<Mutex<DeferredDirectory<H>>>;

/// A deferred file: its directory, that directory's records, the part, the index in the part, and the record.
type FoundFile<H> = (Ino, SharedDirectory<H>, usize, usize, DeferredFile);

/// The deferred files of a file system.
///
/// Every create reads this structure. Fields outside of a directory are rarely written, because the cache lines would
/// move between processors.
pub struct DeferredCreates<H> {
    policy: Option<DeferPolicy>,
    /// Maximum memory of a filter in bytes.
    filter_bytes_max: usize,
    gates: Gates,
    dirs: Directories<H>,
    /// Number of directories with deferred files.
    dirs_deferred: AtomicUsize,
    /// True if the maximum number of files was deferred at the last count.
    is_full: AtomicBool,
    /// Owners of reserved runs of inodes, by run ID.
    runs: CachePadded<Mutex<NumberMap<u64, SmallVec<[RunOwner; 1]>>>>,
}

/// Minimum number of cache bytes for each deferred file. A third of them is used.
const CACHE_BYTES_PER_FILE: usize = 512;

/// Maximum memory of a filter in bytes: enough for about twenty million names.
const FILTER_BYTES_MAX: usize = 64 << 20;

/// Maximum number of files of a directory between two counts of all deferred files.
const COUNTED_EVERY_MAX: usize = 256;

impl<H: HashNames> DeferredCreates<H> {
    /// Creates an empty set. Without a policy, nothing is deferred. With a small cache, the limit of the policy is
    /// lowered.
    #[must_use]
    pub fn new(policy: Option<DeferPolicy>, cache_bytes: usize) -> Self {
        let files_max = cache_bytes / CACHE_BYTES_PER_FILE;
        let policy = policy
            .map(|policy| DeferPolicy { files_max: policy.files_max.min(files_max), ..policy });
        Self {
            policy,
            filter_bytes_max: (cache_bytes / 4).min(FILTER_BYTES_MAX),
            gates: Gates::default(),
            dirs: Directories::default(),
            dirs_deferred: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            runs: CachePadded::default(),
        }
    }

    /// Returns the number of files that are deferred or about to be. Sums over many counters, so it must not be called
    /// for every operation.
    pub(crate) fn files(&self) -> usize {
        self.gates.names()
    }

    /// Returns whether no file is deferred.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirs_deferred.load(Ordering::Relaxed) == 0
    }

    /// Counts all deferred files if the number of those in a directory is a multiple of the interval.
    fn count(&self, policy: DeferPolicy, files_of_directory: usize) {
        let every = (policy.files_max / 64).clamp(1, COUNTED_EVERY_MAX);
        if files_of_directory.is_multiple_of(every) {
            self.note_full(policy);
        }
    }

    fn note_full(&self, policy: DeferPolicy) {
        let is_full = self.files() >= policy.files_max;
        if self.is_full.load(Ordering::Relaxed) != is_full {
            self.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Drops the filters of directories in which nothing is deferred, if all filters together use too much memory.
    fn forget_filters(&self) {
        let mut bytes = 0;
        self.dirs.for_each(|_, directory| {
            bytes += directory.try_lock().map_or(0, |directory| directory.filter_bytes());
        });
        if bytes > self.filter_bytes_max {
            self.dirs.for_each(|_, directory| {
                if let Some(mut directory) = directory.try_lock()
                    && directory.deferred == 0
                {
                    directory.filter = None;
                }
            });
        }
    }

    /// Returns whether names of a directory are deferred. The directory must be locked.
    pub fn has_names(&self, dir: Ino) -> bool {
        self.gates.may_have_names(dir)
            && self.dirs.get(dir).is_some_and(|directory| directory.lock().deferred > 0)
    }

    /// Returns the inode of a deferred name. The directory must be locked, at least shared.
    pub(crate) fn find(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        if !self.gates.may_have_names(dir) {
            return None;
        }
        let directory = self.dirs.get(dir)?;
        let directory = directory.lock();
        let key = directory.hasher.key(name);
        directory.find(key, name).filter(|(_, has_name)| *has_name).map(|(record, _)| record.ino)
    }

    /// Returns a deferred file by its inode, which belongs to run ID `run`.
    fn by_inode(&self, run: u64, ino: Ino) -> Option<FoundFile<H>> {
        // Adjoining inodes may belong to several parts.
        let owners = self.runs.lock().get(&run)?.clone();
        owners.iter().find_map(|owner| {
            let (directory, at) = (self.dirs.get(owner.dir)?, owner.record(ino)?);
            let part = owner.part as usize;
            let record = *directory.lock().record(part, at).filter(|record| record.ino == ino)?;
            Some((owner.dir, directory, part, at, record))
        })
    }

    /// Removes a part as the owner of runs.
    fn forget_runs(&self, dir: Ino, part: usize, ids: impl Iterator<Item = u64>) {
        let mut runs = self.runs.lock();
        let mut last = None;
        for id in ids {
            if last.replace(id) == Some(id) {
                continue;
            }
            if let Some(owners) = runs.get_mut(&id) {
                owners.retain(|owner| owner.dir != dir || owner.part != part as u32);
                if owners.is_empty() {
                    runs.remove(&id);
                }
            }
        }
    }
}
