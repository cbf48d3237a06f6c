//! Checkpoints: what many transactions changed, made durable as one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::buffer::{Contents, Epoch, Shared, Tag};
use crate::engine::Engine;
use crate::{Error, Result, Txn};

/// Bytes gathered before adjoining blocks are written together.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Where checkpoints become durable before their blocks are written back. The engine calls it from one thread
/// at a time.
pub trait Log: Send + Sync {
    /// The most blocks, changed and freed ones together, that a checkpoint should have. Two of
    /// this size fit, with room for what comes in while one is being closed.
    fn blocks_max(&self) -> usize;

    /// Makes a checkpoint durable: when it returns, recovery would bring all of it back, and every
    /// write to the device before the call is durable too.
    fn write(&self, checkpoint: &Checkpoint<'_>) -> Result<()>;

    /// Asked before a checkpoint is written: whether it fits beside what is in the log, and another one
    /// after it. Never too hopeful: what this says fits does.
    fn fit(&self, size: Size) -> Fit;

    /// The blocks of all checkpoints before the one numbered `sequence` are home and durable there,
    /// or stand in a later one: their space in the log is free. `sequence` is one more than the
    /// last checkpoint's if the log has nothing any more.
    fn advance_tail(&self, sequence: u64) -> Result<()>;
}

/// How much a checkpoint has, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Blocks that it changed.
    pub images: usize,
    /// Blocks that it gave up.
    pub freed: usize,
}

/// What room a log has for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// For it, and for one after it that is as large as may be.
    WithAnother,
    /// For it. Write-back must follow it: the log can forget all checkpoints before it then, and so it has
    /// whole blocks.
    Alone,
    /// Perhaps not even for it. Blocks must be written back first.
    Not,
}

/// A closed checkpoint, as the log sees it.
pub struct Checkpoint<'c> {
    engine: &'c Engine,
    epoch: Epoch,
    buffers: &'c [(u64, Shared)],
    freed: &'c [u64],
    /// Whether the log will forget the checkpoints before it.
    is_whole: bool,
}

/// A block as a checkpoint left it.
#[derive(Clone, Copy, Debug)]
pub struct Image<'i> {
    /// Its number.
    pub block: u64,
    /// What it is.
    pub tag: Tag,
    /// The 64ths of it (bit 0 is the first) that a log must write which can write parts: all, if the log
    /// has no whole image of the block from before that it will keep; else those that changed.
    pub pieces: u64,
    /// Its sealed contents: verified, with the checksum brought up to date.
    pub data: &'i [u8],
}

impl Checkpoint<'_> {
    /// Calls `each` with every block the checkpoint changed, in ascending order.
    pub fn for_each(&self, mut each: impl FnMut(Image<'_>) -> Result<()>) -> Result<()> {
        for (block, buffer) in self.buffers {
            self.engine.with_image(buffer, self.epoch, |mut image| {
                debug_assert_eq!(image.block, *block, "a buffer is one block's");
                if self.is_whole {
                    image.pieces = u64::MAX;
                }
                each(image)
            })?;
        }
        Ok(())
    }

    /// The most blocks `for_each` will report.
    pub fn blocks_max(&self) -> usize {
        self.buffers.len()
    }

    /// Metadata blocks that were freed and not used as metadata again, ascending.
    pub fn freed(&self) -> &[u64] {
        self.freed
    }

    /// Number of the checkpoint, growing by one.
    pub fn sequence(&self) -> u64 {
        self.epoch
    }
}

/// What the one thread that writes checkpoints knows.
#[derive(Default)]
pub(crate) struct Writer {
    /// The last checkpoint that is durable.
    durable: Epoch,
    /// Buffers whose last durable image is in the log only. Being here keeps them in the cache.
    logged: Vec<(u64, Shared)>,
    /// Buffers of a checkpoint that could not be written. Being here keeps them in the cache.
    unwritten: Vec<(u64, Shared)>,
}

/// A checkpoint that was closed: its number, the blocks that it changed and those that it gave up.
type Closed = (Epoch, Vec<(u64, Shared)>, Vec<u64>);

impl Engine {
    /// Makes everything committed so far durable. The calling thread must have no open
    /// transaction: it would wait for itself.
    ///
    /// If something else could not be written before, this is still done where it can be, and fails all the
    /// same: every caller learns that something was lost.
    pub fn checkpoint(&self) -> Result<()> {
        self.write_up_to(self.running_epoch())?;
        self.check_alive()
    }

    /// Makes `wanted` durable, together with others who want that where the device is slow. Whether this thread has
    /// written it: then what it wrote to the device before is durable, too.
    fn write_up_to(&self, wanted: Epoch) -> Result<bool> {
        let mut is_written = false;
        let mut write = || {
            let mut writer = self.writer.lock();
            // Another thread may have written it while this one waited.
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

    /// Makes durable what was committed and what was written to the device without a transaction. A flush
    /// that fails stops the engine, as a checkpoint that does.
    pub fn sync(&self) -> Result<()> {
        self.checkpoint()?;
        // With a log, a checkpoint has flushed what was written before it.
        if self.has_log() { Ok(()) } else { self.guarded(|| Ok(self.device().flush()?)) }
    }

    /// As [`Engine::sync`], but what minor transactions changed since the last checkpoint may stay behind
    /// ([`Txn::set_minor`]). Without other ones it is a flush of the device.
    pub fn sync_data(&self) -> Result<()> {
        // What is deferred may be of any kind.
        if !self.has_log() || self.format().deferred_blocks() > 0 {
            return self.sync();
        }
        let needed = self.needed.load(Ordering::Acquire);
        if !self.write_up_to(needed)? {
            self.guarded(|| Ok(self.device().flush()?))?;
        }
        self.check_alive()
    }

    /// A transaction that is not minor is about to join the running checkpoint, which cannot be closed yet.
    pub(crate) fn note_needed(&self) {
        let running = self.running_epoch();
        // Read first: threads would pass the line around with each transaction.
        if self.needed.load(Ordering::Relaxed) < running {
            self.needed.fetch_max(running, Ordering::AcqRel);
        }
    }

    /// Makes everything committed so far durable, brings all of it home and empties the log.
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

    /// Stops the engine as a failure does, once the checkpoint that is being written, if one is, is done.
    /// What is not durable then never becomes so.
    pub fn stop(&self) {
        let _writer = self.writer.lock();
        self.guard.fail();
    }

    /// Runs what must not fail half way: if it does, the engine stops.
    fn guarded(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        self.guard.check_checkpoint()?;
        write().inspect_err(|error| {
            if let Error::Corrupt(fault) = error {
                self.guard.refuse(fault);
            }
            self.guard.fail();
        })
    }

    /// Writes a checkpoint because too much is dirty. If another thread is at it already, this one
    /// waits only where memory would run over otherwise.
    pub(crate) fn relieve(&self) {
        if self.writer.is_locked() && !self.over_hard_limit() {
            return;
        }
        let mut writer = self.writer.lock();
        if self.over_dirty_limit() {
            // A failure is remembered; the next transaction reports it.
            let _ = self.guarded(|| self.write_checkpoint(&mut writer));
        }
    }

    fn write_checkpoint(&self, writer: &mut Writer) -> Result<()> {
        let (epoch, buffers, freed) = self.close_checkpoint()?;
        let Some(log) = self.log() else {
            let written =
                self.seal_all(epoch, &buffers).and_then(|()| self.write_back(epoch, &buffers));
            return self.end_checkpoint(writer, epoch, buffers, written);
        };
        if buffers.is_empty() && freed.is_empty() {
            self.device().flush()?;
            self.format().durable();
            writer.durable = epoch;
            return Ok(());
        }
        let written = self.write_to_log(log, writer, (epoch, &buffers, &freed));
        let is_whole = *written.as_ref().unwrap_or(&false);
        self.end_checkpoint(writer, epoch, buffers, written.map(drop))?;
        if is_whole { self.write_logged_home(writer, Some(epoch)) } else { Ok(()) }
    }

    /// Notes that a checkpoint is durable. If it is not, its buffers stay in the cache for good: what is read
    /// from now on is what was changed, not a mixture of that and of what the device has.
    fn end_checkpoint(
        &self,
        writer: &mut Writer,
        epoch: Epoch,
        buffers: Vec<(u64, Shared)>,
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

    /// Whether the log has whole images of all blocks, so that it can forget the checkpoints before.
    fn write_to_log(
        &self,
        log: &dyn Log,
        writer: &mut Writer,
        (epoch, buffers, freed): (Epoch, &[(u64, Shared)], &[u64]),
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

    /// Brings home what is durable in the log, and lets the log forget it. What the checkpoint
    /// numbered `spared` left stays: much of it will change again, and then goes with its next image.
    fn write_logged_home(&self, writer: &mut Writer, spared: Option<Epoch>) -> Result<()> {
        let Some(log) = self.log() else { return Ok(()) };
        writer.logged.sort_unstable_by_key(|&(block, _)| block);
        // The list keeps the buffers in the cache until all is on the device: one that went before
        // would be read again as it was. If writing fails it keeps them for good, for the same reason.
        let kept = self.write_home(&writer.logged, writer.durable, spared)?;
        let logged = kept.iter().map(|(logged, _)| *logged);
        let tail = logged.min().unwrap_or(Epoch::MAX).min(writer.durable + 1);
        let mut kept = kept.into_iter().map(|(_, at)| at).peekable();
        let mut at = 0;
        writer.logged.retain(|_| {
            at += 1;
            kept.next_if_eq(&(at - 1)).is_some()
        });
        self.device().barrier()?;
        log.advance_tail(tail)
    }

    /// Writes home what the log may forget of `list`. Which of it stays: the checkpoint that has its image,
    /// and its place in the list.
    fn write_home(
        &self,
        list: &[(u64, Shared)],
        durable: Epoch,
        spared: Option<Epoch>,
    ) -> Result<Vec<(Epoch, usize)>> {
        let mut run = Run::new(self);
        let mut kept = Vec::new();
        for (at, (block, buffer)) in list.iter().enumerate() {
            let next = list.get(at + 1).map(|&(next, _)| next);
            let mut contents = buffer.write();
            // Only with what gave a block up durable may its image be dropped.
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
                continue;
            }
            kept.push((contents.logged, at));
        }
        run.write()?;
        Ok(kept)
    }

    /// Ends the running checkpoint and starts the next.
    fn close_checkpoint(&self) -> Result<Closed> {
        let checkpoint_lock = self.checkpoint_lock.exclusive();
        let mut txn = Txn::new(self, None);
        self.format().flush_deferred(&mut txn)?;
        txn.commit();
        let dirty = self.cache.take_dirty();
        let mut freed = std::mem::take(&mut *self.freed.lock());
        self.dirty_blocks.store(0, Ordering::Relaxed);
        let epoch = self.running.fetch_add(1, Ordering::AcqRel);
        drop(checkpoint_lock);

        let mut buffers: Vec<_> = dirty
            .into_iter()
            .map(|buffer| {
                let block = buffer.read().block;
                (block, buffer)
            })
            .collect();
        buffers.sort_unstable_by_key(|&(block, _)| block);
        // A block freed, used again and dirtied again stands in the list once for each life.
        buffers.dedup_by_key(|&mut (block, _)| block);
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|&block| !is_dirty_in(&buffers, block, epoch));
        Ok((epoch, buffers, freed))
    }

    /// A checkpoint is durable: its buffers are clean, but for their write-back.
    fn note_logged(&self, writer: &mut Writer, epoch: Epoch, buffers: Vec<(u64, Shared)>) {
        for (block, buffer) in buffers {
            let mut contents = buffer.write();
            let in_checkpoint = contents.frozen.is_some() || contents.dirty == epoch;
            // It has been changed since. What was written is what may have to be written back.
            let frozen = contents.frozen.take().filter(|_| self.keeps_last);
            clean(&mut contents, epoch);
            if !in_checkpoint {
                continue;
            }
            let is_listed = contents.logged != 0;
            contents.logged = epoch;
            contents.write_back = frozen.map(|frozen| frozen.data);
            drop(contents);
            if !is_listed {
                writer.logged.push((block, buffer));
            }
        }
    }

    /// Calls `use_image` with the sealed image of a buffer as checkpoint `epoch` left it. Does
    /// nothing if the checkpoint gave the block up, or if (without a log) a later one has it.
    fn with_image<R>(
        &self,
        buffer: &Shared,
        epoch: Epoch,
        use_image: impl FnOnce(Image<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let contents = buffer.read();
        let block = contents.block;
        // Where the log has one image of the block, it has a whole one, which it keeps as long.
        let pieces = |changed| if contents.logged == 0 { u64::MAX } else { changed };
        if let Some(frozen) = &contents.frozen {
            let (tag, pieces) = (frozen.tag, pieces(frozen.chunks));
            return use_image(Image { block, tag, pieces, data: &frozen.data }).map(Some);
        }
        if contents.dirty != epoch {
            return Ok(None);
        }
        let (tag, pieces) = (contents.tag, pieces(contents.chunks));
        use_image(Image { block, tag, pieces, data: &contents.data }).map(Some)
    }

    /// Writes the blocks of a checkpoint to their places.
    fn write_back(&self, epoch: Epoch, buffers: &[(u64, Shared)]) -> Result<()> {
        let mut run = Run::new(self);
        for (at, (block, buffer)) in buffers.iter().enumerate() {
            let next = buffers.get(at + 1).map(|&(next, _)| next);
            self.with_image(buffer, epoch, |image| run.add(*block, image.data, next))?;
            // From here on a change makes the buffer dirty again; the list keeps it in the cache
            // until the run is written.
            clean(&mut buffer.write(), epoch);
        }
        run.write()
    }
}

/// Adjoining blocks that are written back together.
struct Run<'e> {
    engine: &'e Engine,
    offset: u64,
    bytes: Vec<u8>,
}

impl<'e> Run<'e> {
    fn new(engine: &'e Engine) -> Self {
        Self { engine, offset: 0, bytes: Vec::new() }
    }

    /// Adds a block. One that adjoins neither those before it nor `next`, which may come after it, is written at
    /// once, without being copied first.
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

fn clean(contents: &mut Contents, epoch: Epoch) {
    contents.frozen = None;
    if contents.dirty == epoch {
        contents.dirty = 0;
        contents.chunks = 0;
    }
}

fn is_dirty_in(buffers: &[(u64, Shared)], block: u64, epoch: Epoch) -> bool {
    buffers.binary_search_by_key(&block, |&(b, _)| b).is_ok_and(|at| {
        let contents: &Arc<_> = &buffers[at].1;
        let contents = contents.read();
        contents.dirty == epoch || contents.frozen.is_some()
    })
}
