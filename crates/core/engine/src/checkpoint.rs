//! Checkpoints: the changes of many transactions, made durable together.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::buffer::{BufferState, Epoch, SharedBuffer, Tag};
use crate::engine::Engine;
use crate::spread::spread;
use crate::{Error, Result, Txn};

/// Maximum number of bytes that adjoining blocks are gathered into one write.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Minimum number of blocks per thread for updating their states after a checkpoint.
const STATES_PER_THREAD: usize = 2048;
/// Minimum number of blocks per thread for writing back.
const WRITES_PER_THREAD: usize = 512;

/// Destination of checkpoints before their blocks are written back. The engine calls it from one thread at a time.
pub trait Log: Send + Sync {
    /// Target size of a checkpoint in blocks, changed and freed ones together. The log has room for two of this size,
    /// plus the blocks that join while a checkpoint is being closed.
    fn blocks_max(&self) -> usize;

    /// Makes a checkpoint durable. On return, recovery replays all of it, and every earlier write to the device is
    /// durable as well.
    fn write(&self, checkpoint: &Checkpoint<'_>) -> Result<()>;

    /// Returns whether a checkpoint fits into the log, and whether another one fits behind it. Called before the
    /// checkpoint is written. The answer is conservative.
    fn fit(&self, size: Size) -> Fit;

    /// Frees the log space of all checkpoints before number `sequence`: their blocks have been written back and
    /// flushed, or a later checkpoint contains them. `sequence` is one more than the last checkpoint if the log becomes
    /// empty.
    fn advance_tail(&self, sequence: u64) -> Result<()>;
}

/// Upper bound of the size of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of changed blocks.
    pub images: usize,
    /// Number of freed blocks.
    pub freed: usize,
}

/// Free space of the log relative to a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The checkpoint fits, and another one of the maximum size behind it.
    WithAnother,
    /// The checkpoint fits. Write-back must follow it, so it contains whole blocks and the log can forget all
    /// checkpoints before it.
    Alone,
    /// The checkpoint may not fit. Blocks must be written back first.
    Not,
}

/// A closed checkpoint, as passed to the log.
pub struct Checkpoint<'c> {
    engine: &'c Engine,
    epoch: Epoch,
    buffers: &'c [(u64, SharedBuffer)],
    freed: &'c [u64],
    /// True if the log will forget the checkpoints before it.
    is_whole: bool,
}

/// A block as of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct BlockImage<'i> {
    /// Block number.
    pub block: u64,
    /// Type of the block.
    pub tag: Tag,
    /// The 64ths of the block (bit 0 is the first) that must be in the log, for logs that can write parts. All bits are
    /// set if the log keeps no earlier whole image of the block; otherwise the changed parts.
    pub pieces: u64,
    /// Sealed contents: verified, with a valid checksum.
    pub data: &'i [u8],
}

impl Checkpoint<'_> {
    /// Number of blocks that the checkpoint changed.
    #[expect(clippy::len_without_is_empty, reason = "a checkpoint may have freed blocks only")]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the maximum number of threads for writing the checkpoint.
    pub fn threads_max(&self) -> usize {
        self.engine.threads.max()
    }

    /// Returns the number of threads for its blocks, if a thread should get at least `least` of them.
    pub fn threads(&self, least: usize) -> usize {
        self.engine.threads.for_work(self.len(), least)
    }

    /// Calls `each` with every block that the checkpoint changed, in ascending order.
    pub fn for_each(&self, each: impl FnMut(BlockImage<'_>) -> Result<()>) -> Result<()> {
        self.for_each_of(0..self.len(), each)
    }

    /// Like [`Checkpoint::for_each`], with the blocks at these indexes. Several threads may read separate parts of a
    /// checkpoint at the same time.
    ///
    /// # Panics
    /// If the range exceeds the length.
    pub fn for_each_of(
        &self,
        range: Range<usize>,
        mut each: impl FnMut(BlockImage<'_>) -> Result<()>,
    ) -> Result<()> {
        for (block, buffer) in &self.buffers[range] {
            let found = self.engine.with_image(buffer, self.epoch, |mut image| {
                debug_assert_eq!(image.block, *block, "a buffer belongs to one block");
                if self.is_whole {
                    image.pieces = u64::MAX;
                }
                each(image)
            })?;
            if found.is_none() {
                return Err(io::Error::other("a block left its checkpoint").into());
            }
        }
        Ok(())
    }

    /// Metadata blocks that were freed and not reused as metadata, ascending.
    pub fn freed(&self) -> &[u64] {
        self.freed
    }

    /// Number of the checkpoint, incremented with each one.
    pub fn sequence(&self) -> u64 {
        self.epoch
    }
}

/// State of the thread that writes checkpoints; only one thread does at a time.
#[derive(Default)]
pub(crate) struct CheckpointWriter {
    /// The last durable checkpoint.
    durable: Epoch,
    /// Buffers whose last durable image is in the log only. The references keep them in the cache.
    logged: Vec<(u64, SharedBuffer)>,
    /// Buffers of a checkpoint whose write failed. The references keep them in the cache.
    unwritten: Vec<(u64, SharedBuffer)>,
}

/// A closed checkpoint: its number, changed blocks and freed blocks.
type Closed = (Epoch, Vec<(u64, SharedBuffer)>, Vec<u64>);

impl Engine {
    /// Makes all committed transactions durable. The calling thread must not have an open transaction, because it would
    /// deadlock.
    ///
    /// After an earlier write error it still writes what it can, and returns an error all the same: every caller is
    /// notified of the loss.
    pub fn checkpoint(&self) -> Result<()> {
        self.write_up_to(self.running_epoch())?;
        self.check_alive()
    }

    /// Makes checkpoint `wanted` durable, together with other callers if the device has slow flushes. Returns whether
    /// this thread wrote it; then its earlier direct writes to the device are durable, too.
    fn write_up_to(&self, wanted: Epoch) -> Result<bool> {
        let mut is_written = false;
        let mut write = || {
            let mut writer = self.writer.lock();
            // Another thread may have written it during the wait.
            is_written = writer.durable < wanted;
            if is_written {
                self.guarded(|| self.write_checkpoint(&mut writer))?;
            }
            Ok(writer.durable)
        };
        match &self.gathering {
            Some(gathering) => gathering.share(wanted, write)?,
            None => write().map(drop)?,
        }
        Ok(is_written)
    }

    /// Makes durable all committed transactions and all writes that bypassed transactions. A failed flush stops the
    /// engine, like a failed checkpoint.
    pub fn sync(&self) -> Result<()> {
        self.checkpoint()?;
        // With a log, writing the checkpoint has flushed all earlier writes.
        if self.has_log() { Ok(()) } else { self.guarded(|| Ok(self.device().flush()?)) }
    }

    /// Like [`Engine::sync`], but changes of minor transactions since the last checkpoint may stay volatile
    /// ([`Txn::set_minor`]). If there are no others, it only flushes the device.
    pub fn sync_data(&self) -> Result<()> {
        // Deferred changes may be of any kind.
        if !self.has_log() || self.format().deferred_blocks() > 0 {
            return self.sync();
        }
        let needed = self.needed.load(Ordering::Acquire);
        if !self.write_up_to(needed)? {
            self.guarded(|| Ok(self.device().flush()?))?;
        }
        self.check_alive()
    }

    /// Records that a transaction that is not minor is about to join the running checkpoint, which cannot be closed at
    /// this point.
    pub(crate) fn note_needed(&self) {
        let running = self.running_epoch();
        // Read first, so that the cache line is not written by each transaction.
        if self.needed.load(Ordering::Relaxed) < running {
            self.needed.fetch_max(running, Ordering::AcqRel);
        }
    }

    /// Makes all committed transactions durable, writes them back and empties the log.
    pub fn empty_log(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.guarded(|| {
            self.write_checkpoint(&mut writer)?;
            self.write_logged_home(&mut writer, None)?;
            self.device().flush()?;
            Ok(())
        })?;
        self.check_alive()
    }

    /// Stops the engine as a failure does, after the checkpoint that is being written. Changes that are not durable are
    /// lost.
    pub fn stop(&self) {
        let _writer = self.writer.lock();
        self.guard.fail();
    }

    /// Runs a write that must not fail half way. A failure stops the engine.
    fn guarded(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        self.guard.check_checkpoint()?;
        write().inspect_err(|error| {
            if let Error::Corrupt(fault) = error {
                self.guard.refuse(fault);
            }
            self.guard.fail();
        })
    }

    /// Writes a checkpoint because too many blocks are dirty. If another thread is writing one, waits only above the
    /// hard limit.
    pub(crate) fn relieve(&self) {
        if self.writer.is_locked() && !self.over_hard_limit() {
            return;
        }
        let mut writer = self.writer.lock();
        if self.over_dirty_limit() {
            // The guard records a failure, and the next transaction returns it.
            let _ = self.guarded(|| self.write_checkpoint(&mut writer));
        }
    }

    fn write_checkpoint(&self, writer: &mut CheckpointWriter) -> Result<()> {
        let (epoch, mut buffers, freed) = self.close_checkpoint()?;
        let Some(log) = self.log() else {
            let sealed = self.seal_all(epoch, &mut buffers);
            let written = sealed.and_then(|()| self.write_back(epoch, &buffers));
            return self.end_checkpoint(writer, epoch, buffers, written);
        };
        if buffers.is_empty() && freed.is_empty() {
            self.device().flush()?;
            self.format().durable();
            writer.durable = epoch;
            return Ok(());
        }
        let written = self.write_to_log(log, writer, (epoch, &mut buffers, &freed));
        let is_whole = *written.as_ref().unwrap_or(&false);
        self.end_checkpoint(writer, epoch, buffers, written.map(drop))?;
        if is_whole { self.write_logged_home(writer, Some(epoch)) } else { Ok(()) }
    }

    /// Records that a checkpoint is durable. If its write failed, its buffers stay in the cache permanently: reads then
    /// return the changed state, not a mixture of it and of the device's contents.
    fn end_checkpoint(
        &self,
        writer: &mut CheckpointWriter,
        epoch: Epoch,
        buffers: Vec<(u64, SharedBuffer)>,
        written: Result<()>,
    ) -> Result<()> {
        if let Err(error) = written {
            writer.unwritten.extend(buffers);
            return Err(error);
        }
        if self.log().is_some() {
            self.format().durable();
            self.note_logged(writer, epoch, buffers);
        }
        writer.durable = epoch;
        Ok(())
    }

    /// Seals a checkpoint and writes it to the log, after a write-back if it may not fit. Returns whether it has whole
    /// images of all its blocks, so that the log can forget the checkpoints before it.
    fn write_to_log(
        &self,
        log: &dyn Log,
        writer: &mut CheckpointWriter,
        (epoch, buffers, freed): (Epoch, &mut Vec<(u64, SharedBuffer)>, &[u64]),
    ) -> Result<bool> {
        self.seal_all(epoch, buffers)?;
        let fit = log.fit(Size { images: buffers.len(), freed: freed.len() });
        if fit == Fit::Not {
            self.write_logged_home(writer, None)?;
        }
        let is_whole =
            fit != Fit::WithAnother || writer.logged.len() + buffers.len() > self.logged_blocks_max;
        log.write(&Checkpoint { engine: self, epoch, buffers, freed, is_whole })?;
        Ok(is_whole)
    }

    /// Writes back the blocks that are durable in the log and advances the tail. Blocks of the checkpoint numbered
    /// `spared` stay in the log: many of them will change again, and their next image is then written back instead.
    fn write_logged_home(
        &self,
        writer: &mut CheckpointWriter,
        spared: Option<Epoch>,
    ) -> Result<()> {
        let Some(log) = self.log() else { return Ok(()) };
        // The blocks of each checkpoint are in order, which this sort uses.
        writer.logged.sort_by_key(|&(block, _)| block);
        // The list keeps the buffers in the cache until the writes are complete: an evicted buffer would be read again
        // with its old contents. If a write fails, the list keeps them permanently for the same reason.
        let kept = self.write_home(&writer.logged, writer.durable, spared)?;
        let tail =
            kept.iter().flatten().min().copied().unwrap_or(Epoch::MAX).min(writer.durable + 1);
        let mut kept = kept.into_iter();
        writer.logged.retain(|_| kept.next().flatten().is_some());
        self.device().barrier()?;
        log.advance_tail(tail)
    }

    /// Writes back the blocks of `list` that the log may forget. Returns for each block the checkpoint of its image, if
    /// it remains in the log.
    fn write_home(
        &self,
        list: &[(u64, SharedBuffer)],
        durable: Epoch,
        spared: Option<Epoch>,
    ) -> Result<Vec<Option<Epoch>>> {
        let parts = self.threads.split(list, WRITES_PER_THREAD);
        let kept = spread(parts.len(), parts, |part| self.write_part_home(part, durable, spared));
        Ok(kept.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    fn write_part_home(
        &self,
        list: &[(u64, SharedBuffer)],
        durable: Epoch,
        spared: Option<Epoch>,
    ) -> Result<Vec<Option<Epoch>>> {
        let mut run = WriteBack::new(self);
        let mut kept = Vec::with_capacity(list.len());
        for (at, (block, buffer)) in list.iter().enumerate() {
            let next = list.get(at + 1).map(|&(next, _)| next);
            let mut contents = buffer.write();
            // An image may be dropped only after the checkpoint that forgot the block is durable.
            let is_gone = contents.forgotten != 0 && contents.forgotten <= durable;
            let is_changed = contents.dirty != 0 || contents.forgotten > durable;
            let is_spared = Some(contents.logged) == spared;
            if !is_gone && !is_spared {
                if let Some(image) = &contents.write_back {
                    run.add(*block, image, next)?;
                } else if !is_changed {
                    run.add(*block, &contents.data, next)?;
                }
            }
            let is_home = contents.write_back.is_some() || !is_changed;
            if is_gone || (is_home && !is_spared) {
                contents.write_back = None;
                contents.logged = 0;
                if is_gone {
                    contents.forgotten = 0;
                }
                kept.push(None);
            } else {
                kept.push(Some(contents.logged));
            }
        }
        run.write()?;
        Ok(kept)
    }

    /// Ends the running checkpoint and starts the next one.
    fn close_checkpoint(&self) -> Result<Closed> {
        let checkpoint_lock = self.checkpoint_lock.exclusive();
        let mut txn = Txn::new(self, None);
        self.format().flush_deferred(&mut txn)?;
        txn.commit();
        let mut buffers = self.cache.take_dirty();
        let mut freed = std::mem::take(&mut *self.freed.lock());
        self.dirty_blocks.store(0, Ordering::Relaxed);
        let epoch = self.running.fetch_add(1, Ordering::AcqRel);
        drop(checkpoint_lock);

        buffers.sort_unstable_by_key(|&(block, _)| block);
        // A block that was freed, reused and changed again is in the list once for each use.
        buffers.dedup_by_key(|&mut (block, _)| block);
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|&block| !is_dirty_in(&buffers, block, epoch));
        Ok((epoch, buffers, freed))
    }

    /// Marks the buffers of a durable checkpoint as clean and waiting for write-back.
    fn note_logged(
        &self,
        writer: &mut CheckpointWriter,
        epoch: Epoch,
        buffers: Vec<(u64, SharedBuffer)>,
    ) {
        let parts = self.threads.split(&buffers, STATES_PER_THREAD);
        let newly_logged = spread(parts.len(), parts, |part| -> Vec<_> {
            part.iter().map(|(_, buffer)| self.note_block_logged(epoch, buffer)).collect()
        });
        let newly_logged = newly_logged.into_iter().flatten();
        let newly_logged = buffers.into_iter().zip(newly_logged).filter(|(_, is_new)| *is_new);
        writer.logged.extend(newly_logged.map(|(buffer, _)| buffer));
    }

    /// Marks a buffer of a durable checkpoint as clean. Returns whether it begins to wait for write-back.
    fn note_block_logged(&self, epoch: Epoch, buffer: &SharedBuffer) -> bool {
        let mut contents = buffer.write();
        // The buffer has changed since. The frozen image may have to be written back.
        let frozen = contents.frozen.take().filter(|_| self.keeps_last);
        clean(&mut contents, epoch);
        let is_listed = contents.logged != 0;
        contents.logged = epoch;
        contents.write_back = frozen.map(|frozen| frozen.data);
        !is_listed
    }

    /// Calls `use_image` with the sealed image of a buffer as of checkpoint `epoch`. Does nothing if the checkpoint
    /// forgot the block, or if (without a log) the block belongs to a later checkpoint.
    fn with_image<R>(
        &self,
        buffer: &SharedBuffer,
        epoch: Epoch,
        use_image: impl FnOnce(BlockImage<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let contents = buffer.read();
        let block = contents.block;
        // If the log has any image of the block, it also has a whole one, which it keeps as long.
        let pieces = |changed| if contents.logged == 0 { u64::MAX } else { changed };
        if let Some(frozen) = &contents.frozen {
            let (tag, pieces) = (frozen.tag, pieces(frozen.chunks));
            return use_image(BlockImage { block, tag, pieces, data: &frozen.data }).map(Some);
        }
        if contents.dirty != epoch {
            return Ok(None);
        }
        let (tag, pieces) = (contents.tag, pieces(contents.chunks));
        use_image(BlockImage { block, tag, pieces, data: &contents.data }).map(Some)
    }

    /// Writes the blocks of a checkpoint in place.
    fn write_back(&self, epoch: Epoch, buffers: &[(u64, SharedBuffer)]) -> Result<()> {
        let mut run = WriteBack::new(self);
        for (at, (block, buffer)) in buffers.iter().enumerate() {
            let next = buffers.get(at + 1).map(|&(next, _)| next);
            self.with_image(buffer, epoch, |image| run.add(*block, image.data, next))?;
            // From here on a change makes the buffer dirty again. The list keeps it in the cache until the run is
            // written.
            clean(&mut buffer.write(), epoch);
        }
        run.write()
    }
}

/// Adjoining blocks that are written back in one write.
struct WriteBack<'e> {
    engine: &'e Engine,
    offset: u64,
    bytes: Vec<u8>,
}

impl<'e> WriteBack<'e> {
    fn new(engine: &'e Engine) -> Self {
        Self { engine, offset: 0, bytes: Vec::new() }
    }

    /// Adds a block. A block that adjoins neither the run nor `next`, the block that may follow, is written
    /// immediately, without a copy.
    fn add(&mut self, block: u64, data: &[u8], next: Option<u64>) -> Result<()> {
        let offset = block * self.engine.block_size() as u64;
        let end = self.offset + self.bytes.len() as u64;
        if offset != end || self.bytes.len() >= WRITE_BYTES_MAX {
            self.write()?;
            if next != Some(block + 1) {
                return Ok(self.engine.device().write_at(offset, data)?);
            }
            self.offset = offset;
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.engine.device().write_at(self.offset, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

fn clean(contents: &mut BufferState, epoch: Epoch) {
    contents.frozen = None;
    if contents.dirty == epoch {
        contents.dirty = 0;
        contents.chunks = 0;
    }
}

fn is_dirty_in(buffers: &[(u64, SharedBuffer)], block: u64, epoch: Epoch) -> bool {
    buffers.binary_search_by_key(&block, |&(b, _)| b).is_ok_and(|at| {
        let contents: &Arc<_> = &buffers[at].1;
        let contents = contents.read();
        contents.dirty == epoch || contents.frozen.is_some()
    })
}
