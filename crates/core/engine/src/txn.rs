//! Transactions: held buffers with their old bytes, all or nothing.

use std::cell::Cell;
use std::ops::Range;

use crate::buffer::{Note, Tag, WriteGuard, chunk_bits};
use crate::engine::Engine;
use crate::locks::ArcRwLockWriteGuard;
use crate::permits::Admission;
use crate::spread::spread;
use crate::{Corruption, Result};

/// A buffer held by a transaction. Valid in that transaction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(u32);

struct HeldBuffer {
    guard: WriteGuard,
    block: u64,
    changed: u64,
    forgotten: bool,
    /// Created by this transaction: no old bytes need to be saved.
    created: bool,
}

/// A change to undo.
enum Undo {
    /// `old[from..from + len]` are the old bytes at `offset`.
    Bytes { held: u32, offset: u32, len: u32, from: usize },
    /// `len` bytes were moved from `source` to `target`. `old[from..from + kept]` are the overwritten bytes at
    /// `kept_at`.
    Moved { held: u32, source: u32, target: u32, len: u32, kept_at: u32, kept: u32, from: usize },
    /// The buffer was created over a loaded one, whose bytes are `old[from..]`.
    Replaced { held: u32, tag: Tag, from: usize },
    /// The buffer had another tag.
    Retagged { held: u32, tag: Tag },
    /// The buffer was created and had not been loaded.
    Created { held: u32 },
}

/// Memory of transactions, which each thread keeps for the next one, so that a transaction does not allocate.
#[derive(Default)]
struct Scratch {
    held: Vec<HeldBuffer>,
    undo: Vec<Undo>,
    old: Vec<u8>,
}

/// Memory for old bytes above this size is freed when the transaction ends.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static SCRATCH: Cell<Scratch> =
        const { Cell::new(Scratch { held: Vec::new(), undo: Vec::new(), old: Vec::new() }) };
}

/// An open transaction. Dropping it without [`Txn::commit`] restores all old bytes.
pub struct Txn<'e> {
    engine: &'e Engine,
    checkpoint_lock: Option<Admission<'e>>,
    scratch: Scratch,
    committed: bool,
    is_minor: bool,
}

impl<'e> Txn<'e> {
    pub(crate) fn new(engine: &'e Engine, checkpoint_lock: Option<Admission<'e>>) -> Self {
        let scratch = SCRATCH.take();
        Self { engine, checkpoint_lock, scratch, committed: false, is_minor: false }
    }

    /// Holds `block`, verified as `tag`, until the transaction ends. Returns the same buffer for a block that is
    /// already held.
    pub fn buffer(&mut self, block: u64, tag: Tag) -> Result<BufferId> {
        if let Some(id) = self.find(block) {
            let held = &self.scratch.held[id.0 as usize];
            if !held.guard.loaded {
                // Forgotten without having been read: only damage refers to it again.
                let damage =
                    Corruption::new("block", "one operation frees the block and uses it again");
                return Err(damage.at_block(block).into());
            }
            if held.guard.tag != tag {
                self.engine.format().verify(tag, block, &held.guard.data)?;
            }
            return Ok(id);
        }
        let guard = self.engine.lock(block, tag)?;
        Ok(self.hold(block, guard))
    }

    /// Holds `block` as a new, zero-filled block, without reading it.
    pub fn create(&mut self, block: u64, tag: Tag) -> Result<BufferId> {
        let id = match self.find(block) {
            Some(id) => id,
            None => {
                let guard = self.engine.cache.get(block).write_arc();
                self.hold(block, guard)
            }
        };
        let running = self.engine.running_epoch();
        let has_log = self.engine.log().is_some();
        let Scratch { held, undo, old } = &mut self.scratch;
        let held_buffer = &mut held[id.0 as usize];
        let contents = &mut *held_buffer.guard;
        if has_log {
            contents.freeze_before(running, self.engine.keeps_last);
        }
        if contents.loaded {
            let from = old.len();
            old.extend_from_slice(&contents.data);
            undo.push(Undo::Replaced { held: id.0, tag: contents.tag, from });
            contents.data.fill(0);
        } else {
            undo.push(Undo::Created { held: id.0 });
            if contents.data.len() == self.engine.block_size() {
                contents.data.fill(0);
            } else {
                contents.data = vec![0; self.engine.block_size()].into();
            }
        }
        contents.loaded = true;
        contents.note.clear();
        contents.tag = tag;
        held_buffer.changed = u64::MAX;
        held_buffer.forgotten = false;
        held_buffer.created = true;
        Ok(id)
    }

    /// Returns whether this transaction holds `block`. Such a block must not be read through the engine.
    pub fn holds(&self, block: u64) -> bool {
        self.find(block).is_some()
    }

    fn find(&self, block: u64) -> Option<BufferId> {
        self.scratch.held.iter().position(|h| h.block == block).map(|at| BufferId(at as u32))
    }

    fn hold(&mut self, block: u64, guard: WriteGuard) -> BufferId {
        let id = BufferId(self.scratch.held.len() as u32);
        self.scratch.held.push(HeldBuffer {
            guard,
            block,
            changed: 0,
            forgotten: false,
            created: false,
        });
        id
    }

    /// Returns the bytes of a held buffer.
    pub fn data(&self, id: BufferId) -> &[u8] {
        &self.scratch.held[id.0 as usize].guard.data
    }

    /// Returns the block number of a held buffer.
    pub fn block(&self, id: BufferId) -> u64 {
        self.scratch.held[id.0 as usize].block
    }

    /// Returns the bytes of `range` for changes. Saves their old values.
    ///
    /// # Panics
    /// If the range exceeds the block.
    pub fn edit(&mut self, id: BufferId, range: Range<usize>) -> &mut [u8] {
        self.forget_note(id);
        self.edit_noted(id, range)
    }

    /// Like [`Txn::edit`], but keeps the block's note: it stays valid, or the caller updates it.
    ///
    /// # Panics
    /// If the range exceeds the block.
    pub fn edit_noted(&mut self, id: BufferId, range: Range<usize>) -> &mut [u8] {
        let Scratch { held, undo, old } = &mut self.scratch;
        let held = &mut held[id.0 as usize];
        if held.changed == 0 && self.engine.has_log() {
            held.guard.freeze_before(self.engine.running_epoch(), self.engine.keeps_last);
        }
        let bytes = &mut held.guard.data;
        if held.created {
            return &mut bytes[range];
        }
        held.changed |= chunk_bits(range.clone(), bytes.len());
        let from = old.len();
        let bytes = &mut bytes[range.clone()];
        old.extend_from_slice(bytes);
        let (offset, len) = (range.start as u32, bytes.len() as u32);
        undo.push(Undo::Bytes { held: id.0, offset, len, from });
        bytes
    }

    /// Returns the note of a held buffer, which describes its current bytes.
    pub fn note(&self, id: BufferId) -> Option<&Note> {
        self.scratch.held[id.0 as usize].guard.note.get()
    }

    /// Returns the note for an update together with [`Txn::edit_noted`].
    pub fn note_mut(&mut self, id: BufferId) -> Option<&mut Note> {
        self.scratch.held[id.0 as usize].guard.note.get_mut()
    }

    /// Sets the note of a held buffer.
    pub fn set_note(&mut self, id: BufferId, note: Note) {
        self.scratch.held[id.0 as usize].guard.note.set(note);
    }

    /// Adds marks to a held buffer, which describe its current bytes (see [`BufferRef::marks`]).
    ///
    /// [`BufferRef::marks`]: crate::BufferRef::marks
    pub fn mark(&mut self, id: BufferId, marks: u64) {
        self.scratch.held[id.0 as usize].guard.note.mark(marks);
    }

    /// Discards the note of a held buffer.
    pub fn forget_note(&mut self, id: BufferId) {
        self.scratch.held[id.0 as usize].guard.note.clear();
    }

    /// Moves the bytes of `source` to `target`, which may overlap. Like an [`Txn::edit`] of the target, but saves only
    /// the bytes that the move overwrites for good.
    ///
    /// # Panics
    /// If source or target exceeds the block.
    pub fn shift(&mut self, id: BufferId, source: Range<usize>, target: usize) {
        self.forget_note(id);
        let running = self.engine.running_epoch();
        let has_log = self.engine.log().is_some();
        let Scratch { held, undo, old } = &mut self.scratch;
        let held = &mut held[id.0 as usize];
        if has_log && held.changed == 0 {
            held.guard.freeze_before(running, self.engine.keeps_last);
        }
        let bytes = &mut held.guard.data;
        if held.created {
            bytes.copy_within(source, target);
            return;
        }
        let len = source.len();
        let moved = target..target + len;
        held.changed |= chunk_bits(moved.clone(), bytes.len());
        let lost = if target < source.start {
            moved.start..moved.end.min(source.start)
        } else {
            moved.start.max(source.end)..moved.end
        };
        let from = old.len();
        old.extend_from_slice(&bytes[lost.clone()]);
        bytes.copy_within(source.clone(), target);
        undo.push(Undo::Moved {
            held: id.0,
            source: source.start as u32,
            target: target as u32,
            len: len as u32,
            kept_at: lost.start as u32,
            kept: lost.len() as u32,
            from,
        });
    }

    /// Changes the tag of a held buffer, for example when a leaf becomes a root. The caller changes the bytes with
    /// [`Txn::edit`].
    pub fn retag(&mut self, id: BufferId, tag: Tag) {
        let running = self.engine.running_epoch();
        let has_log = self.engine.log().is_some();
        let Scratch { held, undo, .. } = &mut self.scratch;
        let held_buffer = &mut held[id.0 as usize];
        let is_first = held_buffer.changed == 0;
        let contents = &mut *held_buffer.guard;
        // A checkpoint that is being written has the block with the old tag.
        if has_log && is_first {
            contents.freeze_before(running, self.engine.keeps_last);
        }
        contents.note.clear();
        undo.push(Undo::Retagged { held: id.0, tag: contents.tag });
        contents.tag = tag;
    }

    /// Forgets the contents of a metadata block that is being freed: they need not be written any more, and the log
    /// must not replay them. The block is held until the transaction ends, and is not read if it was not held already.
    pub fn forget(&mut self, block: u64) {
        let id = match self.find(block) {
            Some(id) => id,
            None => {
                let guard = self.engine.cache.get(block).write_arc();
                self.hold(block, guard)
            }
        };
        self.scratch.held[id.0 as usize].forgotten = true;
    }

    /// Marks the transaction as minor: file contents can be read without its changes (such as times of inodes), so
    /// [`Engine::sync_data`] need not make them durable.
    pub fn set_minor(&mut self) {
        self.is_minor = true;
    }

    /// Joins the changes to the running checkpoint. If too many blocks are dirty, writes a checkpoint before it
    /// returns; the next [`Engine::begin`] returns an error of that.
    pub fn commit(mut self) {
        self.committed = true;
        let engine = self.engine;
        if !self.is_minor {
            engine.note_needed();
        }
        self.join();
        let is_operation = self.checkpoint_lock.take().is_some();
        drop(self);
        if is_operation && engine.over_dirty_limit() {
            engine.relieve();
        }
    }

    /// Returns the number of blocks that the transaction holds.
    pub fn blocks_held(&self) -> usize {
        self.scratch.held.len()
    }

    /// Joins the changes so far to the running checkpoint, releases all buffers and continues as a new transaction. So
    /// [`BlockFormat::flush_deferred`] can change any number of blocks without holding them all. Buffer IDs from before the
    /// call are invalid.
    ///
    /// Readers do not wait for the checkpoint lock, so each part must be consistent by itself. All other transactions
    /// must be whole.
    ///
    /// [`BlockFormat::flush_deferred`]: crate::BlockFormat::flush_deferred
    pub fn join_part(&mut self) {
        debug_assert!(self.checkpoint_lock.is_none(), "an operation cannot be joined in parts");
        self.join();
        self.scratch.undo.clear();
        self.scratch.old.clear();
    }

    /// Returns the number of threads of [`Txn::spread`] for `amount` units of work, if a thread should get at least
    /// `least` of them.
    pub fn threads_for(&self, amount: usize, least: usize) -> usize {
        self.engine.threads.for_work(amount, least)
    }

    /// Joins the changes so far, as [`Txn::join_part`] does, and calls `work` with each of `parts` and with a transaction
    /// that joins afterwards. The parts run on several threads, so they must not need the same blocks.
    ///
    /// # Errors
    /// The error of the first part that fails. Others may have joined.
    pub fn spread<P: Send>(
        &mut self,
        parts: Vec<P>,
        work: impl Fn(P, &mut Txn<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        self.join_part();
        let engine = self.engine;
        let outcomes = spread(engine.threads.max(), parts, |part| {
            let mut txn = Txn::new(engine, None);
            work(part, &mut txn)?;
            txn.commit();
            Ok(())
        });
        outcomes.into_iter().collect()
    }

    fn join(&mut self) {
        let engine = self.engine;
        let running = engine.running_epoch();
        let mut newly_dirty = 0;
        for held in self.scratch.held.drain(..) {
            newly_dirty += finish(engine, held, running);
        }
        if newly_dirty > 0 {
            engine.dirty_blocks.fetch_add(newly_dirty, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn roll_back(&mut self) {
        let Scratch { held, undo, old } = &mut self.scratch;
        for held in held.iter_mut().filter(|held| held.changed != 0) {
            held.guard.note.clear();
        }
        for step in undo.drain(..).rev() {
            match step {
                Undo::Bytes { held: at, offset, len, from } => {
                    let (offset, len) = (offset as usize, len as usize);
                    held[at as usize].guard.data[offset..offset + len]
                        .copy_from_slice(&old[from..from + len]);
                }
                Undo::Moved { held: at, source, target, len, kept_at, kept, from } => {
                    let data = &mut held[at as usize].guard.data;
                    let target = target as usize;
                    data.copy_within(target..target + len as usize, source as usize);
                    let (kept_at, kept) = (kept_at as usize, kept as usize);
                    data[kept_at..kept_at + kept].copy_from_slice(&old[from..from + kept]);
                }
                Undo::Replaced { held: at, tag, from } => {
                    let contents = &mut *held[at as usize].guard;
                    let len = contents.data.len();
                    contents.data.copy_from_slice(&old[from..from + len]);
                    contents.tag = tag;
                }
                Undo::Retagged { held: at, tag } => held[at as usize].guard.tag = tag,
                Undo::Created { held: at } => held[at as usize].guard.loaded = false,
            }
        }
        held.clear();
    }

    /// Adds the block number of a held buffer to `corruption`.
    pub fn corrupt(&self, id: BufferId, corruption: Corruption) -> Corruption {
        corruption.at_block(self.block(id))
    }
}

/// Releases a buffer of a committed transaction. Returns 1 if it became dirty.
fn finish(engine: &Engine, mut held: HeldBuffer, running: u64) -> usize {
    if held.forgotten {
        return give_up(engine, &mut held, running);
    }
    if held.changed == 0 {
        return 0;
    }
    let contents = &mut *held.guard;
    contents.forgotten = 0;
    if contents.dirty == running {
        contents.chunks |= held.changed;
        return 0;
    }
    contents.dirty = running;
    contents.chunks = held.changed;
    let buffer = ArcRwLockWriteGuard::rwlock(&held.guard).clone();
    engine.cache.add_dirty(held.block, &buffer);
    1
}

/// Releases the buffer of a freed block. Returns 1 if the log needs a revoke for it.
fn give_up(engine: &Engine, held: &mut HeldBuffer, running: u64) -> usize {
    let contents = &mut *held.guard;
    let in_log = engine.log().is_some() && contents.is_in_log(running);
    if in_log {
        contents.freeze_before(running, engine.keeps_last);
        contents.forgotten = running;
        engine.freed.lock().push(held.block);
    }
    contents.dirty = 0;
    contents.chunks = 0;
    contents.note.clear();
    contents.loaded = false;
    usize::from(in_log)
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.roll_back();
        }
        self.scratch.undo.clear();
        self.scratch.old.clear();
        self.scratch.old.shrink_to(SCRATCH_BYTES_MAX);
        SCRATCH.set(std::mem::take(&mut self.scratch));
    }
}
