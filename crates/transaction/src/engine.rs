//! The engine: a device seen through the cache, and the checkpoint lock that makes checkpoints consistent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use blockdev::BlockDevice;
use crossbeam_utils::CachePadded;

use crate::ahead::Ahead;
use crate::buffer::{BufferRef, Changed, Contents, Epoch, Tag, WriteGuard};
use crate::cache::Cache;
use crate::checkpoint::{Log, Writer};
use crate::checkpoint_lock::CheckpointLock;
use crate::gather::Gathering;
use crate::guard::Guard;
use crate::locks::atomic::{AtomicU64, AtomicUsize};
use crate::locks::{ArcRwLockWriteGuard, Mutex};
use crate::permits::{Admission, Permits};
use crate::{Corruption, Result, Txn};

/// What the engine must know of an on-disk format: how to check a block and how to finish it.
pub trait Format: Send + Sync {
    /// Checks a block that was just read.
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> std::result::Result<(), Corruption>;

    /// Checks a block that is about to be written, but for its checksum, and brings that up to date. What is
    /// refused here is a fault of whoever changed the block: the engine stops, and nothing of the checkpoint
    /// is written. So it must let pass whatever [`Format::verify`] does and no change of a block makes wrong;
    /// `changed` tells what else can have been changed since the block was read or written last.
    fn seal(
        &self,
        tag: Tag,
        block: u64,
        changed: Changed,
        data: &mut [u8],
    ) -> std::result::Result<(), Corruption>;

    /// Brings into the blocks what the file system keeps in memory only (summary counts). Called
    /// with no other transaction open, before each checkpoint is closed. What goes into many blocks can
    /// be joined to the checkpoint in parts ([`Txn::join_part`]). A failure stops the engine.
    fn flush_deferred(&self, txn: &mut Txn<'_>) -> Result<()>;

    /// Blocks, at most, that [`Format::flush_deferred`] would change and that may not have changed yet. They count
    /// as dirty: a checkpoint is closed before they are too many. Asked after each transaction, so it must
    /// be quick.
    fn deferred_blocks(&self) -> usize {
        0
    }

    /// The checkpoint that was closed last is durable. Not called on an engine without a log.
    fn durable(&self) {}
}

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Block size in bytes, a power of two from 1024.
    pub block_size: usize,
    /// Memory for cached blocks, in bytes. Half of it may be dirty.
    pub cache_bytes: usize,
}

/// A device seen through cache and transactions.
pub struct Engine {
    /// The same as `guard`.
    device: Arc<dyn BlockDevice>,
    pub(crate) guard: Arc<Guard>,
    format: Arc<dyn Format>,
    log: Option<Box<dyn Log>>,
    block_size: usize,
    pub(crate) cache: Cache,
    pub(crate) checkpoint_lock: CheckpointLock,
    /// The running checkpoint. Changes only under the exclusive checkpoint lock.
    pub(crate) running: AtomicU64,
    /// The last checkpoint that has a transaction which is not minor ([`Txn::set_minor`]).
    pub(crate) needed: AtomicU64,
    /// Serialises checkpoints: one is written at a time.
    pub(crate) writer: CachePadded<Mutex<Writer>>,
    /// Blocks whose contents the running checkpoint gave up. Apart from what every operation reads.
    pub(crate) freed: CachePadded<Mutex<Vec<u64>>>,
    pub(crate) dirty_blocks: CachePadded<AtomicUsize>,
    dirty_blocks_max: usize,
    dirty_blocks_hard: usize,
    /// Blocks that may wait in memory for their write-back.
    pub(crate) logged_blocks_max: usize,
    /// How many transactions may be open, where the log is small.
    pub(crate) permits: Option<Permits>,
    /// Whether what the last checkpoint left of a block is kept when the block changes, so that the log can
    /// be emptied before the next one: where the log may not have room for both.
    pub(crate) keeps_last: bool,
    /// Only where the device is slow to read.
    ahead: Option<Box<Ahead>>,
    /// Only where it is slow to flush.
    pub(crate) gathering: Option<Box<Gathering>>,
}

impl Engine {
    /// An engine over `device`. Without a `log` a crash may leave any mixture of old and new
    /// blocks: only for images nobody relies on until they are finished.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        format: Arc<dyn Format>,
        log: Option<Box<dyn Log>>,
        options: Options,
    ) -> Self {
        let blocks = (options.cache_bytes / options.block_size).max(64);
        let log_blocks = log.as_ref().map_or(usize::MAX, |log| log.blocks_max());
        let permits = Permits::for_log(log_blocks);
        let ahead = Ahead::of(&*device);
        let gathering = device.has_long_flushes().then(Box::default);
        let guard = Arc::new(Guard::new(device));
        Self {
            device: guard.clone(),
            guard,
            format,
            log,
            block_size: options.block_size,
            cache: Cache::new(blocks),
            checkpoint_lock: CheckpointLock::default(),
            running: AtomicU64::new(1),
            needed: AtomicU64::new(0),
            writer: CachePadded::default(),
            freed: CachePadded::default(),
            dirty_blocks: CachePadded::default(),
            // Less than what a checkpoint may have, because more comes in until it is closed.
            dirty_blocks_max: (blocks / 2).min(log_blocks / 8 * 7),
            dirty_blocks_hard: (blocks / 4 * 3).min(log_blocks / 16 * 15),
            logged_blocks_max: blocks / 4,
            keeps_last: permits.is_some(),
            ahead,
            gathering,
            permits,
        }
    }

    /// The device below. A write to it that fails ends all changes, as [`Engine::check_alive`] says.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Whether it is worth saying what will be read: [`BlockDevice::read_ahead`].
    pub fn reads_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Contents of a file are about to be read from the device: more may be wanted.
    pub fn note_reading(&self, offset: u64, len: u64) {
        if let Some(ahead) = &self.ahead {
            ahead.data(&*self.device, offset, len);
        }
    }

    /// Block size in bytes.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    pub(crate) fn format(&self) -> &dyn Format {
        &*self.format
    }

    pub(crate) fn log(&self) -> Option<&dyn Log> {
        self.log.as_deref()
    }

    /// Whether changes become durable in a log before they are written back.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Checkpoints that were closed since the engine was made: with a log, two changes between which none was closed
    /// become durable in the same moment.
    pub fn checkpoints_closed(&self) -> u64 {
        self.running_epoch() - 1
    }

    /// The most blocks that a checkpoint may have; no limit without a log.
    pub fn log_blocks_max(&self) -> usize {
        self.log().map_or(usize::MAX, Log::blocks_max)
    }

    pub(crate) fn running_epoch(&self) -> Epoch {
        self.running.load(Ordering::Acquire)
    }

    /// Holds a verified block for reading. Must not be called for a block that a transaction of
    /// the same thread holds: ask the transaction.
    pub fn read(&self, block: u64, tag: Tag) -> Result<BufferRef> {
        let buffer = self.cache.get(block);
        let guard = buffer.read_arc();
        if guard.loaded && guard.tag == tag {
            return Ok(BufferRef(guard));
        }
        drop(guard);
        let mut guard = buffer.write_arc();
        self.load(&mut guard, tag)?;
        Ok(BufferRef(ArcRwLockWriteGuard::downgrade(guard)))
    }

    /// Holds a verified block for a transaction.
    pub(crate) fn lock(&self, block: u64, tag: Tag) -> Result<WriteGuard> {
        let mut guard = self.cache.get(block).write_arc();
        if !guard.loaded || guard.tag != tag {
            self.load(&mut guard, tag)?;
        }
        Ok(guard)
    }

    /// Reads a block that is not loaded, and verifies it. A loaded block that is asked for as
    /// something else than it was is verified as that: two structures claim it.
    fn load(&self, contents: &mut Contents, tag: Tag) -> Result<()> {
        let block = contents.block;
        if contents.loaded {
            if contents.tag != tag {
                self.format.verify(tag, block, &contents.data)?;
                if contents.dirty == 0 {
                    contents.tag = tag;
                }
            }
            return Ok(());
        }
        if contents.data.len() != self.block_size {
            contents.data = vec![0; self.block_size].into();
        }
        contents.note.clear();
        let offset = block.checked_mul(self.block_size as u64);
        let offset = offset.ok_or_else(|| Corruption::new("block number", "past any device"))?;
        if let Some(ahead) = &self.ahead {
            ahead.metadata(&*self.device, offset, self.block_size as u64);
        }
        self.device.read_at(offset, &mut contents.data)?;
        self.format.verify(tag, block, &contents.data)?;
        contents.tag = tag;
        contents.loaded = true;
        Ok(())
    }

    /// Opens a transaction. Fails once something could not be written.
    pub fn begin(&self) -> Result<Txn<'_>> {
        self.check_alive()?;
        let permit = self.permits.as_ref().map(Permits::take);
        Ok(Txn::new(
            self,
            Some(Admission { checkpoint_lock: self.checkpoint_lock.shared(), permit }),
        ))
    }

    /// Fails once something could not be written, as [`Engine::begin`] does: for what is written with no
    /// transaction.
    pub fn check_alive(&self) -> Result<()> {
        self.guard.check_changes()
    }

    /// Ends all changes because of `fault`, which every later one is refused with: for what is found to be
    /// wrong before it gets into the checkpoint. What was done before may still become durable.
    pub fn refuse_changes(&self, fault: &Corruption) {
        self.guard.refuse(fault);
    }

    fn dirty_or_deferred(&self) -> usize {
        self.dirty_blocks.load(Ordering::Relaxed).saturating_add(self.format.deferred_blocks())
    }

    /// Whether so much is dirty that a checkpoint is due.
    pub(crate) fn over_dirty_limit(&self) -> bool {
        self.dirty_or_deferred() > self.dirty_blocks_max
    }

    /// Whether so much is dirty that threads must wait for the checkpoint being written.
    pub(crate) fn over_hard_limit(&self) -> bool {
        self.dirty_or_deferred() > self.dirty_blocks_hard
    }
}
