//! Files that wait: made, and not yet in a leaf nor in the inode table.
//!
//! Names lie in the order of their hashes, so files that are made one after the other meet a leaf each. In a large
//! directory a checkpoint meets each leaf about once, and a create writes most of a leaf to the journal and to its
//! place. So files that nobody has asked to be durable wait in memory, and are applied by ranges of hashes.
//!
//! Invariants:
//! - A file that waits is nowhere on disk. Its inode is kept for it ([`InodeRun`]), and space for what its name may
//!   need is promised.
//! - A file starts to wait, and is applied, only with its directory locked exclusively. An operation of applying is
//!   whole: the name, the inode and its bit become durable at once.
//! - Whoever changes a directory in any other way, or lists it, keeps it quiet (`gate`): then nothing waits in it.
//!   Whoever does more to a file than look at its attributes has it applied first.
//! - A file is forgotten here only after it was applied: whoever does not find it here finds it on disk.

mod apply;
mod batch;
mod create;
mod directories;
mod filter;
mod format;
mod gate;
mod places;
mod ranges;
mod run;
mod settle;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use transaction::locks::Mutex;
use transaction::locks::atomic::AtomicUsize;
use vfs::Ino;

pub use batch::Batch;
pub use create::{create, note_name};
use directories::Directories;
pub use format::{HashNames, LetFilesWait};
use gate::Gates;
pub use gate::Quiet;
pub use run::{InodeRun, RUN_SPAN_MAX};
pub use settle::{
    attributes, open, quiet, quiet_named, settle, settle_all, settle_all_of, with_all,
};
pub use table::{BatchOrder, Record};
use table::{Directory, Map, RunOwner};

/// When files wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingPolicy {
    /// Blocks of a directory from which on files wait in it.
    pub blocks_min: u64,
    /// Files that must have been made in it one after the other before, for each block that it has.
    pub streak_per_block: usize,
    /// Files that wait, at most, of all directories; of each directory a 64th of that may come on top, at most 256.
    pub files_max: usize,
    /// Parts of a large directory that are applied one at a time.
    pub parts: usize,
    /// Blocks of a directory for each of its parts, at least: a smaller one has fewer parts.
    pub blocks_per_part: u64,
}

impl WaitingPolicy {
    /// What pays in directories whose leaves no checkpoint meets twice: some 100 bytes of memory a file.
    pub const LARGE: Self = Self {
        blocks_min: 1024,
        streak_per_block: 1,
        files_max: 500_000,
        parts: 256,
        blocks_per_part: 256,
    };

    /// The same where a part is applied in the order of hashes. How many parts there are is settled before the first file
    /// waits, and while files wait it stays so. A large part would meet more blocks of inodes, in no order, than a
    /// checkpoint holds.
    pub const LARGE_IN_PARTS: Self = Self { blocks_per_part: 4, ..Self::LARGE };

    /// Parts of a directory of so many blocks.
    fn parts_of(&self, blocks: u64) -> usize {
        let parts = usize::try_from(blocks / self.blocks_per_part.max(1)).unwrap_or(usize::MAX);
        parts.clamp(1, self.parts.max(1))
    }
}

type Shared<H> = Arc<Mutex<Directory<H>>>;

/// A file that waits: its directory, and its place there.
type Found<H> = (Ino, Shared<H>, usize, usize, Record);

/// The files of a file system that wait.
///
/// Every create reads what is here, so nothing of it is written for every one, but what belongs to its directory:
/// processors would pass the lines around.
pub struct Waiting<H> {
    policy: Option<WaitingPolicy>,
    /// Memory of a filter, at most, in bytes.
    filter_bytes_max: usize,
    gates: Gates,
    dirs: Directories<H>,
    /// Directories in which files wait.
    dirs_waiting: AtomicUsize,
    /// Whether as many files wait as may, when they were last counted.
    is_full: AtomicBool,
    /// Whose inodes of runs that were kept are.
    runs: CachePadded<Mutex<Map<u64, SmallVec<[RunOwner; 1]>>>>,
}

/// Bytes of the cache for each file that waits, at least: a third of that is taken for it.
const CACHE_BYTES_PER_FILE: usize = 512;

/// Memory of a filter, at most, in bytes: enough for some twenty million names.
const FILTER_BYTES_MAX: usize = 64 << 20;

/// Files of a directory after which all that wait are counted again, at most.
const COUNTED_EVERY_MAX: usize = 256;

impl<H: HashNames> Waiting<H> {
    /// Nothing waits yet. Without a policy, nothing ever will. With a small cache, fewer wait than the policy says.
    #[must_use]
    pub fn new(policy: Option<WaitingPolicy>, cache_bytes: usize) -> Self {
        let files_max = cache_bytes / CACHE_BYTES_PER_FILE;
        let policy = policy
            .map(|policy| WaitingPolicy { files_max: policy.files_max.min(files_max), ..policy });
        Self {
            policy,
            filter_bytes_max: (cache_bytes / 4).min(FILTER_BYTES_MAX),
            gates: Gates::default(),
            dirs: Directories::default(),
            dirs_waiting: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            runs: CachePadded::default(),
        }
    }

    /// Files that wait or are about to. Counts them in many places: not for every operation.
    pub fn files(&self) -> usize {
        self.gates.names()
    }

    /// Whether no file waits.
    pub fn is_empty(&self) -> bool {
        self.dirs_waiting.load(Ordering::Relaxed) == 0
    }

    /// Counts what waits, if a directory with that many more files is a reason to.
    fn count(&self, policy: WaitingPolicy, files_of_directory: usize) {
        let every = (policy.files_max / 64).clamp(1, COUNTED_EVERY_MAX);
        if files_of_directory.is_multiple_of(every) {
            self.note_full(policy);
        }
    }

    fn note_full(&self, policy: WaitingPolicy) {
        let is_full = self.files() >= policy.files_max;
        if self.is_full.load(Ordering::Relaxed) != is_full {
            self.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Forgets the filters of directories in which nothing waits, if all together take much memory.
    fn forget_filters(&self) {
        let mut bytes = 0;
        self.dirs.for_each(|_, directory| {
            bytes += directory.try_lock().map_or(0, |directory| directory.filter_bytes());
        });
        if bytes > self.filter_bytes_max {
            self.dirs.for_each(|_, directory| {
                if let Some(mut directory) = directory.try_lock()
                    && directory.waiting == 0
                {
                    directory.filter = None;
                }
            });
        }
    }

    /// Whether names of a directory wait. It must be locked.
    pub fn has_names(&self, dir: Ino) -> bool {
        self.gates.may_wait(dir)
            && self.dirs.get(dir).is_some_and(|directory| directory.lock().waiting > 0)
    }

    /// The inode of a name that waits. The directory must be locked, if only shared.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        if !self.gates.may_wait(dir) {
            return None;
        }
        let directory = self.dirs.get(dir)?;
        let directory = directory.lock();
        let key = directory.hasher.key(name);
        directory.find(key, name).filter(|(_, has_name)| *has_name).map(|(record, _)| record.ino)
    }

    /// A file that waits, by its inode, which would be in the run of that number.
    fn by_inode(&self, run: u64, ino: Ino) -> Option<Found<H>> {
        // Inodes beside each other may be several parts'.
        let owners = self.runs.lock().get(&run)?.clone();
        owners.iter().find_map(|owner| {
            let (directory, at) = (self.dirs.get(owner.dir)?, owner.record(ino)?);
            let part = owner.part as usize;
            let record = *directory.lock().record(part, at).filter(|record| record.ino == ino)?;
            Some((owner.dir, directory, part, at, record))
        })
    }

    /// Forgets that runs are a part's.
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
