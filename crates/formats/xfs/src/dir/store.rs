//! The store of directory states between operations.
//!
//! An operation takes the state of a directory from the store and puts it back when it ends, before its transaction
//! ends. The directory's lock keeps other operations from needing the state in between. So when a checkpoint is closed,
//! all states are in the store.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use engine::Txn;
use engine::locks::Mutex;
use engine::locks::atomic::{AtomicU32, AtomicUsize};
use operations::InMemoryUndo;
use smallvec::SmallVec;
use vfs::Ino;

use super::flush::merge_all;
use super::insert_buffer::{BufferSize, BufferedAddresses};
use super::state::{DirState, NodeState, Reported};
use crate::format::address::{Block, FileBlock};
use crate::format::dir::DirLayout;
use crate::format::geometry::Geometry;
use crate::inode::Handle;

/// Number of shards of the store, each with a lock.
const SHARDS: usize = 64;
/// Maximum number of directories of a shard, not counting those with buffered names.
const SHARD_STATES: usize = 16;
/// Maximum bytes of the states of a shard without their insert buffers. A single state may exceed it.
const SHARD_BYTES: usize = 2 << 20;
/// Insert buffers may take one part in this many of the cache's size, in memory outside the cache.
const CACHE_PER_BUFFERS: usize = 8;
/// Smaller directories, in leaves, have no insert buffer by default: their leaves stay in the processor's caches
/// anyway.
const LEAVES_MIN: u32 = 16;
/// Default maximum number of entries buffered for a leaf. They share one access to uncached memory.
const BUFFERED_MAX: usize = 32;

/// Minimum number of leaves with buffered names per thread that merges them.
const LEAVES_PER_THREAD: usize = 64;

/// Conditions for the insert buffers of large directories, and their sizes. A buffer keeps new names in memory until
/// they are merged into the hash index.
#[derive(Clone, Copy, Debug)]
pub struct InsertBuffering {
    /// Minimum number of leaves of a directory with an insert buffer.
    pub leaves_min: u32,
    /// Maximum number of names buffered per leaf. Limited to a quarter of the capacity of a leaf.
    pub buffered_max: usize,
    /// Maximum bytes of the insert buffers of all directories.
    pub bytes_max: usize,
}

/// States in the order in which operations returned them.
#[allow(clippy::vec_box, reason = "boxes move to operations and back")]
type StateList = Vec<Box<DirState>>;

/// A shard of the store.
#[derive(Default)]
struct Shard {
    states: Mutex<StateList>,
    /// Number of states with buffered names. Readers check it without the lock: they have locked the directory, so no
    /// name of it can be buffered at the same time.
    buffered: AtomicU32,
}

/// The states of all directories.
pub(crate) struct DirStates {
    /// Each on its own cache lines.
    shards: Box<[CachePadded<Shard>]>,
    /// Number of leaves with buffered names.
    deferred: AtomicUsize,
    /// Bytes of the insert buffers.
    bytes: AtomicUsize,
    /// Locked only when a leaf gets a buffer, which is rare.
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

    /// Returns the size of a new insert buffer per leaf.
    pub(super) fn buffer_size(&self, layout: &DirLayout) -> BufferSize {
        BufferSize::new(layout.leaf_capacity(), self.buffering.lock().buffered_max)
    }

    /// Returns whether the insert buffer of a directory may include one more leaf.
    pub(super) fn may_buffer(&self, state: &NodeState) -> bool {
        let buffer = &state.insert_buffer;
        let more = (buffer.bytes() + buffer.size().bytes()).saturating_sub(state.reported.bytes);
        let buffering = *self.buffering.lock();
        state.leaves.count() >= buffering.leaves_min
            && self.bytes.load(Ordering::Relaxed) + more <= buffering.bytes_max
    }

    /// Returns the number of blocks that [`DirStates::flush_deferred`] will change.
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

    /// Drops the state of an inode that is no longer the same directory.
    pub(super) fn forget(&self, ino: Ino) {
        if let Some(state) = self.take(ino) {
            self.discard(state);
        }
    }

    /// Stores a state. If the shard is full, drops the least recently used states without buffered names.
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

    /// Updates the counters of the store with the current values of a state.
    fn report(&self, old: &mut Reported, new: Reported, shard: &Shard) {
        if *old == new {
            return;
        }
        let change = |total: &AtomicUsize, old: usize, new: usize| {
            if old != new {
                // The difference may wrap around; so does the sum.
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

    /// Returns the addresses of entries with a hash that are buffered for a leaf. The directory must be locked.
    pub(crate) fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        let shard = self.shard(dir);
        if shard.buffered.load(Ordering::Relaxed) == 0 {
            return BufferedAddresses::new();
        }
        let states = shard.states.lock();
        let state = states.iter().find(|state| state.ino == dir);
        state.map(|state| state.nodes.insert_buffer.with_hash(leaf, hash)).unwrap_or_default()
    }

    /// Returns the location of a directory's block, if its state has it. The directory must be locked. Returns `None`
    /// instead of waiting for the shard's lock.
    pub(crate) fn block_at(
        &self,
        dir: &Handle,
        layout: &DirLayout,
        at: FileBlock,
    ) -> Option<Block> {
        let states = self.shard(dir.ino()).states.try_lock()?;
        state_of(&states, dir).filter(|state| state.is_read())?.maps.get(layout, at)
    }

    /// Returns whether the store has a state of a directory, which implies node form. The directory must be locked.
    /// Returns false instead of waiting for the shard's lock.
    pub(crate) fn is_node(&self, dir: &Handle) -> bool {
        let states = self.shard(dir.ino()).states.try_lock();
        states.is_some_and(|states| state_of(&states, dir).is_some())
    }

    /// Merges all buffered names into the leaves when a checkpoint is closed. No operation is running. Readers may be,
    /// and find each name in the buffer or in the leaf.
    pub(crate) fn flush_deferred(
        &self,
        geometry: &Geometry,
        txn: &mut Txn<'_>,
    ) -> engine::Result<()> {
        let layout = DirLayout::new(geometry);
        let is_short = self.bytes.load(Ordering::Relaxed) > self.buffering.lock().bytes_max / 2;
        let has_work =
            |shard: &&CachePadded<Shard>| is_short || shard.buffered.load(Ordering::Relaxed) > 0;
        let shards: Vec<_> = self.shards.iter().filter(has_work).collect();
        if txn.threads_for(self.deferred_blocks(), LEAVES_PER_THREAD) == 1 {
            return shards
                .into_iter()
                .try_for_each(|shard| self.merge(&layout, shard, is_short, txn));
        }
        // Each directory is in one shard, and merging changes leaves of the directory only.
        txn.spread(shards, |shard, txn| self.merge(&layout, shard, is_short, txn))
    }

    /// Merges the buffered names of all directories of a shard.
    fn merge(
        &self,
        layout: &DirLayout,
        shard: &Shard,
        is_short: bool,
        txn: &mut Txn<'_>,
    ) -> engine::Result<()> {
        for state in shard.states.lock().iter_mut() {
            if !state.nodes.insert_buffer.is_empty() {
                merge_all(layout, state, txn)?;
            } else if is_short {
                // No name was buffered since the last checkpoint, so the memory is freed for others.
                state.nodes.insert_buffer.clear();
            }
            let bytes = state.nodes.insert_buffer.bytes();
            self.report(&mut state.nodes.reported, Reported { leaves: 0, bytes }, shard);
        }
        Ok(())
    }

    /// Marks all states to be read again before their next use.
    #[cfg(feature = "free-index-strategies")]
    pub(super) fn read_all_again(&self) {
        for shard in &self.shards {
            shard.states.lock().iter_mut().for_each(|state| state.set_unread());
        }
    }
}

/// Returns the state of a directory, unless it belongs to a previous inode with the same number.
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

    /// Returns whether there is a state of a directory, which implies node form.
    pub(super) fn has(&mut self, dir: &Handle) -> bool {
        let Some(state) = self.take(dir) else { return false };
        self.give(state);
        true
    }

    /// Takes the state of a directory, if there is one. The caller must give it back soon.
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

    /// Keeps a state until the end of the operation.
    pub(super) fn give(&mut self, state: Box<DirState>) {
        self.taken.push(state);
    }

    /// Like [`DirStates::buffered`], within the operation.
    pub(crate) fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        match self.taken.iter().find(|state| state.ino == dir) {
            Some(state) => state.nodes.insert_buffer.with_hash(leaf, hash),
            None => self.states.buffered(dir, leaf, hash),
        }
    }
}

impl TakenStates<'_> {
    /// Puts the states back. `end` returns whether to keep a state.
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

impl InMemoryUndo for TakenStates<'_> {
    fn keep(&mut self) {
        self.put_back(DirState::keep);
    }
}

impl Drop for TakenStates<'_> {
    fn drop(&mut self) {
        self.put_back(DirState::roll_back);
    }
}
