//! Reading and verifying whole records.

use vfs::{Corruption, Error, Result};
use zerocopy::FromBytes;

use super::end::Ring;
use crate::format::bytes::be32;
use crate::format::log::build::{RECORD_SIZE_MAX, next_cycle};
use crate::format::log::operation::{OP_HEADER_SIZE, Operations};
use crate::format::log::{
    BLOCK_SIZE, BUFFER_SIZE, CYCLE_WORDS, FORMAT_LITTLE_ENDIAN, Lsn, ParsedRecord, RECORD_VERSION,
    RawRecordHeader, check_record,
};

/// Byte offset of the first saved word in the first header.
const WORDS_OFFSET: usize = std::mem::offset_of!(RawRecordHeader, cycle_data);

/// A record. The words that were replaced by the cycle are restored.
pub(super) struct WholeRecord {
    pub(super) record: ParsedRecord,
    /// `h_size`.
    pub(super) size: usize,
    /// The contents after the headers.
    body: Vec<u8>,
}

impl WholeRecord {
    /// Returns its operations.
    pub(super) fn operations(&self) -> Operations<'_> {
        Operations::new(&self.body, self.record.operations)
    }

    /// Returns whether it is an unmount record.
    pub(super) fn is_unmount(&self) -> bool {
        self.record.is_unmount(&self.body)
    }
}

/// Returns the error for a damaged record at `at`.
pub(super) fn damage(at: Lsn, problem: impl std::fmt::Display) -> Corruption {
    Corruption::new("log record", format!("cycle {}, log block {}: {problem}", at.cycle, at.block))
}

impl Ring<'_> {
    /// Returns the position `count` blocks after another.
    pub(super) const fn after(&self, at: Lsn, count: u32) -> Lsn {
        let block = at.block as u64 + count as u64;
        if block < self.blocks as u64 {
            return Lsn { cycle: at.cycle, block: block as u32 };
        }
        Lsn { cycle: next_cycle(at.cycle), block: (block - self.blocks as u64) as u32 }
    }

    /// Returns the number of blocks from one position to a later one; `None` if it is not later, or more than one round
    /// away.
    pub(super) fn distance(&self, from: Lsn, to: Lsn) -> Option<u32> {
        if from.block.max(to.block) >= self.blocks {
            return None;
        }
        if from.cycle == to.cycle {
            return to.block.checked_sub(from.block);
        }
        let is_next = next_cycle(from.cycle) == to.cycle && to.block <= from.block;
        is_next.then(|| self.blocks - from.block + to.block)
    }

    /// Reads the record at `at`, which must end at or before `end`.
    ///
    /// # Errors
    /// `Corrupt` if there is no complete record.
    pub(super) fn record(&self, at: Lsn, end: Lsn) -> Result<WholeRecord> {
        let mut first = [0; BLOCK_SIZE];
        self.read_around(at.block, &mut first)?;
        let (record, size) = self.header(at, &first)?;
        let room = self.distance(at, end).unwrap_or(0);
        if record.blocks() > room {
            let problem = damage(at, "it extends past the end of the log");
            return Err(problem.mismatch(format_args!("at most {room}"), record.blocks()).into());
        }
        let mut bytes = vec![0; record.blocks() as usize * BLOCK_SIZE];
        self.read_around(at.block, &mut bytes)?;
        let body = bytes.split_off(record.header_blocks as usize * BLOCK_SIZE);
        let mut whole = WholeRecord { record, size, body };
        self.check_cycles(at, &bytes, &whole)?;
        if let Err(found) = check_record(&bytes, &whole.body) {
            // mkfs.xfs does not set the checksum of the unmount record.
            if found.stored != 0 || self.has_checksums && !whole.is_unmount() {
                let (computed, stored) = (found.computed, found.stored);
                let expected = format!("{computed:#010x}");
                let problem = damage(at, "wrong checksum");
                return Err(problem.mismatch(expected, format_args!("{stored:#010x}")).into());
            }
        }
        restore_words(&bytes, &mut whole.body);
        Ok(whole)
    }

    /// Parses the first block of the record at `at`. Returns the record and its `h_size`.
    fn header(&self, at: Lsn, block: &[u8]) -> Result<(ParsedRecord, usize)> {
        let fault = |problem: &str| Error::from(damage(at, problem));
        let raw = RawRecordHeader::ref_from_prefix(block).ok();
        let (Some((raw, _)), Some(record)) = (raw, ParsedRecord::parse(block, self.blocks)) else {
            return Err(fault("no record starts there"));
        };
        let version = raw.version.get();
        if version != RECORD_VERSION && self.has_checksums {
            let problem = damage(at, "version");
            return Err(problem.mismatch(RECORD_VERSION, version).into());
        }
        if record.lsn != at || raw.cycle.get() != at.cycle {
            let found = format!("cycle {}, log block {}", record.lsn.cycle, record.lsn.block);
            let expected = format!("cycle {}, log block {}", at.cycle, at.block);
            return Err(damage(at, "it contains another location")
                .mismatch(expected, found)
                .into());
        }
        if raw.fmt.get() != FORMAT_LITTLE_ENDIAN {
            let what = format!("a log written on another architecture (format {})", raw.fmt);
            return Err(Error::unsupported(what, "mount and unmount it once on that architecture"));
        }
        if raw.fs_uuid != self.uuid {
            return Err(fault("it belongs to another file system"));
        }
        let len = raw.len.get() as usize;
        // Records of version 1 do not state the size.
        let size = if version == 1 { BUFFER_SIZE } else { raw.size.get() as usize };
        if size > RECORD_SIZE_MAX {
            let problem = damage(at, "size");
            return Err(problem.mismatch(format_args!("at most {RECORD_SIZE_MAX}"), size).into());
        }
        // Old versions of mkfs.xfs left a small size in long records, which have only one operation.
        let len_max = if record.operations == 1 { RECORD_SIZE_MAX } else { size };
        if len == 0 || len > len_max {
            let problem = damage(at, "length");
            return Err(problem.mismatch(format_args!("1 to {len_max}"), len).into());
        }
        if record.operations as usize > len / OP_HEADER_SIZE {
            let problem = damage(at, "number of operations");
            let most = len / OP_HEADER_SIZE;
            return Err(problem.mismatch(format_args!("at most {most}"), record.operations).into());
        }
        Ok((record, size))
    }

    /// Checks that all blocks of a record were written with it.
    fn check_cycles(&self, at: Lsn, headers: &[u8], whole: &WholeRecord) -> Result<()> {
        let further = headers.chunks_exact(BLOCK_SIZE).enumerate().skip(1);
        let body = whole.body.chunks_exact(BLOCK_SIZE).enumerate();
        let body = body.map(|(at, block)| (at + whole.record.header_blocks as usize, block));
        for (index, block) in further.chain(body) {
            let expected = self.after(at, index as u32).cycle;
            let found = be32(block, 0);
            if found != expected {
                let problem = damage(at, format_args!("its block {index} has another cycle"));
                return Err(problem.mismatch(expected, found).into());
            }
        }
        Ok(())
    }
}

/// Restores the words that the cycle had replaced. The headers of a record have room for the words of all its blocks,
/// except in old records without contents.
fn restore_words(headers: &[u8], body: &mut [u8]) {
    let headers = headers.chunks_exact(BLOCK_SIZE).enumerate();
    let words = headers.flat_map(|(number, header)| {
        let start = if number == 0 { WORDS_OFFSET } else { 4 };
        header[start..].chunks_exact(4).take(CYCLE_WORDS)
    });
    for (block, word) in body.chunks_exact_mut(BLOCK_SIZE).zip(words) {
        block[..4].copy_from_slice(word);
    }
}
