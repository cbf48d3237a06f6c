//! The first pass of recovery, which finds the end of the log.
//!
//! The log ends at the first block that does not continue the expected transaction. A transaction without its commit
//! block is ignored. A wrong checksum *inside* a committed transaction is damage, unless its commit block is older than
//! the one before: then all of it is left over from an earlier pass through the log.

use vfs::{Corruption, Error, Result};

use super::reader::JournalReader;
use crate::format::jbd2::{
    BlockType, Checksums, Commit, JournalSuperblock, Tid, Trust, crc32_be, header, tags,
};

/// End of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Sequence number after the last complete transaction.
    pub(super) end: Tid,
    /// Journal block after the last complete transaction.
    pub(super) head: u32,
    /// Journal block after the transaction before that one.
    head_before: u32,
    /// Number of complete transactions.
    pub(super) transactions: u32,
}

impl Extent {
    /// Returns the log without its last transaction.
    pub(super) fn without_last(self) -> Self {
        Self {
            end: self.end.previous(),
            head: self.head_before,
            head_before: self.head_before,
            transactions: self.transactions.saturating_sub(1),
        }
    }
}

/// A position in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) at: u32,
    pub(super) tid: Tid,
    /// Number of log blocks from here on until the log reaches its own start.
    left: u32,
}

impl Cursor {
    pub(super) fn new(sb: &JournalSuperblock, start: u32) -> Self {
        Self { at: start, tid: sb.sequence, left: sb.log_blocks() }
    }

    /// Advances by `count` blocks. Returns `None` if the log is too short.
    pub(super) fn advance(&mut self, sb: &JournalSuperblock, count: u32) -> Option<()> {
        self.left = self.left.checked_sub(count)?;
        self.at = sb.after(self.at, count);
        Some(())
    }
}

/// Returns damage in a block of the journal.
pub(super) fn damage_at(
    structure: &'static str,
    problem: &str,
    block: u32,
    tid: Tid,
) -> Corruption {
    Corruption::new(structure, format!("{problem} (journal block {block}, transaction {tid})"))
}

pub(super) struct Scan<'a, 'j> {
    sb: &'a JournalSuperblock,
    reader: &'a mut JournalReader<'j>,
    cursor: Cursor,
    extent: Extent,
    /// State of the version 1 checksum.
    crc: u32,
    /// Commit time of the last complete transaction, in seconds.
    last_sec: u64,
    /// A wrong checksum in the transaction that is being read.
    suspect: Option<Corruption>,
    /// Damage that ends the log if its transaction is the last one: an asynchronous commit block may have been written
    /// before the rest.
    interrupted: Option<Corruption>,
    /// Maximum number of transactions, if damage is to end the log instead of causing an error.
    transactions_max: Option<u32>,
}

impl<'a, 'j> Scan<'a, 'j> {
    /// Finds the end of the log that starts at `start`.
    pub(super) fn run(
        sb: &'a JournalSuperblock,
        reader: &'a mut JournalReader<'j>,
        start: u32,
    ) -> Result<Extent> {
        Self::new(sb, reader, start, None).finish()
    }

    /// Like [`Self::run`], but the log ends after `transactions_max` transactions or before the first damage.
    pub(super) fn run_to(
        sb: &'a JournalSuperblock,
        reader: &'a mut JournalReader<'j>,
        start: u32,
        transactions_max: u32,
    ) -> Extent {
        let mut scan = Self::new(sb, reader, start, Some(transactions_max));
        while let Ok(Some(())) = scan.step() {}
        scan.extent
    }

    fn finish(mut self) -> Result<Extent> {
        while self.step()?.is_some() {}
        Ok(self.extent)
    }

    fn new(
        sb: &'a JournalSuperblock,
        reader: &'a mut JournalReader<'j>,
        start: u32,
        transactions_max: Option<u32>,
    ) -> Self {
        Self {
            sb,
            reader,
            cursor: Cursor::new(sb, start),
            extent: Extent { end: sb.sequence, head: start, head_before: start, transactions: 0 },
            crc: u32::MAX,
            last_sec: 0,
            suspect: None,
            interrupted: None,
            transactions_max,
        }
    }

    /// Reads the block at the cursor and advances. Returns `None` at the end of the log.
    fn step(&mut self) -> Result<Option<()>> {
        let at = self.cursor.at;
        let is_enough = self.transactions_max.is_some_and(|max| self.extent.transactions >= max);
        if is_enough || self.cursor.advance(self.sb, 1).is_none() {
            return Ok(None);
        }
        let block = self.reader.block(at)?;
        match header(block) {
            Some((BlockType::Descriptor, tid)) if tid == self.cursor.tid => self.descriptor(at),
            Some((BlockType::Revoke, tid)) if tid == self.cursor.tid => {
                if !self.sb.layout.is_intact(block) {
                    self.suspect("journal revoke block", at);
                }
                Ok(Some(()))
            }
            Some((BlockType::Commit, tid)) if tid == self.cursor.tid => self.commit(at),
            _ => Ok(None),
        }
    }

    fn suspect(&mut self, structure: &'static str, at: u32) {
        let damage = damage_at(structure, "wrong checksum", at, self.cursor.tid);
        self.suspect.get_or_insert(damage);
    }

    fn descriptor(&mut self, at: u32) -> Result<Option<()>> {
        let layout = &self.sb.layout;
        let block = self.reader.block(at)?;
        let images = tags(block, layout).count() as u32;
        let is_intact = layout.is_intact(block);
        if layout.checksums == Checksums::Transaction {
            self.crc = crc32_be(self.crc, block);
            for index in 0..images.min(self.sb.log_blocks()) {
                let image = self.reader.block(self.sb.after(at, 1 + index))?;
                self.crc = crc32_be(self.crc, image);
            }
        }
        if !is_intact {
            self.suspect("journal descriptor block", at);
        }
        Ok(self.cursor.advance(self.sb, images))
    }

    fn commit(&mut self, at: u32) -> Result<Option<()>> {
        let layout = &self.sb.layout;
        let tid = self.cursor.tid;
        if let Some(damage) = self.interrupted.take() {
            // A complete transaction follows, so the one before was not the last.
            return Err(damage.into());
        }
        let (commit, trust) = Commit::parse(self.reader.block(at)?, layout, self.crc);
        let damage = match (self.suspect.take(), trust) {
            (Some(suspect), _) => Some(suspect),
            (None, Trust::Sound) => None,
            (None, Trust::Wrong { computed, stored }) => {
                let damage = damage_at("journal commit block", "wrong checksum", at, tid);
                let (computed, stored) = (format!("{computed:#010x}"), format!("{stored:#010x}"));
                Some(damage.mismatch(computed, stored))
            }
        };
        self.crc = u32::MAX;
        self.cursor.tid = tid.next();
        match damage {
            None => {
                self.last_sec = commit.sec;
                let transactions = self.extent.transactions + 1;
                self.extent = Extent {
                    end: tid.next(),
                    head: self.cursor.at,
                    head_before: self.extent.head,
                    transactions,
                };
                Ok(Some(()))
            }
            Some(_) if commit.sec < self.last_sec => Ok(None),
            Some(damage) if layout.async_commit => {
                self.interrupted = Some(damage);
                Ok(Some(()))
            }
            Some(damage) => Err(Error::Corrupt(damage)),
        }
    }
}
