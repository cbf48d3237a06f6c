//! Building records: collects operations, stamps blocks with their cycle, and computes the checksum.

use zerocopy::{FromZeros, IntoBytes};

use super::operation::CLIENT_TRANSACTION;
use super::{
    BLOCK_SIZE, BUFFER_SIZE, CYCLE_WORDS, FORMAT_LITTLE_ENDIAN, Lsn, RECORD_MAGIC, RECORD_VERSION,
    RawOpHeader, RawRecordHeader, seal_record,
};

/// `h_size` of new records: the maximum of kernels (`XLOG_MAX_RECORD_BSIZE`).
///
/// A record including its headers is never longer. Kernels search the header of the last record in the same number of
/// bytes before the head (`XLOG_REC_SHIFT`), and refuse the log if they find none.
pub(crate) const RECORD_SIZE_MAX: usize = 256 << 10;
/// Number of blocks of a record of `RECORD_SIZE_MAX`, including headers.
pub const RECORD_BLOCKS_MAX: u32 = (RECORD_SIZE_MAX / BLOCK_SIZE) as u32;

/// Header fields of a record that do not follow from its contents.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlace {
    /// Its position.
    pub lsn: Lsn,
    /// The oldest position still needed.
    pub tail: Lsn,
    /// The block of the previous record.
    pub previous: Option<u32>,
    /// The UUID of the superblock.
    pub uuid: [u8; 16],
    /// Number of blocks of the ring.
    pub log_blocks: u32,
}

/// Operations of a transaction, collected to be put into records.
#[derive(Debug)]
pub struct Operations {
    tid: u32,
    bytes: Vec<u8>,
    /// End of each operation in `bytes`.
    ends: Vec<usize>,
}

impl Operations {
    /// Returns no operations, of the transaction with this number.
    #[must_use]
    pub fn of(tid: u32) -> Self {
        Self { tid, bytes: Vec::new(), ends: Vec::new() }
    }

    /// Number of the transaction.
    pub(crate) fn tid(&self) -> u32 {
        self.tid
    }

    /// Adds an operation with a region of an item.
    pub fn push(&mut self, region: &[u8]) {
        self.push_flagged(0, region);
    }

    /// Adds an operation.
    pub fn push_flagged(&mut self, flags: u8, contents: &[u8]) {
        encode_operation(&mut self.bytes, CLIENT_TRANSACTION, (self.tid, flags), contents);
        self.ends.push(self.bytes.len());
    }

    /// Returns all operations as encoded.
    pub(crate) fn all(&self) -> EncodedOperations<'_> {
        EncodedOperations { all: self, start: 0, ends: &self.ends }
    }
}

/// Remaining operations of a list.
pub(crate) struct EncodedOperations<'o> {
    all: &'o Operations,
    start: usize,
    ends: &'o [usize],
}

impl<'o> EncodedOperations<'o> {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes as many operations as `room` bytes can hold. Returns their bytes and their number.
    fn take_fitting(&mut self, room: usize) -> (&'o [u8], u32) {
        let fitting = self.ends.partition_point(|end| end - self.start <= room);
        let (now, later) = self.ends.split_at(fitting);
        let end = now.last().copied().unwrap_or(self.start);
        let bytes = &self.all.bytes[self.start..end];
        (self.start, self.ends) = (end, later);
        (bytes, fitting as u32)
    }

    /// Takes the contents of the first operation, if an empty record has no room for it.
    pub(crate) fn take_long(&mut self, record: &RecordBuilder) -> Option<&'o [u8]> {
        let end = *self.ends.first()?;
        let contents = &self.all.bytes[self.start + size_of::<RawOpHeader>()..end];
        if record.has_room_for(contents.len()) {
            return None;
        }
        (self.start, self.ends) = (end, &self.ends[1..]);
        Some(contents)
    }
}

/// Appends an operation with its header.
fn encode_operation(bytes: &mut Vec<u8>, client: u8, (tid, flags): (u32, u8), contents: &[u8]) {
    let op = RawOpHeader {
        tid: tid.into(),
        len: (contents.len() as u32).into(),
        clientid: client,
        flags,
        res2: [0; 2],
    };
    bytes.extend_from_slice(op.as_bytes());
    bytes.extend_from_slice(contents);
}

/// A record being built. Its memory is reused for the next one.
#[derive(Debug)]
pub struct RecordBuilder {
    /// Header blocks, followed by the contents.
    bytes: Vec<u8>,
    operations: u32,
    headers: usize,
    size: usize,
    unit: usize,
    capacity: usize,
}

impl RecordBuilder {
    /// Returns a builder. The buffers of the log have `size` bytes (`h_size`), a multiple of 32 KiB up to
    /// `RECORD_SIZE_MAX`. Records are multiples of `unit` bytes (`sb_logsunit`; values up to 512 mean 512), and at
    /// most `size` and `limit` bytes long, including headers. `limit` is raised if an operation of `least` bytes would
    /// not fit.
    pub fn new(size: usize, unit: u32, limit: usize, least: usize) -> Self {
        let unit = (unit as usize).next_multiple_of(BLOCK_SIZE).max(BLOCK_SIZE);
        let headers = size.div_ceil(BUFFER_SIZE) * BLOCK_SIZE;
        let least = (headers + least + 2 * size_of::<RawOpHeader>()).next_multiple_of(unit);
        let most = size / unit * unit;
        let total = (limit / unit * unit).clamp(least.min(most), most);
        let capacity = total.saturating_sub(headers);
        Self { bytes: vec![0; headers], operations: 0, headers, size, unit, capacity }
    }

    /// Returns a builder of an empty record with the same limits.
    pub(crate) fn another(&self) -> Self {
        Self { bytes: vec![0; self.headers], operations: 0, ..*self }
    }

    /// Returns the maximum number of blocks of a record.
    pub(crate) fn blocks_max(&self) -> u32 {
        ((self.headers + self.capacity).next_multiple_of(self.unit) / BLOCK_SIZE) as u32
    }

    /// Returns the maximum number of blocks of the records for operations of `bytes` bytes in total, including headers.
    /// Operations have at most `region_max` bytes unless they are split. A record ends when the next operation does not
    /// fit, and takes only as many blocks as its contents need.
    pub(crate) fn blocks_for(&self, bytes: usize, region_max: usize) -> u64 {
        let op = size_of::<RawOpHeader>();
        let records = match self.capacity.checked_sub(op + region_max).filter(|full| *full > 0) {
            // Each record except the last is too full for the longest operation.
            Some(full) => bytes / full + 1,
            // Any two consecutive records contain more than fits into one. Where a region is split, only whole words
            // fit, and each part has a header.
            None => 2 * (bytes / self.capacity.saturating_sub(4 * op).max(1) + 1),
        };
        let parted = records * op;
        let padded = bytes + parted + records * (self.headers + self.unit - 1);
        let full = records as u64 * u64::from(self.blocks_max());
        full.min(padded.div_ceil(BLOCK_SIZE) as u64)
    }

    /// Returns whether an operation with `len` bytes fits into an empty record.
    pub(crate) fn has_room_for(&self, len: usize) -> bool {
        size_of::<RawOpHeader>() + len <= self.capacity
    }

    /// Returns whether an operation with `len` bytes still fits.
    pub fn fits(&self, len: usize) -> bool {
        self.bytes.len() - self.headers + size_of::<RawOpHeader>() + len <= self.capacity
    }

    /// Returns the number of bytes that an operation may still have, in whole words, at which regions may be split.
    pub(crate) fn room(&self) -> usize {
        let used = self.bytes.len() - self.headers + size_of::<RawOpHeader>();
        self.capacity.saturating_sub(used) / 4 * 4
    }

    /// Adds an operation of a transaction.
    pub fn push(&mut self, tid: u32, flags: u8, contents: &[u8]) {
        self.push_of(CLIENT_TRANSACTION, tid, flags, contents);
    }

    /// Adds an operation.
    pub fn push_of(&mut self, client: u8, tid: u32, flags: u8, contents: &[u8]) {
        encode_operation(&mut self.bytes, client, (tid, flags), contents);
        self.operations += 1;
    }

    /// Adds operations as long as they fit.
    pub(crate) fn append(&mut self, operations: &mut EncodedOperations<'_>) {
        let used = self.bytes.len() - self.headers;
        let (bytes, count) = operations.take_fitting(self.capacity.saturating_sub(used));
        self.bytes.extend_from_slice(bytes);
        self.operations += count;
    }

    /// Returns the current number of blocks of the record.
    pub(crate) fn blocks(&self) -> u32 {
        (self.bytes.len().next_multiple_of(self.unit) / BLOCK_SIZE) as u32
    }

    /// Finishes the record for its position, and returns the bytes to write there. They may wrap around the end of the
    /// ring.
    pub fn finish(&mut self, place: &RecordPlace) -> &[u8] {
        let end = self.bytes.len().next_multiple_of(self.unit);
        self.bytes.resize(end, 0);
        let mut header = RawRecordHeader::new_zeroed();
        header.magicno = RECORD_MAGIC.into();
        header.cycle = place.lsn.cycle.into();
        header.version = RECORD_VERSION.into();
        header.len = ((end - self.headers) as u32).into();
        header.lsn = place.lsn.to_raw().into();
        header.tail_lsn = place.tail.to_raw().into();
        header.prev_block = place.previous.unwrap_or(u32::MAX).into();
        header.num_logops = self.operations.into();
        header.fmt = FORMAT_LITTLE_ENDIAN.into();
        header.fs_uuid = place.uuid;
        header.size = (self.size as u32).into();
        self.bytes[..BLOCK_SIZE].copy_from_slice(header.as_bytes());
        self.stamp(place);
        seal_record(&mut self.bytes, self.headers / BLOCK_SIZE);
        &self.bytes
    }

    /// Stores the cycle in the first word of each block, and the replaced word in a header.
    fn stamp(&mut self, place: &RecordPlace) {
        let cycle_at = |index: usize| {
            let wraps = place.lsn.block as usize + index >= place.log_blocks as usize;
            let next = next_cycle(place.lsn.cycle);
            if wraps { next } else { place.lsn.cycle }
        };
        let (headers, body) = self.bytes.split_at_mut(self.headers);
        let first = headers.len() / BLOCK_SIZE;
        for (index, block) in body.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            let (header, word) = (index / CYCLE_WORDS, index % CYCLE_WORDS);
            let kept = header * BLOCK_SIZE + cycle_word_at(header, word);
            headers[kept..kept + 4].copy_from_slice(&block[..4]);
            block[..4].copy_from_slice(&cycle_at(first + index).to_be_bytes());
        }
        for (index, block) in headers.chunks_exact_mut(BLOCK_SIZE).enumerate().skip(1) {
            block[..4].copy_from_slice(&cycle_at(index).to_be_bytes());
        }
    }

    /// Starts the next record.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(self.headers, 0);
        self.operations = 0;
    }
}

/// Returns the offset of a block's replaced word in a header block: after the fields in the first header, after the
/// cycle in the others.
const fn cycle_word_at(header: usize, word: usize) -> usize {
    let start = if header == 0 { std::mem::offset_of!(RawRecordHeader, cycle_data) } else { 4 };
    start + 4 * word
}

/// Returns the cycle after `cycle`. It never equals the magic number of a header.
pub(crate) const fn next_cycle(cycle: u32) -> u32 {
    match cycle.wrapping_add(1) {
        RECORD_MAGIC => RECORD_MAGIC + 1,
        next => next,
    }
}
