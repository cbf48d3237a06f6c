//! The undo file: the old contents of an image before a repair.
//!
//! # Format
//! All numbers are little-endian. A header of 32 bytes comes first: the magic number `DWUNDO\0\x01`, the length of the
//! image in bytes (8 bytes), the size of a page (4), 8 bytes of zero, and the CRC-32C of all that (4). Records follow,
//! each with a header of 24 bytes: magic number `DWRE`, kind (4), page number (8), payload length (4), and the CRC-32C
//! of these 20 bytes and of the payload (4).
//!
//! | kind | payload | meaning |
//! |---|---|---|
//! | 1 | a page | contents of the page before the repair |
//! | 2 | a CRC-32C (4) | checksum of the page after the repair; also for pages without a record of kind 1 |
//! | 3 | none | the repair was completed; the last record |
//!
//! INVARIANT: a page is changed in the image only after its record is durable. So the records up to the first
//! incomplete one are sufficient, whenever the repair was interrupted. After a write error of the undo file, nothing is
//! written to the image any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole, end_at};
use parking_lot::Mutex;

use crate::repair::PAGE_BYTES;

const MAGIC: &[u8; 8] = b"DWUNDO\0\x01";
const HEADER_BYTES: usize = 32;
const RECORD_MAGIC: &[u8; 4] = b"DWRE";
const RECORD_HEADER_BYTES: usize = 24;
/// Size of the write buffer.
const BUFFER_BYTES: usize = 1 << 20;

const BEFORE: u32 = 1;
const AFTER: u32 = 2;
const END: u32 = 3;

/// Destination of an undo file.
pub trait UndoSink: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// Returns the errors of writing a file.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything appended is durable.
    ///
    /// # Errors
    /// Returns the errors of fsync(2).
    fn sync(&mut self) -> io::Result<()>;
}

impl UndoSink for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

struct Undo {
    sink: Box<dyn UndoSink>,
    buffer: Vec<u8>,
    /// True if some written data is not durable.
    is_pending: bool,
    /// True after a write error. The end of the file may be torn, and later records would not be found. A retried
    /// fsync(2) may report success although data was lost.
    is_broken: bool,
    saved: BTreeSet<u64>,
}

impl Undo {
    fn record(&mut self, kind: u32, page: u64, data: &[u8]) -> io::Result<()> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(RECORD_MAGIC);
        self.buffer.extend_from_slice(&kind.to_le_bytes());
        self.buffer.extend_from_slice(&page.to_le_bytes());
        self.buffer.extend_from_slice(&(data.len() as u32).to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&self.buffer[start..]), data);
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.buffer.extend_from_slice(data);
        self.is_pending = true;
        if self.buffer.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("an earlier write to the undo file failed"));
        }
        let appended = self.sink.append(&self.buffer);
        self.is_broken = appended.is_err();
        self.buffer.clear();
        appended
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.is_pending {
            self.write_out()?;
            let synced = self.sink.sync();
            self.is_broken = synced.is_err();
            synced?;
            self.is_pending = false;
        }
        Ok(())
    }
}

/// A device that saves the old contents of everything written to it in an undo file.
pub struct UndoDevice {
    inner: Arc<dyn BlockDevice>,
    undo: Mutex<Undo>,
}

impl UndoDevice {
    /// Starts an undo file in `sink`, which must be empty, for all writes to `inner` through this device. The header is
    /// durable on return.
    ///
    /// # Errors
    /// If the undo file cannot be written.
    pub fn begin(inner: Arc<dyn BlockDevice>, mut sink: Box<dyn UndoSink>) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&inner.len().to_le_bytes());
        header.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        sink.append(&header)?;
        sink.sync()?;
        let undo = Undo {
            sink,
            buffer: Vec::new(),
            is_pending: false,
            is_broken: false,
            saved: BTreeSet::new(),
        };
        Ok(Self { inner, undo: Mutex::new(undo) })
    }

    /// Saves pages that will be changed, all at once: saving them one by one costs a flush each.
    ///
    /// # Errors
    /// If the image cannot be read, or the undo file cannot be written.
    pub fn save(&self, pages: impl IntoIterator<Item = u64>) -> io::Result<()> {
        let mut undo = self.undo.lock();
        for page in pages {
            self.save_one(&mut undo, page)?;
        }
        undo.sync()
    }

    /// Completes the undo file with checksums that detect changes of the image after the repair. `witnesses` are bytes
    /// that change with every modification of the image.
    ///
    /// # Errors
    /// Returns the errors of [`Self::save`].
    pub fn finish(&self, witnesses: &[Range<u64>]) -> io::Result<()> {
        let mut undo = self.undo.lock();
        let pages = |range: &Range<u64>| {
            range.start / PAGE_BYTES..range.end.min(end_at(self, range.start)).div_ceil(PAGE_BYTES)
        };
        let witnesses = witnesses.iter().flat_map(pages);
        let pages: BTreeSet<u64> = undo.saved.iter().copied().chain(witnesses).collect();
        for page in pages {
            let checksum = crc32c::crc32c(&read_page(&*self.inner, page)?);
            undo.record(AFTER, page, &checksum.to_le_bytes())?;
        }
        undo.record(END, 0, &[])?;
        undo.sync()
    }

    fn save_one(&self, undo: &mut Undo, page: u64) -> io::Result<()> {
        if !undo.saved.contains(&page) {
            let bytes = read_page(&*self.inner, page)?;
            undo.record(BEFORE, page, &bytes)?;
            undo.saved.insert(page);
        }
        Ok(())
    }

    fn save_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len).min(end_at(self, offset));
        self.save(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
    }
}

impl BlockDevice for UndoDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.inner.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.save_range(offset, data.len() as u64)?;
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.save_range(offset, len)?;
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Reads a page of a device; bytes past the end are zero.
fn read_page(device: &dyn BlockDevice, page: u64) -> io::Result<Vec<u8>> {
    let start = page * PAGE_BYTES;
    let count = PAGE_BYTES.min(end_at(device, start).saturating_sub(start)) as usize;
    let mut bytes = vec![0; PAGE_BYTES as usize];
    device.read_at(start, &mut bytes[..count])?;
    Ok(bytes)
}

/// Error of a restoration.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The undo file cannot be read.
    #[error("the undo file cannot be read: {0}")]
    Undo(io::Error),
    /// The file is not an undo file.
    #[error("not an undo file of diskwright, or its header is damaged")]
    NotAnUndoFile,
    /// The image does not have its former length.
    #[error("the undo file belongs to an image of {expected} bytes, but this image has {found}")]
    OtherImage {
        /// Length of the image in the undo file, in bytes.
        expected: u64,
        /// Length of this image.
        found: u64,
    },
    /// The image was changed after the repair.
    #[error("the image was changed after the repair (at byte {0}); nothing was restored")]
    Changed(u64),
    /// The image cannot be read or written.
    #[error("the image cannot be restored: {0}")]
    Image(io::Error),
}

/// Records of an undo file.
#[derive(Debug)]
struct Records {
    before: BTreeMap<u64, Vec<u8>>,
    after: BTreeMap<u64, u32>,
    has_end: bool,
}

/// Result of a restoration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Number of pages written.
    pub pages: u64,
    /// True if the repair had been completed.
    pub was_finished: bool,
}

/// Restores an image to its state before the repair that wrote `undo`, byte by byte. Can be repeated after an
/// interruption.
///
/// # Errors
/// If the undo file is invalid or belongs to another image, if the image was changed after the completed repair, or if
/// either cannot be read or written.
pub fn restore(
    device: &dyn BlockDevice,
    mut undo: impl Read,
) -> std::result::Result<Restored, RestoreError> {
    let records = read_records(device, &mut undo)?;
    let mut changed = Vec::new();
    for (&page, before) in &records.before {
        let found = read_page(device, page).map_err(RestoreError::Image)?;
        if found == *before {
            continue;
        }
        let is_known =
            !records.has_end || records.after.get(&page) == Some(&crc32c::crc32c(&found));
        if !is_known {
            return Err(RestoreError::Changed(page * PAGE_BYTES));
        }
        changed.push((page, before));
    }
    for (&page, &after) in &records.after {
        let is_witness = records.has_end && !records.before.contains_key(&page);
        if is_witness
            && crc32c::crc32c(&read_page(device, page).map_err(RestoreError::Image)?) != after
        {
            return Err(RestoreError::Changed(page * PAGE_BYTES));
        }
    }
    for (page, before) in &changed {
        let start = page * PAGE_BYTES;
        let count = PAGE_BYTES.min(end_at(device, start).saturating_sub(start)) as usize;
        device.write_at(start, &before[..count]).map_err(RestoreError::Image)?;
    }
    device.flush().map_err(RestoreError::Image)?;
    Ok(Restored { pages: changed.len() as u64, was_finished: records.has_end })
}

fn read_records(
    device: &dyn BlockDevice,
    undo: &mut impl Read,
) -> std::result::Result<Records, RestoreError> {
    let header = read_exactly(undo, HEADER_BYTES).map_err(RestoreError::Undo)?;
    let Some(header) = header.filter(|header| {
        header.starts_with(MAGIC)
            && u32_at(header, 16) == PAGE_BYTES as u32
            && u32_at(header, 28) == crc32c::crc32c(&header[..28])
    }) else {
        return Err(RestoreError::NotAnUndoFile);
    };
    let expected = u64_at(&header, 8);
    if expected != device.len() {
        return Err(RestoreError::OtherImage { expected, found: device.len() });
    }
    let mut records = Records { before: BTreeMap::new(), after: BTreeMap::new(), has_end: false };
    while let Some((kind, page, data)) = read_record(undo).map_err(RestoreError::Undo)? {
        let is_inside =
            page.checked_mul(PAGE_BYTES).is_some_and(|start| start < end_at(device, start));
        match (kind, data.len()) {
            (BEFORE, n) if n as u64 == PAGE_BYTES && is_inside => {
                records.before.entry(page).or_insert(data);
            }
            (AFTER, 4) if is_inside => {
                records.after.insert(page, u32_at(&data, 0));
            }
            (END, 0) => {
                records.has_end = true;
                break;
            }
            _ => break,
        }
    }
    Ok(records)
}

/// Reads the next record; `None` at the end or if it is incomplete.
fn read_record(undo: &mut impl Read) -> io::Result<Option<(u32, u64, Vec<u8>)>> {
    let Some(header) = read_exactly(undo, RECORD_HEADER_BYTES)? else { return Ok(None) };
    let len = u32_at(&header, 16);
    if !header.starts_with(RECORD_MAGIC) || u64::from(len) > PAGE_BYTES {
        return Ok(None);
    }
    let Some(data) = read_exactly(undo, len as usize)? else { return Ok(None) };
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&header[..20]), &data);
    let is_whole = checksum == u32_at(&header, 20);
    Ok(is_whole.then(|| (u32_at(&header, 4), u64_at(&header, 8), data)))
}

/// Reads `count` bytes; `None` if there are fewer.
fn read_exactly(from: &mut impl Read, count: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; count];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
