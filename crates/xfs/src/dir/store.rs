//! Where the states of directories are between operations.
//!
//! An operation takes the state of a directory out of the store and puts it back when it ends, before its
//! transaction ends; nobody else wants it meanwhile, because the operation has locked the directory. So
//! when a checkpoint is closed, all states are here.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use transaction::Txn;
use vfs::Ino;

use super::buffers::Shape;
use super::find::Waiting;
use super::settle::merge_all;
use super::state::DirState;
use crate::Xfs;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::Layout;
use crate::format::geometry::Geometry;
use crate::inode::Handle;

/// Locks of the store.
const SHARDS: usize = 64;
/// Most directories that a shard keeps, beside those that have names waiting.
const SHARD_STATES: usize = 16;
/// Most bytes that the states of a shard take without their leaf buffers, unless it keeps but one.
const SHARD_BYTES: usize = 2 << 20;
/// The part of the cache's memory that leaf buffers may take beside it: one of so many.
const CACHE_PER_BUFFERS: usize = 8;
/// Directories with fewer leaves than this have no leaf buffers by default: they are in the processor's
/// caches anyway.
const LEAVES_MIN: u32 = 16;
/// Most entries that wait for a leaf by default. Memory that is far away is met once for so many.
const WAITING_MAX: usize = 32;

/// When new names of large directories wait before they go into the hash index, and how many. Nothing of
/// it is on disk.
#[derive(Clone, Copy, Debug)]
pub struct LeafBuffering {
    /// Leaves that a directory has at least.
    pub leaves_min: u32,
    /// Most names that wait for one leaf; a quarter of what it holds at most.
    pub waiting_max: usize,
    /// Most bytes that the buffers of all leaves take.
    pub bytes_max: usize,
}

/// States in the order in which they were put back.
#[allow(clippy::vec_box, reason = "they move to operations and back")]
type Shard = Vec<Box<DirState>>;

/// A part of the store, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Part {
    states: Mutex<Shard>,
    /// States with names waiting. Readers look here without the lock: they have locked the directory,
    /// so that none can come to wait in it meanwhile.
    waiting: AtomicU32,
}

/// What the store was told of a state's leaf buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    leaves: usize,
    bytes: usize,
}

/// The states of all directories.
pub(crate) struct States {
    parts: Box<[Part]>,
    /// Leaves that names wait for.
    unsettled: AtomicUsize,
    /// Bytes of leaf buffers.
    bytes: AtomicUsize,
    /// Looked at when leaves get buffers, and that is seldom.
    buffering: Mutex<LeafBuffering>,
}

impl States {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let buffering = LeafBuffering {
            leaves_min: LEAVES_MIN,
            waiting_max: WAITING_MAX,
            bytes_max: cache_bytes / CACHE_PER_BUFFERS,
        };
        Self {
            parts: (0..SHARDS).map(|_| Part::default()).collect(),
            unsettled: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            buffering: Mutex::new(buffering),
        }
    }

    fn part(&self, ino: Ino) -> &Part {
        let mixed = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.parts[mixed as usize % SHARDS]
    }

    /// How large leaf buffers are.
    pub(super) fn shape(&self, layout: &Layout) -> Shape {
        Shape::new(layout.leaf_capacity(), self.buffering.lock().waiting_max)
    }

    /// Whether a directory with so many leaves may have one more leaf buffer.
    pub(super) fn may_buffer(&self, state: &DirState, leaves: u32, shape: Shape) -> bool {
        let more = (state.buffers.bytes() + shape.bytes()).saturating_sub(state.reported.bytes);
        let buffering = *self.buffering.lock();
        leaves >= buffering.leaves_min
            && self.bytes.load(Ordering::Relaxed) + more <= buffering.bytes_max
    }

    /// Blocks that [`States::settle`] will change.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Relaxed)
    }

    fn take(&self, ino: Ino) -> Option<Box<DirState>> {
        let mut shard = self.part(ino).states.lock();
        let at = shard.iter().position(|state| state.ino == ino)?;
        Some(shard.remove(at))
    }

    /// Drops a state.
    fn discard(&self, mut state: Box<DirState>) {
        self.report(&mut state.reported, Reported::default(), self.part(state.ino));
    }

    /// Forgets what is kept of an inode that is not the directory any more that it was.
    pub(super) fn forget(&self, ino: Ino) {
        if let Some(state) = self.take(ino) {
            self.discard(state);
        }
    }

    /// Keeps a state, and lets those go that were not used for longest and that nothing waits in.
    fn put(&self, mut state: Box<DirState>) {
        let part = self.part(state.ino);
        let new = Reported { leaves: state.buffers.waiting, bytes: state.buffers.bytes() };
        self.report(&mut state.reported, new, part);
        let mut shard = part.states.lock();
        shard.push(state);
        let total: usize = shard.iter().map(|state| state.bytes()).sum();
        let mut excess = total.saturating_sub(SHARD_BYTES);
        while shard.len() > 1 && (excess > 0 || shard.len() > SHARD_STATES) {
            let before_last = shard.len() - 1;
            let Some(at) = shard[..before_last].iter().position(|state| state.is_idle()) else {
                break;
            };
            let old = shard.remove(at);
            excess = excess.saturating_sub(old.bytes());
            self.discard(old);
        }
    }

    /// Brings what is counted of all states up to date.
    fn report(&self, old: &mut Reported, new: Reported, part: &Part) {
        if *old == new {
            return;
        }
        let change = |total: &AtomicUsize, old: usize, new: usize| {
            if old != new {
                // It wraps around, and back.
                total.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
            }
        };
        change(&self.unsettled, old.leaves, new.leaves);
        change(&self.bytes, old.bytes, new.bytes);
        match (old.leaves > 0, new.leaves > 0) {
            (false, true) => part.waiting.fetch_add(1, Ordering::Relaxed),
            (true, false) => part.waiting.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        *old = new;
    }

    /// Addresses of entries whose hash waits for a leaf. The directory is locked.
    pub(crate) fn waiting(&self, dir: Ino, leaf: u32, hash: u32) -> Waiting {
        let part = self.part(dir);
        if part.waiting.load(Ordering::Relaxed) == 0 {
            return Waiting::new();
        }
        let shard = part.states.lock();
        let state = shard.iter().find(|state| state.ino == dir);
        state.map(|state| state.buffers.with_hash(leaf, hash)).unwrap_or_default()
    }

    /// Where a block of a directory is, as far as its state knows. The directory is locked. Who would
    /// have to wait for an answer gets none.
    pub(crate) fn place(&self, dir: &Handle, layout: &Layout, at: FileBlock) -> Option<Block> {
        let shard = self.part(dir.ino()).states.try_lock()?;
        state_of(&shard, dir).filter(|state| state.is_read())?.maps.get(layout, at)
    }

    /// Whether there is a state of a directory, which then is one with nodes. The directory is locked. Who
    /// would have to wait for an answer is told of none.
    pub(crate) fn is_node(&self, dir: &Handle) -> bool {
        let shard = self.part(dir.ino()).states.try_lock();
        shard.is_some_and(|shard| state_of(&shard, dir).is_some())
    }

    /// Brings all that waits into the leaves, because a checkpoint is closed: no operation is under way.
    /// Readers may be, and find each name in one place or the other.
    pub(crate) fn settle(&self, geometry: &Geometry, txn: &mut Txn<'_>) -> transaction::Result<()> {
        let layout = Layout::new(geometry);
        let is_short = self.bytes.load(Ordering::Relaxed) > self.buffering.lock().bytes_max / 2;
        for part in &self.parts {
            if part.waiting.load(Ordering::Relaxed) == 0 && !is_short {
                continue;
            }
            for state in part.states.lock().iter_mut() {
                if state.buffers.waiting > 0 {
                    merge_all(&layout, state, txn)?;
                } else if is_short {
                    // Nothing came in since the last time, so others shall have the memory.
                    state.buffers.clear();
                }
                let new = Reported { leaves: 0, bytes: state.buffers.bytes() };
                self.report(&mut state.reported, new, part);
            }
        }
        Ok(())
    }

    /// Everything is read again before it is used.
    pub(super) fn read_all_again(&self) {
        for part in &self.parts {
            part.states.lock().iter_mut().for_each(|state| state.set_unread());
        }
    }
}

/// The state of a directory, unless it is one that had its number before.
fn state_of<'s>(shard: &'s Shard, dir: &Handle) -> Option<&'s DirState> {
    let state = shard.iter().find(|state| state.ino == dir.ino())?;
    (state.generation == dir.inode.generation() && state.is_valid()).then_some(state)
}

/// The states that an operation has taken.
pub(crate) struct Taken<'a> {
    states: &'a States,
    taken: SmallVec<[Box<DirState>; 2]>,
    is_kept: bool,
}

impl<'a> Taken<'a> {
    pub(crate) fn new(states: &'a States) -> Self {
        Self { states, taken: SmallVec::new(), is_kept: false }
    }

    /// The operation commits.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// The state of a directory, if there is one, to be given back soon.
    pub(super) fn take(&mut self, dir: &Handle) -> Option<Box<DirState>> {
        let ino = dir.ino();
        let state = match self.taken.iter().position(|state| state.ino == ino) {
            Some(at) => self.taken.swap_remove(at),
            None => self.states.take(ino)?,
        };
        if state.generation == dir.inode.generation() && state.is_valid() {
            return Some(state);
        }
        self.states.discard(state);
        None
    }

    /// Keeps a state to the end of the operation.
    pub(super) fn give(&mut self, state: Box<DirState>) {
        self.taken.push(state);
    }

    /// As [`States::waiting`], within the operation.
    pub(crate) fn waiting(&self, dir: Ino, leaf: u32, hash: u32) -> Waiting {
        match self.taken.iter().find(|state| state.ino == dir) {
            Some(state) => state.buffers.with_hash(leaf, hash),
            None => self.states.waiting(dir, leaf, hash),
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for mut state in self.taken.drain(..) {
            let is_useful = if self.is_kept { state.keep() } else { state.roll_back() };
            if is_useful {
                self.states.put(state);
            } else {
                self.states.discard(state);
            }
        }
    }
}

impl Xfs {
    /// Sets when names of large directories wait before they go into the hash index, which is a matter of
    /// speed and memory alone. Directories that are kept in memory go on with as many names for a leaf as
    /// before.
    pub fn set_leaf_buffering(&self, buffering: LeafBuffering) {
        *self.dirs.buffering.lock() = buffering;
    }
}
