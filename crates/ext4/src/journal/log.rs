//! The journal as the engine's log: checkpoints are transactions in it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use blockdev::BlockDevice;
use parking_lot::Mutex;
use transaction::{Checkpoint, Log};
use vfs::{Error, Result};

use super::map::JournalMap;
use super::recover::{Resume, read_journal_superblock, write_journal_superblock};
use super::writer::{BUFFER_BYTES, Writer};
use crate::clock::Clock;
use crate::format::features::Incompat;
use crate::format::jbd2::{Commit, JournalSuperblock, Layout, Tid};
use crate::format::superblock::Superblock;

/// What one checkpoint may take of the log, in sixteenths. The larger, the more often a block changes
/// before it is written once.
const CHECKPOINT_SHARE: u32 = 7;
/// With more than this many sixteenths taken, blocks must go home. The last checkpoint alone must not
/// take that much: it stays in the log until the next one is there. And there must be room left
/// beyond the next one, for what comes in while it is being closed.
const SHORT_SHARE: u32 = 8;
const _: () = assert!(CHECKPOINT_SHARE < SHORT_SHARE && CHECKPOINT_SHARE + SHORT_SHARE < 16);

/// A transaction in the log.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// The checkpoint's number, as the engine counts.
    sequence: u64,
    tid: Tid,
    /// The journal block it starts with.
    start: u32,
}

struct State {
    sb: JournalSuperblock,
    /// Where the next transaction goes.
    head: u32,
    /// Its number.
    next: Tid,
    /// Blocks of the log that are taken.
    used: u32,
    /// The transactions in the log, oldest first.
    live: VecDeque<Live>,
    /// Whether the superblock on the device leads to the oldest of them.
    is_started: bool,
    buffer: Vec<u8>,
}

/// The journal of a file system, open for writing.
///
/// The log is empty on the device (`s_start` 0) until the first transaction is written, and again
/// when all are retired.
pub struct Journal {
    device: Arc<dyn BlockDevice>,
    map: JournalMap,
    blocks_max: usize,
    log_blocks: u32,
    clock: Clock,
    state: Mutex<State>,
}

impl Journal {
    /// Opens the journal at `map` of the file system that `sb` describes. Its log must be empty
    /// ([`recover`](super::recover()) empties it), unless recovery handed out `resume`: then the
    /// first checkpoint becomes the transaction that replaces the fast commits.
    ///
    /// Nothing is written yet. With the first transaction the journal gets the features that this
    /// file system calls for: revokes, 64-bit block numbers, checksums of version 3.
    ///
    /// # Errors
    /// `Unsupported` if the log is not empty; `Corrupt` if the journal's superblock cannot be right.
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
                // Blocks of the transaction that the superblock names may still be in the log.
                (journal.log.start, journal.sequence.next(), 0)
            }
            (Some(start), Some(Resume { head, next })) => {
                // What recovery left is older than every checkpoint.
                live.push_back(Live { sequence: 0, tid: journal.sequence, start });
                let log_blocks = journal.log_blocks();
                let used = (head + log_blocks - start) % log_blocks;
                (head, next, used)
            }
            (Some(_), None) => {
                return Err(Error::unsupported(
                    "a journal with changes that are not in their places yet",
                    "it must be replayed first",
                ));
            }
        };
        let log_blocks = journal.log_blocks();
        let is_started = !live.is_empty();
        let blocks_max = blocks_max(&journal.layout, log_blocks / 16 * CHECKPOINT_SHARE);
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        let state = State { sb: journal, head, next, used, live, is_started, buffer };
        let (clock, state) = (Clock::default(), Mutex::new(state));
        Ok(Self { device, map, blocks_max, log_blocks, clock, state })
    }

    /// Takes the time of commits from `clock`.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    fn commit_time(&self) -> Commit {
        let now = self.clock.now();
        Commit { sec: now.as_secs(), nsec: now.subsec_nanos() }
    }

    /// Empties the log. Everything in it must be home, durably.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(&self) -> Result<()> {
        self.retire(u64::MAX)?;
        Ok(())
    }

    /// Writes a transaction, durably: the images that `images` passes to its argument, by block,
    /// and the blocks whose earlier images must not be replayed.
    ///
    /// # Errors
    /// If the device fails or the log has no room. The transaction is not in the log then, or only
    /// a part that recovery does not see.
    pub fn append(
        &self,
        sequence: u64,
        freed: &[u64],
        images: impl FnOnce(
            &mut dyn FnMut(u64, &[u8]) -> transaction::Result<()>,
        ) -> transaction::Result<()>,
    ) -> transaction::Result<()> {
        let mut state = self.state.lock();
        let State { sb, head, next, used, live, is_started, buffer } = &mut *state;
        let (start, tid) = (*head, *next);
        // One block stays free: a log that is full would look like an empty one.
        let room = self.log_blocks - *used - 1;
        let mut writer = Writer::new(&*self.device, &self.map, sb, buffer, tid, (start, room));
        images(&mut |block, image| writer.image(block, image))?;
        writer.revokes(freed)?;
        writer.finish_blocks()?;
        if !*is_started {
            // Until the commit block is there, recovery finds nothing at this place.
            let mut first = sb.clone();
            first.raw.start = start.into();
            first.raw.sequence = tid.0.into();
            write_journal_superblock(&*self.device, &self.map, &mut first)?;
        }
        self.device.flush()?;
        let (end, room_left) = writer.commit(self.commit_time())?;
        self.device.flush()?;
        *is_started = true;
        *used += room - room_left;
        *head = end;
        *next = tid.next();
        live.push_back(Live { sequence, tid, start });
        Ok(())
    }

    /// Moves the tail of the log on the device.
    fn write_tail(&self, state: &mut State) -> io::Result<()> {
        let tail = state.live.front().copied();
        state.sb.raw.start = tail.map_or(0, |tail| tail.start).into();
        state.sb.raw.sequence = tail.map_or(state.next, |tail| tail.tid).0.into();
        write_journal_superblock(&*self.device, &self.map, &mut state.sb)?;
        self.device.flush()
    }
}

impl Log for Journal {
    fn blocks_max(&self) -> usize {
        self.blocks_max
    }

    fn write(&self, checkpoint: &Checkpoint<'_>) -> transaction::Result<()> {
        self.append(checkpoint.sequence(), checkpoint.freed(), |image| {
            checkpoint.for_each(|of| image(of.block, of.data))
        })
    }

    fn is_short(&self, blocks: usize) -> bool {
        let state = self.state.lock();
        let room = (self.log_blocks / 16 * SHORT_SHARE).saturating_sub(state.used);
        blocks > blocks_max(&state.sb.layout, room)
    }

    fn retire(&self, sequence: u64) -> transaction::Result<()> {
        let mut state = self.state.lock();
        let retired = state.live.iter().take_while(|live| live.sequence < sequence).count();
        if retired == 0 {
            return Ok(());
        }
        state.live.drain(..retired);
        let blocks = self.log_blocks;
        match state.live.front() {
            Some(tail) => state.used = (state.head + blocks - tail.start) % blocks,
            None => (state.used, state.is_started) = (0, false),
        }
        Ok(self.write_tail(&mut state)?)
    }
}

/// The most blocks of a checkpoint, changed and freed ones together, that fit into `share` blocks
/// of the log with descriptors, revokes and commit.
fn blocks_max(layout: &Layout, share: u32) -> usize {
    // A descriptor is closed early where the buffer is full, once in so many images.
    let per_buffer = BUFFER_BYTES / layout.block_size - 1;
    let per_descriptor = layout.tags_max().min(per_buffer).max(1);
    // One descriptor that is not full, one revoke block that is not full, the commit block.
    let rest = (share as usize).saturating_sub(3);
    // Around the end of a buffer up to one more descriptor is begun.
    let with_descriptors = rest * per_descriptor / (per_descriptor + 2);
    with_descriptors.max(1)
}
