//! The journal as the engine's log. Each checkpoint is a jbd2 transaction.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use disk::BlockDevice;
use engine::locks::Mutex;
use engine::{Checkpoint, Fit, Log, Size, spread};
use vfs::{Error, Result};

use super::map::JournalMap;
use super::recover::{Resume, read_journal_superblock, write_journal_superblock};
use super::writer::{BUFFER_BYTES, IMAGES_PER_THREAD, TransactionWriter, blocks_of};
use crate::format::features::Incompat;
use crate::format::jbd2::{Commit, JournalLayout, JournalSuperblock, Tid};
use crate::format::superblock::Superblock;
use crate::params::clock::Clock;

/// Maximum share of the log for one checkpoint, in sixteenths. With a larger share, a block changes more often before
/// it is written once.
const CHECKPOINT_SHARE: u32 = 7;
/// Blocks must be written back if more than this many sixteenths of the log are in use. The last checkpoint alone must
/// stay below it, because it remains in the log until the next one is there. There must also be room after the next
/// checkpoint, for changes that arrive while it is being closed.
const SHORT_SHARE: u32 = 8;
const _: () = assert!(CHECKPOINT_SHARE < SHORT_SHARE && CHECKPOINT_SHARE + SHORT_SHARE < 16);

/// Number of the engine's first checkpoint.
const FIRST_SEQUENCE: u64 = 1;

/// A transaction in the log.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// The engine's number of the checkpoint.
    sequence: u64,
    tid: Tid,
    /// Its first journal block.
    start: u32,
}

struct JournalState {
    sb: JournalSuperblock,
    /// Position of the next transaction.
    head: u32,
    /// Number of the next transaction.
    next: Tid,
    /// Number of log blocks in use.
    used: u32,
    /// The transactions in the log, oldest first.
    live: VecDeque<Live>,
    /// True if the superblock on the device refers to the oldest of them.
    is_started: bool,
    buffer: Vec<u8>,
}

/// The journal of a file system that is open for writing.
///
/// The log is empty on the device (`s_start` is 0) until the first transaction is written, and again when the tail has
/// advanced past all transactions.
pub struct Journal {
    device: Arc<dyn BlockDevice>,
    map: JournalMap,
    blocks_max: usize,
    log_blocks: u32,
    clock: Clock,
    state: Mutex<JournalState>,
}

impl Journal {
    /// Opens the journal at `map` of the file system with the superblock `sb`. Its log must be empty
    /// ([`recover`](super::recover()) empties it), unless recovery returned `resume`: the first checkpoint then becomes
    /// the transaction that replaces the fast commits.
    ///
    /// Writes nothing. The first transaction sets the journal features that this file system requires: revokes, 64-bit
    /// block numbers, checksums of version 3.
    ///
    /// # Errors
    /// `Unsupported` if the log is not empty; `Corrupt` if the journal's superblock is invalid.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        map: JournalMap,
        sb: &Superblock,
        resume: Option<Resume>,
    ) -> Result<Self> {
        let mut journal = read_journal_superblock(&*device, &map)?;
        let mut live = VecDeque::new();
        let (head, next, used) = match (journal.start, resume) {
            (None, _) => {
                journal
                    .modernize(sb.features.incompat(Incompat::BIT64), sb.features.metadata_csum());
                // The log may still contain blocks of the transaction that the superblock names, so start with the next
                // number.
                (journal.log.start, journal.sequence.next(), 0)
            }
            (Some(start), Some(Resume { head, next })) => {
                // The transactions that recovery left are older than every checkpoint.
                live.push_back(Live { sequence: 0, tid: journal.sequence, start });
                let log_blocks = journal.log_blocks();
                let used = (head + log_blocks - start) % log_blocks;
                (head, next, used)
            }
            (Some(_), None) => {
                return Err(Error::unsupported(
                    "a journal that must be replayed",
                    "replay it first",
                ));
            }
        };
        let log_blocks = journal.log_blocks();
        let is_started = !live.is_empty();
        let blocks_max = images_in(&journal.layout, log_blocks / 16 * CHECKPOINT_SHARE);
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        let state = JournalState { sb: journal, head, next, used, live, is_started, buffer };
        let (clock, state) = (Clock::default(), Mutex::new(state));
        Ok(Self { device, map, blocks_max, log_blocks, clock, state })
    }

    /// Takes the times of commits from `clock`.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    fn commit_time(&self) -> Commit {
        let now = self.clock.now();
        Commit { sec: now.as_secs(), nsec: now.subsec_nanos() }
    }

    /// Empties the log. Its blocks must already be written back durably.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(&self) -> Result<()> {
        self.advance_tail(u64::MAX)?;
        self.device.flush().map_err(Error::Device)
    }

    /// Writes a transaction durably. It contains the images that `images` passes to its argument, and revokes for the
    /// blocks in `freed`.
    ///
    /// # Errors
    /// If the device fails or the log has no room. Recovery does not find the transaction in that case.
    pub fn append(
        &self,
        sequence: u64,
        freed: &[u64],
        images: impl FnOnce(&mut dyn FnMut(u64, &[u8]) -> engine::Result<()>) -> engine::Result<()>,
    ) -> engine::Result<()> {
        self.write_transaction(sequence, freed, |writer| {
            images(&mut |block, image| writer.image(block, image))
        })
    }

    fn write_transaction(
        &self,
        sequence: u64,
        freed: &[u64],
        add_images: impl FnOnce(&mut TransactionWriter<'_>) -> engine::Result<()>,
    ) -> engine::Result<()> {
        let mut state = self.state.lock();
        let JournalState { sb, head, next, used, live, is_started, buffer } = &mut *state;
        let (start, tid) = (*head, *next);
        // One block stays free: a full log would look like an empty one.
        let room = self.log_blocks - *used - 1;
        let memory = std::mem::take(buffer);
        let mut writer =
            TransactionWriter::new(&*self.device, &self.map, sb, memory, tid, (start, room));
        add_images(&mut writer)?;
        writer.revokes(freed)?;
        writer.finish_blocks()?;
        if !*is_started {
            // Recovery finds no transaction here until the commit block is written.
            let mut first = sb.clone();
            first.raw.start = start.into();
            first.raw.sequence = tid.0.into();
            write_journal_superblock(&*self.device, &self.map, &mut first)?;
        }
        self.device.barrier()?;
        let ((end, room_left), memory) = writer.commit(self.commit_time())?;
        self.device.flush()?;
        *buffer = memory;
        *is_started = true;
        *used += room - room_left;
        *head = end;
        *next = tid.next();
        live.push_back(Live { sequence, tid, start });
        Ok(())
    }

    /// Updates the tail of the log on the device.
    fn write_tail(&self, state: &mut JournalState) -> io::Result<()> {
        let tail = state.live.front().copied();
        state.sb.raw.start = tail.map_or(0, |tail| tail.start).into();
        state.sb.raw.sequence = tail.map_or(state.next, |tail| tail.tid).0.into();
        write_journal_superblock(&*self.device, &self.map, &mut state.sb)?;
        // The new tail must be durable before the old one is overwritten.
        self.device.barrier()
    }
}

impl Log for Journal {
    fn blocks_max(&self) -> usize {
        self.blocks_max
    }

    fn write(&self, checkpoint: &Checkpoint<'_>) -> engine::Result<()> {
        self.write_transaction(checkpoint.sequence(), checkpoint.freed(), |writer| {
            let parts =
                writer.split_off(checkpoint.len(), checkpoint.threads(IMAGES_PER_THREAD))?;
            let rest = parts.last().map_or(0, |(range, _)| range.end)..checkpoint.len();
            let written = spread(parts.len(), parts, |(range, mut part)| {
                checkpoint.for_each_of(range, |of| part.image(of.block, of.data))?;
                part.finish_part()
            });
            written.into_iter().collect::<engine::Result<()>>()?;
            checkpoint.for_each_of(rest, |of| writer.image(of.block, of.data))
        })
    }

    fn fit(&self, size: Size) -> Fit {
        let state = self.state.lock();
        let taken = u64::from(state.used) + blocks_of(&state.sb.layout, size);
        if taken >= self.log_blocks.into() {
            Fit::Not
        } else if taken > u64::from(self.log_blocks / 16 * SHORT_SHARE) {
            Fit::Alone
        } else {
            Fit::WithAnother
        }
    }

    fn advance_tail(&self, sequence: u64) -> engine::Result<()> {
        let mut state = self.state.lock();
        if sequence == FIRST_SEQUENCE && state.live.iter().all(|live| live.sequence < sequence) {
            // Transactions left by recovery stay valid until the first checkpoint is in the log, which has room for
            // them.
            return Ok(());
        }
        let forgotten = state.live.iter().take_while(|live| live.sequence < sequence).count();
        if forgotten == 0 {
            return Ok(());
        }
        state.live.drain(..forgotten);
        let blocks = self.log_blocks;
        match state.live.front() {
            Some(tail) => state.used = (state.head + blocks - tail.start) % blocks,
            None => (state.used, state.is_started) = (0, false),
        }
        Ok(self.write_tail(&mut state)?)
    }
}

/// Returns the maximum number of images in a checkpoint of `share` log blocks. If some of its blocks are revokes
/// instead of images, it needs no more.
fn images_in(layout: &JournalLayout, share: u32) -> usize {
    let fits = |images| blocks_of(layout, Size { images, freed: 0 }) <= u64::from(share);
    let (mut most, mut too_many) = (0, share as usize + 1);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if fits(middle) { most = middle } else { too_many = middle }
    }
    most
}

#[cfg(test)]
mod tests {
    use disk::MemoryDevice;
    use vfs::Timestamp;

    use super::*;
    use crate::mkfs::{self, FeatureChange, Options, PreviousContents};
    use crate::params::read_superblock;

    fn journal(block_size: u32, features: &str) -> Journal {
        open(Arc::new(made(block_size, features)))
    }

    /// Returns a file system with a journal.
    fn made(block_size: u32, features: &str) -> MemoryDevice {
        let options = Options {
            block_size: Some(block_size),
            journal_bytes: Some(1031 * u64::from(block_size)),
            features: FeatureChange::parse_list(features).unwrap(),
            ..Options::new(6000 * u64::from(block_size))
        };
        let device = MemoryDevice::new(options.size_bytes);
        mkfs::format(&device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
        device
    }

    fn open(device: Arc<MemoryDevice>) -> Journal {
        let sb = read_superblock(&*device).unwrap();
        let map = JournalMap::read(&*device, &sb).unwrap().unwrap();
        Journal::open(device, map, &sb, None).unwrap()
    }

    /// Numbers of images around which another descriptor or another buffer begins.
    fn edges(layout: &JournalLayout) -> Vec<usize> {
        let (tags, buffer) = (layout.tags_max(), BUFFER_BYTES / layout.block_size);
        let around = |edge: usize| edge.saturating_sub(2)..=edge + 2;
        [0, tags, 2 * tags, buffer.abs_diff(tags), buffer, buffer + tags, 900]
            .map(around)
            .into_iter()
            .flatten()
            .collect()
    }

    #[test]
    fn a_checkpoint_uses_the_announced_number_of_blocks() {
        for block_size in [1024, 2048, 4096] {
            for features in
                ["", "^metadata_csum,^orphan_file", "^metadata_csum,^orphan_file,^64bit"]
            {
                let journal = journal(block_size, features);
                let layout = journal.state.lock().sb.layout;
                let image = vec![7; layout.block_size];
                let revokes = layout.revokes_max();
                for images in edges(&layout) {
                    for freed in [0, 1, revokes, revokes + 1] {
                        let announced = blocks_of(&layout, Size { images, freed });
                        if announced >= 1000 {
                            continue;
                        }
                        let freed: Vec<u64> = (0..freed as u64).collect();
                        journal
                            .append(1, &freed, |each| {
                                (0..images as u64).try_for_each(|b| each(b, &image))
                            })
                            .unwrap();
                        let what = format!("{images} images in {block_size}, {features}");
                        assert_eq!(u64::from(journal.state.lock().used), announced, "{what}");
                        journal.close().unwrap();
                    }
                }
            }
        }
    }

    /// Several threads write the same blocks as one, except that a checksum over the whole transaction is computed by
    /// one.
    #[test]
    fn a_transaction_has_the_same_blocks_with_any_number_of_threads() {
        for (block_size, features) in
            [(1024, ""), (4096, ""), (4096, "^metadata_csum,^orphan_file")]
        {
            let made = made(block_size, features);
            for images in [100, 255, 509, 510, 511, 800] {
                let written = |threads| {
                    let journal = open(Arc::new(made.fork()));
                    let image_of = |block: usize| vec![block as u8; block_size as usize];
                    let write = |writer: &mut TransactionWriter<'_>| {
                        let parts = writer.split_off(images, threads)?;
                        let rest = parts.last().map_or(0, |(range, _)| range.end)..images;
                        // The last part first: parts do not depend on each other.
                        for (range, mut part) in parts.into_iter().rev() {
                            for block in range {
                                part.image(block as u64, &image_of(block))?;
                            }
                            part.finish_part()?;
                        }
                        rest.into_iter().try_for_each(|b| writer.image(b as u64, &image_of(b)))
                    };
                    let journal = journal.with_clock(Clock { fixed: Some(Timestamp::default()) });
                    journal.write_transaction(1, &[1, 2], write).unwrap();
                    let mut bytes = vec![0; journal.device.len() as usize];
                    journal.device.read_at(0, &mut bytes).unwrap();
                    bytes
                };
                let alone = written(1);
                for threads in 2..5 {
                    let what = format!("{images} images of {block_size} bytes, {threads} threads");
                    assert!(written(threads) == alone, "{what}");
                }
            }
        }
    }

    /// The last block of the log stays free, and everything that fits is written.
    #[test]
    fn capacity_is_exact_to_the_block() {
        let journal = journal(1024, "");
        let layout = journal.state.lock().sb.layout;
        let image = vec![7; 1024];
        let write = |sequence: u64, images: usize| {
            journal
                .append(sequence, &[], |each| (0..images as u64).try_for_each(|b| each(b, &image)))
        };
        let fit = |images| journal.fit(Size { images, freed: 0 });
        write(1, 300).unwrap();
        let used = u64::from(journal.state.lock().used);
        let room = u64::from(journal.log_blocks) - 1 - used;
        let fits = |images: &usize| blocks_of(&layout, Size { images: *images, freed: 0 }) <= room;
        let most = (0..1030).rfind(fits).unwrap();
        assert_eq!((fit(most), fit(most + 1)), (Fit::Alone, Fit::Not));
        assert_eq!((fit(1), fit(300)), (Fit::WithAnother, Fit::Alone));
        assert!(write(2, most + 1).is_err());
        write(2, most).unwrap();
        assert_eq!(fit(0), Fit::Not);
    }
}
