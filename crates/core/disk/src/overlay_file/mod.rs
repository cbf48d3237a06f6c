//! A copy-on-write device that keeps changes in a file.
//!
//! The file has a header, an index and data. The data of a block has a fixed offset, so the file has the length of the
//! base and is sparse. The index records which blocks are present. It is written only after their data is durable, so
//! after a crash each block has its contents as of the last flush or later, and no block is present without its data.
//! Like a disk, it may keep some of the writes since the last flush.

mod header;
mod index;
mod zeros_after;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

pub use header::{About, OverlayError};

use crate::{BlockDevice, ContentKind, check_range, moved};
use header::HEADER_BYTES;
use index::Index;
use zeros_after::ZerosAfter;

/// Unit of changes in bytes.
const BLOCK_BYTES: u64 = 4096;

/// A writable view of a device that does not change it and keeps the changes in a file.
///
/// The lock serialises changes of the index with copies from the base: it is held exclusively during the first partial
/// write of a block.
pub struct OverlayFile {
    below: Arc<dyn BlockDevice>,
    storage: Arc<dyn BlockDevice>,
    index: RwLock<Index>,
    data_start: u64,
}

impl OverlayFile {
    /// Number of bytes that [`Self::is_header`] needs.
    pub const MAGIC_BYTES: usize = header::MAGIC.len();

    /// Returns whether a file with these first bytes is an overlay.
    #[must_use]
    pub fn is_header(bytes: &[u8; Self::MAGIC_BYTES]) -> bool {
        *bytes == header::MAGIC || *bytes == header::MAGIC_LONGER
    }

    /// Returns the necessary length of the file for an overlay of `len` bytes. Most of it is a hole.
    ///
    /// # Errors
    /// If no file can have that length.
    pub fn file_bytes(len: u64) -> Result<u64, OverlayError> {
        let end =
            data_start(len).checked_add(len.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
        end.filter(|&end| i64::try_from(end).is_ok()).ok_or(OverlayError::TooLarge(len))
    }

    /// Creates an overlay in `storage`, which must contain zeros only.
    ///
    /// # Errors
    /// If it cannot be written or is too short, or `about` is too long.
    pub fn create(
        storage: Arc<dyn BlockDevice>,
        below: Arc<dyn BlockDevice>,
        about: &About,
    ) -> Result<Self, OverlayError> {
        let header = about.header(below.len())?;
        let below = lengthened(below, about.longer)?;
        storage.write_at(0, &header).and_then(|()| storage.flush())?;
        Self::of(storage, below)
    }

    /// Opens an overlay of `below`. The identity must be that for which it was created.
    ///
    /// # Errors
    /// If it is not an overlay, is damaged, or belongs to another base.
    pub fn open(
        storage: Arc<dyn BlockDevice>,
        below: Arc<dyn BlockDevice>,
        identity: &str,
    ) -> Result<Self, OverlayError> {
        let (about, len) = About::read(&*storage)?;
        if about.identity != identity || len != below.len() {
            return Err(OverlayError::OtherBase {
                expected: format!("{} ({len} bytes)", about.identity),
                found: format!("{identity} ({} bytes)", below.len()),
            });
        }
        Self::of(storage, lengthened(below, about.longer)?)
    }

    fn of(
        storage: Arc<dyn BlockDevice>,
        below: Arc<dyn BlockDevice>,
    ) -> Result<Self, OverlayError> {
        let len = below.len();
        if storage.len() < Self::file_bytes(len)? {
            let problem = "it is truncated or belongs to a device of another size";
            return Err(OverlayError::Damaged(problem.into()));
        }
        let index = RwLock::new(Index::read(&*storage, HEADER_BYTES, blocks(len))?);
        Ok(Self { below, storage, index, data_start: data_start(len) })
    }

    /// Returns the written blocks as byte ranges in ascending order.
    #[must_use]
    pub fn written(&self) -> Vec<Range<u64>> {
        let (index, mut ranges) = (self.index.read(), Vec::<Range<u64>>::new());
        for block in index.blocks() {
            let (start, end) = (block * BLOCK_BYTES, ((block + 1) * BLOCK_BYTES).min(self.len()));
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Splits `offset..offset + len` into runs of blocks that are present or not: whether they are present, and their
    /// bytes.
    fn runs(&self, offset: u64, len: u64) -> Vec<(bool, Range<u64>)> {
        let (index, end) = (self.index.read(), offset + len);
        let mut runs: Vec<(bool, Range<u64>)> = Vec::new();
        let mut at = offset;
        while at < end {
            let block = at / BLOCK_BYTES;
            let (is_here, next) = (index.has(block), end.min((block + 1) * BLOCK_BYTES));
            match runs.last_mut() {
                Some((was_here, run)) if *was_here == is_here => run.end = next,
                _ => runs.push((is_here, at..next)),
            }
            at = next;
        }
        runs
    }

    /// Writes a part of one block.
    fn write_part(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let block = offset / BLOCK_BYTES;
        if self.index.read().has(block) {
            return self.storage.write_at(self.data_start + offset, data);
        }
        // Exclusive, so that no other thread copies the base over this write.
        let mut index = self.index.write();
        if !index.has(block) {
            let start = block * BLOCK_BYTES;
            let mut bytes = [0; BLOCK_BYTES as usize];
            let count = BLOCK_BYTES.min(self.len() - start) as usize;
            self.below.read_at(start, &mut bytes[..count])?;
            self.storage.write_at(self.data_start + start, &bytes)?;
        }
        self.storage.write_at(self.data_start + offset, data)?;
        index.add(block..block + 1);
        Ok(())
    }

    /// Returns the whole blocks of a range, up to the end of the device.
    fn whole(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset + len;
        let end_of_whole = if end == self.len() { end } else { end / BLOCK_BYTES * BLOCK_BYTES };
        let start = offset.next_multiple_of(BLOCK_BYTES);
        if start < end_of_whole { start..end_of_whole } else { end..end }
    }

    /// Calls `part` with the partial blocks before and after the whole ones.
    fn edges(
        range: Range<u64>,
        whole: &Range<u64>,
        mut part: impl FnMut(Range<u64>) -> io::Result<()>,
    ) -> io::Result<()> {
        for edge in [range.start..whole.start, whole.end..range.end] {
            let mut at = edge.start;
            while at < edge.end {
                let end = edge.end.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
                part(at..end)?;
                at = end;
            }
        }
        Ok(())
    }

    fn add(&self, whole: &Range<u64>) {
        let blocks = whole.start / BLOCK_BYTES..whole.end.div_ceil(BLOCK_BYTES);
        self.index.write().add(blocks);
    }
}

/// Returns `below`, followed by zeros up to the length of the overlay.
fn lengthened(
    below: Arc<dyn BlockDevice>,
    longer: Option<u64>,
) -> Result<Arc<dyn BlockDevice>, OverlayError> {
    match longer {
        None => Ok(below),
        Some(len) if len > below.len() => Ok(Arc::new(ZerosAfter { below, len })),
        Some(len) => Err(OverlayError::TooShort { len, base: below.len() }),
    }
}

fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES)
}

fn data_start(len: u64) -> u64 {
    HEADER_BYTES + Index::file_bytes(blocks(len))
}

/// Number of bytes whose blocks are looked up at a time in a search for zeros.
const SEARCH_BYTES: u64 = 64 << 20;

impl BlockDevice for OverlayFile {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len(), offset, buf.len() as u64)?;
        for (is_here, run) in self.runs(offset, buf.len() as u64) {
            let part = &mut buf[(run.start - offset) as usize..(run.end - offset) as usize];
            if is_here {
                self.storage.read_at(self.data_start + run.start, part)?;
            } else {
                self.below.read_at(run.start, part)?;
            }
        }
        Ok(())
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        check_range(self.len(), offset, len).ok()?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let part = SEARCH_BYTES.min(end - at);
            let found = self.runs(at, part).into_iter().find_map(|(is_here, run)| {
                let len = run.end - run.start;
                if is_here {
                    let zeros = self.storage.known_zeros(self.data_start + run.start, len)?;
                    Some(moved(zeros, self.data_start, 0))
                } else {
                    self.below.known_zeros(run.start, len)
                }
            });
            if found.is_some() {
                return found;
            }
            at += part;
        }
        None
    }

    fn has_read_ahead(&self) -> bool {
        self.below.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.below.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.len(), offset, data.len() as u64)?;
        let range = offset..offset + data.len() as u64;
        let bytes =
            |part: &Range<u64>| &data[(part.start - offset) as usize..(part.end - offset) as usize];
        let whole = self.whole(offset, data.len() as u64);
        Self::edges(range, &whole, |part| self.write_part(part.start, bytes(&part)))?;
        if !whole.is_empty() {
            self.storage.write_at(self.data_start + whole.start, bytes(&whole))?;
            self.add(&whole);
        }
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len(), offset, len)?;
        let whole = self.whole(offset, len);
        Self::edges(offset..offset + len, &whole, |part| {
            let zeros = [0; BLOCK_BYTES as usize];
            self.write_part(part.start, &zeros[..(part.end - part.start) as usize])
        })?;
        if !whole.is_empty() {
            self.storage.zero_range(self.data_start + whole.start, whole.end - whole.start)?;
            self.add(&whole);
        }
        Ok(())
    }

    /// Frees the storage of present blocks in the range, which then read as zeros. The base does not become visible
    /// again, because its contents may be older than those that were already read or written.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len(), offset, len)?;
        let whole = self.whole(offset, len);
        if whole.is_empty() {
            return Ok(());
        }
        for (is_here, run) in self.runs(whole.start, whole.end - whole.start) {
            if is_here {
                self.storage.zero_range(self.data_start + run.start, run.end - run.start)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut index = self.index.write();
        // Data before index: the index may only contain blocks whose data is durable.
        self.storage.flush()?;
        if index.write(&*self.storage)? {
            self.storage.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
