//! The engine: a device accessed through the cache, and the checkpoint lock that keeps checkpoints consistent.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use disk::BlockDevice;

use crate::ahead::Ahead;
use crate::buffer::{BufferRef, BufferState, Changed, Epoch, Tag, WriteGuard};
use crate::cache::Cache;
use crate::checkpoint::{CheckpointWriter, Log};
use crate::checkpoint_lock::CheckpointLock;
use crate::gather::Gathering;
use crate::guard::Guard;
use crate::locks::atomic::{AtomicU64, AtomicUsize};
use crate::locks::{ArcRwLockWriteGuard, Mutex};
use crate::permits::{Admission, Permits};
use crate::spread::Threads;
use crate::{Corruption, Result, Txn};

/// Interface to an on-disk format: verification and sealing of blocks.
pub trait BlockFormat: Send + Sync {
    /// Verifies a block that was read.
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> std::result::Result<(), Corruption>;

    /// Verifies the structure of a block before it is written, and updates its checksum. An error indicates a bug in
    /// the code that changed the block: the engine stops, and nothing of the checkpoint is written. So it must accept
    /// every block that [`BlockFormat::verify`] accepts and that no change made invalid. `changed` contains the parts that
    /// may have changed since the block was read or written.
    fn seal(
        &self,
        tag: Tag,
        block: u64,
        changed: Changed,
        data: &mut [u8],
    ) -> std::result::Result<(), Corruption>;

    /// Writes state that the file system keeps in memory only (such as summary counts) into blocks. Called before each
    /// checkpoint is closed, without other open transactions. Changes of many blocks can join the checkpoint in parts
    /// ([`Txn::join_part`]). An error stops the engine.
    fn flush_deferred(&self, txn: &mut Txn<'_>) -> Result<()>;

    /// Returns an upper bound of the blocks that [`BlockFormat::flush_deferred`] would change and that may be clean now.
    /// They count as dirty when the size of a checkpoint is limited. Called after each transaction, so it must be fast.
    fn deferred_blocks(&self) -> usize {
        0
    }

    /// Called when the last closed checkpoint is durable. Not called on an engine without a log.
    fn durable(&self) {}
}

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Block size in bytes, a power of two, at least 1024.
    pub block_size: usize,
    /// Memory for cached blocks, in bytes. Up to half of it may be dirty before a checkpoint starts.
    pub cache_bytes: usize,
}

/// A device accessed through a cache and transactions.
pub struct Engine {
    /// The same object as `guard`.
    device: Arc<dyn BlockDevice>,
    pub(crate) guard: Arc<Guard>,
    format: Arc<dyn BlockFormat>,
    log: Option<Box<dyn Log>>,
    block_size: usize,
    pub(crate) cache: Cache,
    pub(crate) checkpoint_lock: CheckpointLock,
    /// Number of the running checkpoint. Changes only under the exclusive checkpoint lock.
    pub(crate) running: AtomicU64,
    /// The last checkpoint with a transaction that is not minor ([`Txn::set_minor`]).
    pub(crate) needed: AtomicU64,
    /// Serialises the writing of checkpoints.
    pub(crate) writer: CachePadded<Mutex<CheckpointWriter>>,
    /// Blocks that the running checkpoint forgot. On a separate cache line from the fields that every operation reads.
    pub(crate) freed: CachePadded<Mutex<Vec<u64>>>,
    pub(crate) dirty_blocks: CachePadded<AtomicUsize>,
    dirty_blocks_max: usize,
    dirty_blocks_hard: usize,
    /// Maximum number of blocks that wait in memory for write-back.
    pub(crate) logged_blocks_max: usize,
    /// Limit of open transactions, if the log is small.
    pub(crate) permits: Option<Permits>,
    /// True if the contents as of the last checkpoint are saved when a block changes, so that the log can be emptied
    /// before the next checkpoint. Set if the log may not have room for both.
    pub(crate) keeps_last: bool,
    /// Set if the device has slow reads.
    ahead: Option<Box<Ahead>>,
    pub(crate) threads: Threads,
    /// Set if the device has slow flushes.
    pub(crate) gathering: Option<Box<Gathering>>,
}

impl Engine {
    /// Creates an engine over `device`. Without a `log`, a crash may leave any mixture of old and new blocks, which is
    /// acceptable only for images in progress.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        format: Arc<dyn BlockFormat>,
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
            // Below the maximum of a checkpoint, because more blocks join until it is closed.
            dirty_blocks_max: (blocks / 2).min(log_blocks / 8 * 7),
            dirty_blocks_hard: (blocks / 4 * 3).min(log_blocks / 16 * 15),
            logged_blocks_max: blocks / 4,
            keeps_last: permits.is_some(),
            ahead,
            threads: Threads::default(),
            gathering,
            permits,
        }
    }

    /// Returns the underlying device. A failed write to it ends all changes, as described for [`Engine::check_alive`].
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns whether the device benefits from [`BlockDevice::read_ahead`].
    pub fn reads_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Records that contents of a file are about to be read from the device, and may start a read-ahead.
    pub fn note_reading(&self, offset: u64, len: u64) {
        if let Some(ahead) = &self.ahead {
            ahead.data(&*self.device, offset, len);
        }
    }

    /// Prefetches contents of files that a reader requests in its own order.
    pub fn request_contents(&self, offset: u64, len: u64) {
        if let Some(ahead) = &self.ahead {
            ahead.request(&*self.device, offset, len);
        }
    }

    /// Sets the number of threads for each step of a checkpoint, even of a small one. By default, large checkpoints use
    /// one thread for each processor, at most eight.
    pub fn set_checkpoint_threads(&self, count: Option<NonZeroUsize>) {
        self.threads.set(count);
    }

    /// Block size in bytes.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    pub(crate) fn format(&self) -> &dyn BlockFormat {
        &*self.format
    }

    pub(crate) fn log(&self) -> Option<&dyn Log> {
        self.log.as_deref()
    }

    /// Returns whether changes become durable in a log before they are written back.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Returns the number of checkpoints closed since the engine was created. With a log, two changes with the same
    /// count become durable at the same time.
    pub fn checkpoints_closed(&self) -> u64 {
        self.running_epoch() - 1
    }

    /// Returns the maximum number of blocks of a checkpoint; unlimited without a log.
    pub fn log_blocks_max(&self) -> usize {
        self.log().map_or(usize::MAX, Log::blocks_max)
    }

    pub(crate) fn running_epoch(&self) -> Epoch {
        self.running.load(Ordering::Acquire)
    }

    /// Locks a verified block for reading. Must not be called for a block held by a transaction of the same thread: use
    /// the transaction instead.
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

    /// Locks a verified block for a transaction.
    pub(crate) fn lock(&self, block: u64, tag: Tag) -> Result<WriteGuard> {
        let mut guard = self.cache.get(block).write_arc();
        if !guard.loaded || guard.tag != tag {
            self.load(&mut guard, tag)?;
        }
        Ok(guard)
    }

    /// Reads and verifies a block that is not loaded. A loaded block that is requested with another tag is verified
    /// under that tag, because two structures claim it.
    fn load(&self, contents: &mut BufferState, tag: Tag) -> Result<()> {
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
        let offset = offset
            .ok_or_else(|| Corruption::new("block number", "beyond the end of any device"))?;
        if let Some(ahead) = &self.ahead {
            ahead.metadata(&*self.device, offset, self.block_size as u64);
        }
        self.device.read_at(offset, &mut contents.data)?;
        self.format.verify(tag, block, &contents.data)?;
        contents.tag = tag;
        contents.loaded = true;
        Ok(())
    }

    /// Opens a transaction. Fails after a write error.
    pub fn begin(&self) -> Result<Txn<'_>> {
        self.check_alive()?;
        let permit = self.permits.as_ref().map(Permits::take);
        Ok(Txn::new(
            self,
            Some(Admission { checkpoint_lock: self.checkpoint_lock.shared(), permit }),
        ))
    }

    /// Fails after a write error, as [`Engine::begin`] does. For writes that bypass transactions.
    pub fn check_alive(&self) -> Result<()> {
        self.guard.check_changes()
    }

    /// Ends all changes because of `fault`, which later changes return as their error. For faults found before they
    /// enter the checkpoint. Earlier changes may still become durable.
    pub fn refuse_changes(&self, fault: &Corruption) {
        self.guard.refuse(fault);
    }

    fn dirty_or_deferred(&self) -> usize {
        self.dirty_blocks.load(Ordering::Relaxed).saturating_add(self.format.deferred_blocks())
    }

    /// Returns whether enough blocks are dirty to start a checkpoint.
    pub(crate) fn over_dirty_limit(&self) -> bool {
        self.dirty_or_deferred() > self.dirty_blocks_max
    }

    /// Returns whether threads must wait for the checkpoint that is being written, because too many blocks are dirty.
    pub(crate) fn over_hard_limit(&self) -> bool {
        self.dirty_or_deferred() > self.dirty_blocks_hard
    }
}
