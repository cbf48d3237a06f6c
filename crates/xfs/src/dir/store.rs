//! The store of directory states between operations.
//!
//! An operation takes the state of a directory out of the store and puts it back when it ends, before its
//! transaction ends. Nobody else wants the state meanwhile, because the operation has locked the directory.
//! So when a checkpoint is closed, all states are in the store.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use operation::Side;
use smallvec::SmallVec;
use transaction::Txn;
use transaction::locks::Mutex;
use transaction::locks::atomic::{AtomicU32, AtomicUsize};
use vfs::Ino;

use super::flush::merge_all;
use super::insert_buffer::{BufferSize, BufferedAddresses};
use super::state::{DirState, NodeState, Reported};
use crate::format::address::{Block, FileBlock};
use crate::format::dir::Layout;
use crate::format::geometry::Geometry;
use crate::inode::Handle;

/// Shards of the store, each with a lock.
const SHARDS: usize = 64;
/// Most directories that a shard keeps, beside those that have buffered names.
const SHARD_STATES: usize = 16;
/// Most bytes that the states of a shard take without their insert buffers, unless it keeps but one.
const SHARD_BYTES: usize = 2 << 20;
/// Insert buffers may take this part of the cache's size in memory, beside the cache: one of so many.
const CACHE_PER_BUFFERS: usize = 8;
/// Directories with fewer leaves than this have no insert buffer by default: the leaves are in the
/// processor's caches anyway.
const LEAVES_MIN: u32 = 16;
/// Most entries that are buffered for a leaf by default. Memory that is far away is met once for so many.
const BUFFERED_MAX: usize = 32;

/// When large directories have an insert buffer, which keeps new names before they go into the hash index,
/// and how large it is. Nothing of it is on disk.
#[derive(Clone, Copy, Debug)]
pub struct InsertBuffering {
    /// Fewest leaves of a directory with an insert buffer.
    pub leaves_min: u32,
    /// Most names that are buffered for one leaf. More than a quarter of what a leaf holds counts as that.
    pub buffered_max: usize,
    /// Most bytes that the insert buffers of all directories take.
    pub bytes_max: usize,
}

/// States in the order in which they were put back.
#[allow(clippy::vec_box, reason = "they move to operations and back")]
type StateList = Vec<Box<DirState>>;

/// A shard of the store.
#[derive(Default)]
struct Shard {
    states: Mutex<StateList>,
    /// States with buffered names. Readers look here without the lock: they have locked the directory, so
    /// that no name is buffered in it meanwhile.
    buffered: AtomicU32,
}

/// The states of all directories.
pub(crate) struct DirStates {
    /// Each on cache lines of its own.
    shards: Box<[CachePadded<Shard>]>,
    /// Leaves that names are buffered for.
    deferred: AtomicUsize,
    /// Bytes of insert buffers.
    bytes: AtomicUsize,
    /// Looked at when leaves get buffers, which is seldom.
    buffering: Mutex<InsertBuffering>,
}

impl DirStates {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let buffering = InsertBuffering {
            leaves_min: LEAVES_MIN,
            buffered_max: BUFFERED_MAX,
            bytes_max: cache_bytes / CACHE_PER_BUFFERS,
        };
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            deferred: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            buffering: Mutex::new(buffering),
        }
    }

    /// Sets when large directories have an insert buffer.
    pub(super) fn set_buffering(&self, buffering: InsertBuffering) {
        *self.buffering.lock() = buffering;
    }

    fn shard(&self, ino: Ino) -> &Shard {
        let mixed = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[mixed as usize % SHARDS]
    }

    /// How much a new insert buffer takes for each leaf.
    pub(super) fn buffer_size(&self, layout: &Layout) -> BufferSize {
        BufferSize::new(layout.leaf_capacity(), self.buffering.lock().buffered_max)
    }

    /// Whether the insert buffer of a directory may take in one more leaf.
    pub(super) fn may_buffer(&self, state: &NodeState) -> bool {
        let buffer = &state.insert_buffer;
        let more = (buffer.bytes() + buffer.size().bytes()).saturating_sub(state.reported.bytes);
        let buffering = *self.buffering.lock();
        state.leaves.count() >= buffering.leaves_min
            && self.bytes.load(Ordering::Relaxed) + more <= buffering.bytes_max
    }

    /// Blocks that [`DirStates::flush_deferred`] will change.
    pub(crate) fn deferred_blocks(&self) -> usize {
        self.deferred.load(Ordering::Relaxed)
    }

    fn take(&self, ino: Ino) -> Option<Box<DirState>> {
        let mut states = self.shard(ino).states.lock();
        let at = states.iter().position(|state| state.ino == ino)?;
        Some(states.remove(at))
    }

    /// Drops a state.
    fn discard(&self, mut state: Box<DirState>) {
        self.report(&mut state.nodes.reported, Reported::default(), self.shard(state.ino));
    }

    /// Drops the state of an inode that is not the directory any more that it was.
    pub(super) fn forget(&self, ino: Ino) {
        if let Some(state) = self.take(ino) {
            self.discard(state);
        }
    }

    /// Keeps a state. If the shard is full, drops those that were unused for longest and have no buffered
    /// names.
    fn put(&self, mut state: Box<DirState>) {
        let shard = self.shard(state.ino);
        let buffer = &state.nodes.insert_buffer;
        let new = Reported { leaves: buffer.buffered_leaves(), bytes: buffer.bytes() };
        self.report(&mut state.nodes.reported, new, shard);
        let mut states = shard.states.lock();
        states.push(state);
        let total: usize = states.iter().map(|state| state.bytes()).sum();
        let mut excess = total.saturating_sub(SHARD_BYTES);
        while states.len() > 1 && (excess > 0 || states.len() > SHARD_STATES) {
            let before_last = states.len() - 1;
            let Some(at) = states[..before_last].iter().position(|state| state.is_idle()) else {
                break;
            };
            let old = states.remove(at);
            excess = excess.saturating_sub(old.bytes());
            self.discard(old);
        }
    }

    /// Brings the counts of the store up to what a state has now.
    fn report(&self, old: &mut Reported, new: Reported, shard: &Shard) {
        if *old == new {
            return;
        }
        let change = |total: &AtomicUsize, old: usize, new: usize| {
            if old != new {
                // It wraps around, and back.
                total.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
            }
        };
        change(&self.deferred, old.leaves, new.leaves);
        change(&self.bytes, old.bytes, new.bytes);
        match (old.leaves > 0, new.leaves > 0) {
            (false, true) => shard.buffered.fetch_add(1, Ordering::Relaxed),
            (true, false) => shard.buffered.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        *old = new;
    }

    /// Addresses of entries with a hash that are buffered for a leaf. The directory is locked.
    pub(crate) fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        let shard = self.shard(dir);
        if shard.buffered.load(Ordering::Relaxed) == 0 {
            return BufferedAddresses::new();
        }
        let states = shard.states.lock();
        let state = states.iter().find(|state| state.ino == dir);
        state.map(|state| state.nodes.insert_buffer.with_hash(leaf, hash)).unwrap_or_default()
    }

    /// Where a block of a directory is, as far as its state knows. The directory is locked. A caller who
    /// would have to wait for the answer gets none.
    pub(crate) fn block_at(&self, dir: &Handle, layout: &Layout, at: FileBlock) -> Option<Block> {
        let states = self.shard(dir.ino()).states.try_lock()?;
        state_of(&states, dir).filter(|state| state.is_read())?.maps.get(layout, at)
    }

    /// Whether there is a state of a directory, which then has nodes. The directory is locked. A caller who
    /// would have to wait for the answer is told that there is none.
    pub(crate) fn is_node(&self, dir: &Handle) -> bool {
        let states = self.shard(dir.ino()).states.try_lock();
        states.is_some_and(|states| state_of(&states, dir).is_some())
    }

    /// Brings all buffered names into the leaves, because a checkpoint is closed: no operation is under way.
    /// Readers may be under way, and find each name in the buffer or in the leaf.
    pub(crate) fn flush_deferred(
        &self,
        geometry: &Geometry,
        txn: &mut Txn<'_>,
    ) -> transaction::Result<()> {
        let layout = Layout::new(geometry);
        let is_short = self.bytes.load(Ordering::Relaxed) > self.buffering.lock().bytes_max / 2;
        for shard in &self.shards {
            if shard.buffered.load(Ordering::Relaxed) == 0 && !is_short {
                continue;
            }
            for state in shard.states.lock().iter_mut() {
                if !state.nodes.insert_buffer.is_empty() {
                    merge_all(&layout, state, txn)?;
                } else if is_short {
                    // Nothing came in since the last checkpoint, so others shall have the memory.
                    state.nodes.insert_buffer.clear();
                }
                let bytes = state.nodes.insert_buffer.bytes();
                self.report(&mut state.nodes.reported, Reported { leaves: 0, bytes }, shard);
            }
        }
        Ok(())
    }

    /// Marks all states to be read again before they are used.
    pub(super) fn read_all_again(&self) {
        for shard in &self.shards {
            shard.states.lock().iter_mut().for_each(|state| state.set_unread());
        }
    }
}

/// The state of a directory, unless it is one that had its number before.
fn state_of<'s>(states: &'s StateList, dir: &Handle) -> Option<&'s DirState> {
    let state = states.iter().find(|state| state.ino == dir.ino())?;
    (state.generation == dir.inode.generation() && state.is_valid()).then_some(state)
}

/// The states that an operation has taken.
pub(crate) struct TakenStates<'a> {
    states: &'a DirStates,
    taken: SmallVec<[Box<DirState>; 2]>,
}

impl<'a> TakenStates<'a> {
    pub(crate) fn new(states: &'a DirStates) -> Self {
        Self { states, taken: SmallVec::new() }
    }

    /// Whether there is a state of a directory, which then has nodes.
    pub(super) fn has(&mut self, dir: &Handle) -> bool {
        let Some(state) = self.take(dir) else { return false };
        self.give(state);
        true
    }

    /// Takes the state of a directory, if there is one, to be given back soon.
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

    /// As [`DirStates::buffered`], within the operation.
    pub(crate) fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        match self.taken.iter().find(|state| state.ino == dir) {
            Some(state) => state.nodes.insert_buffer.with_hash(leaf, hash),
            None => self.states.buffered(dir, leaf, hash),
        }
    }
}

impl TakenStates<'_> {
    /// Puts the states back, of which `end` says whether they are still of use.
    fn put_back(&mut self, end: impl Fn(&mut DirState) -> bool) {
        for mut state in self.taken.drain(..) {
            if end(&mut state) {
                self.states.put(state);
            } else {
                self.states.discard(state);
            }
        }
    }
}

impl Side for TakenStates<'_> {
    fn keep(&mut self) {
        self.put_back(DirState::keep);
    }
}

impl Drop for TakenStates<'_> {
    fn drop(&mut self) {
        self.put_back(DirState::roll_back);
    }
}
