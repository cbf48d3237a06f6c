//! The source of a copy: the blocks in use of an image, in the state on the device.

use std::collections::HashMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::ranges::merged;
use disk::{BlockDevice, ContentKind};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use vfs::survey::LogState;

use super::Progress;
use super::chunk::{CHUNK_BYTES, Digest};
use super::state::{ChunkDigest, CopiedSystem};
use crate::disk_map::{Domain, DomainBlocks, used_blocks};
use crate::{Error, ImageOptions, Result};

/// Maximum length of unused bytes that are read between two used ranges, because one read is faster than two.
const GAP_BYTES: u64 = 32 << 10;

/// Length of the beginning of the file system that its fingerprint covers. The superblocks are in it.
const HEAD_BYTES: u64 = 64 << 10;

/// Metadata cache size in bytes. Nearly all metadata is read once.
const CACHE_BYTES: usize = 32 << 20;

/// Prefetch of a remote image in bytes.
const READ_AHEAD_BYTES: u64 = 8 << 20;

/// An image whose blocks in use are copied.
pub(super) struct Source {
    pub(super) system: CopiedSystem,
    pub(super) device: UsedDevice,
    /// Messages about unreadable metadata.
    pub(super) remarks: Vec<String>,
    /// Bytes of the log.
    log: Vec<Range<u64>>,
}

impl Source {
    /// Opens an image and determines its blocks in use. A block is unused if it is free both with and without a replay of
    /// the log: the log is copied unchanged, and its replay may read blocks that it frees later.
    ///
    /// # Errors
    /// If the image cannot be opened, or the device of its log fails. Other damage is in the remarks, and blocks that
    /// nothing describes are in use.
    pub(super) fn open(
        path: &Path,
        options: &ImageOptions,
        progress: Progress<'_>,
    ) -> Result<Self> {
        crate::lock::refuse_changing(path)?;
        let options = options.clone().cache_bytes(options.cache_bytes.unwrap_or(CACHE_BYTES));
        let (image, device) = options.open_with_device(path)?;
        let at = |source| Error::image(path, source);
        let fs = image.file_system()?;
        let shape = fs.layout().shape().map_err(at)?;
        let mut show = |done, total| progress("metadata", done, total);
        let used = used_blocks(fs.layout(), Domain::Used, &mut show).map_err(at)?;
        if !used.is_complete {
            return Err(Error::Stopped);
        }
        let DomainBlocks { mut runs, log, mut remarks, .. } = used;
        if shape.log == LogState::Replayed {
            let before = before_replay(path, &options, &device, shape.blocks, progress)?;
            runs = merged([runs, before].concat(), 0);
        }
        let block_bytes = shape.block_size;
        let bytes = shape.blocks.saturating_mul(block_bytes.into());
        let to_bytes = |run: Range<u64>| {
            let byte = |block: u64| block.saturating_mul(block_bytes.into());
            byte(run.start)..byte(run.end)
        };
        let system = {
            let info = image.info()?;
            let format = crate::image::format_of_device(&*device)
                .map_err(|e| Error::host("read", path, e))?
                .ok_or_else(|| at(vfs::Error::Invalid("the format cannot be determined")))?;
            CopiedSystem { format, uuid: info.uuid, bytes, block_bytes }
        };
        remarks.splice(..0, image.remarks().iter().cloned());
        let runs = runs.into_iter().map(to_bytes).collect();
        let log = log.into_iter().map(to_bytes).collect();
        Ok(Self { system, device: UsedDevice { inner: device, runs, len: bytes }, remarks, log })
    }

    /// Returns the number of bytes in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.device.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Returns the ranges of whole chunks without a byte in use.
    pub(super) fn unused_chunks(&self) -> Vec<Range<u64>> {
        let mut unused = Vec::new();
        let mut at = 0;
        for run in &self.device.runs {
            let start = run.start / CHUNK_BYTES * CHUNK_BYTES;
            if start > at {
                unused.push(at..start);
            }
            at = at.max(run.end.next_multiple_of(CHUNK_BYTES));
        }
        if at < self.system.bytes {
            unused.push(at..self.system.bytes.next_multiple_of(CHUNK_BYTES));
        }
        unused
    }

    /// Returns a digest of the superblock, the log and the locations of blocks in use. Any mount for changes and any
    /// change by a tool changes it.
    pub(super) fn fingerprint(&self, path: &Path) -> Result<Digest> {
        let mut hash = Sha256::new();
        let mut head = Vec::new();
        self.system.write(&mut head).expect("memory");
        hash.update(&head);
        for run in &self.device.runs {
            hash.update(run.start.to_le_bytes());
            hash.update(run.end.to_le_bytes());
        }
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        let head = 0..HEAD_BYTES.min(self.system.bytes);
        for range in std::iter::once(&head).chain(&self.log) {
            let mut at = range.start;
            while at < range.end {
                let part = &mut buffer[..CHUNK_BYTES.min(range.end - at) as usize];
                self.device.read_at(at, part).map_err(|e| Error::host("read", path, e))?;
                hash.update(&*part);
                at += part.len() as u64;
            }
        }
        Ok(hash.finalize().into())
    }
}

/// Returns the blocks in use without a replay of the log: all blocks if the image cannot be read in this state.
fn before_replay(
    path: &Path,
    options: &ImageOptions,
    device: &Arc<dyn BlockDevice>,
    blocks: u64,
    progress: Progress<'_>,
) -> Result<Vec<Range<u64>>> {
    let options = options.clone().norecovery(true);
    let Ok(image) = options.open_again(path, Arc::clone(device)) else {
        return Ok(std::iter::once(0..blocks).collect());
    };
    let fs = image.file_system()?;
    let mut show = |done, total| progress("metadata before the log", done, total);
    let used = used_blocks(fs.layout(), Domain::Used, &mut show);
    let used = used.map_err(|source| Error::image(path, source))?;
    if used.is_complete { Ok(used.runs) } else { Err(Error::Stopped) }
}

/// View of a device in which bytes that are not in use are zeros. They are not read.
pub(super) struct UsedDevice {
    inner: Arc<dyn BlockDevice>,
    /// Bytes in use: in order, without overlap.
    runs: Vec<Range<u64>>,
    len: u64,
}

impl UsedDevice {
    /// Fills `buf` from the runs `parts`, which are at most a small gap apart.
    fn read_parts(&self, start: u64, buf: &mut [u8], parts: Range<usize>) -> io::Result<()> {
        let end = start + buf.len() as u64;
        let within = |range: Range<u64>| {
            (range.start.max(start) - start) as usize..(range.end.min(end) - start) as usize
        };
        let runs = &self.runs[parts];
        if runs.len() == 1 || self.inner.read_at(start, buf).is_err() {
            // Unused bytes may be unreadable.
            for run in runs {
                let part = &mut buf[within(run.clone())];
                self.inner.read_at(run.start.max(start), part)?;
            }
        }
        for pair in runs.windows(2) {
            buf[within(pair[0].end..pair[1].start)].fill(0);
        }
        Ok(())
    }
}

impl BlockDevice for UsedDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if self.inner.has_read_ahead() {
            self.inner.read_ahead(end, READ_AHEAD_BYTES, ContentKind::Data);
        }
        let mut next = self.runs.partition_point(|run| run.end <= offset);
        let mut done = offset;
        let is_used = |at: usize| self.runs.get(at).is_some_and(|run| run.start < end);
        while is_used(next) {
            let first = next;
            next += 1;
            while is_used(next) && self.runs[next].start - self.runs[next - 1].end <= GAP_BYTES {
                next += 1;
            }
            let start = self.runs[first].start.max(offset);
            let stop = self.runs[next - 1].end.min(end);
            let place = |at: u64| (at - offset) as usize;
            buf[place(done)..place(start)].fill(0);
            self.read_parts(start, &mut buf[place(start)..place(stop)], first..next)?;
            done = stop;
        }
        buf[(done - offset) as usize..].fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Device that keeps the digest of each whole chunk that is read. It cannot be written.
pub(super) struct HashedDevice<'d> {
    inner: &'d dyn BlockDevice,
    digests: Mutex<HashMap<u64, Digest>>,
    is_stopped: AtomicBool,
}

impl<'d> HashedDevice<'d> {
    pub(super) fn new(inner: &'d dyn BlockDevice) -> Self {
        Self { inner, digests: Mutex::default(), is_stopped: AtomicBool::new(false) }
    }

    /// Records the answer of a progress callback. After `Break`, all reads fail.
    pub(super) fn note(&self, flow: ControlFlow<()>) {
        self.is_stopped.fetch_or(flow.is_break(), Ordering::Relaxed);
    }

    /// Fails if a progress callback cancelled the work.
    pub(super) fn check_stopped(&self) -> Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Returns the digest of a chunk that was read.
    pub(super) fn digest(&self, number: u64) -> ChunkDigest {
        let sha256 = self.digests.lock().get(&number).copied().unwrap_or_default();
        ChunkDigest { number, sha256 }
    }

    /// Returns the digests of all chunks that were read, in order.
    pub(super) fn into_digests(self) -> Vec<ChunkDigest> {
        let digests = self.digests.into_inner().into_iter();
        let mut digests: Vec<_> =
            digests.map(|(number, sha256)| ChunkDigest { number, sha256 }).collect();
        digests.sort_unstable();
        digests
    }
}

impl BlockDevice for HashedDevice<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped on request"));
        }
        self.inner.read_at(offset, buf)?;
        let is_whole = buf.len() as u64 == CHUNK_BYTES.min(self.len() - offset);
        if offset.is_multiple_of(CHUNK_BYTES) && is_whole {
            let digest = Sha256::digest(&*buf).into();
            self.digests.lock().insert(offset / CHUNK_BYTES, digest);
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use disk::MemoryDevice;

    use super::*;

    #[test]
    fn unused_bytes_are_zeros_wherever_a_read_begins() {
        let len = 300_000;
        let inner = Arc::new(MemoryDevice::new(len));
        inner.write_at(0, &vec![7; len as usize]).unwrap();
        // Gaps below and above the limit, and a run that touches the end.
        let runs = vec![0..1000, 2000..3000, 40_000..40_001, 100_000..200_000, 299_000..300_000];
        let device = UsedDevice { inner, runs: runs.clone(), len };
        let expected: Vec<u8> = (0..len)
            .map(|at| if runs.iter().any(|run| run.contains(&at)) { 7 } else { 0 })
            .collect();
        for start in (0..len).step_by(997) {
            for size in [1, 5000, 120_000] {
                let end = (start + size).min(len);
                let mut found = vec![9; (end - start) as usize];
                device.read_at(start, &mut found).unwrap();
                assert!(found == expected[start as usize..end as usize], "{start}+{size}");
            }
        }
        assert!(device.read_at(len - 1, &mut [0; 2]).is_err());
    }
}
