//! Copies file contents into the image on a pool of threads.
//!
//! The thread that creates the files determines the location of each byte beforehand. The image is therefore
//! independent of the number of threads.

use std::ops::Range as Span;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use disk::BlockDevice;
use import::{ContentFile, Detached, Stored};
use vfs::Ino;

use super::sparse::{BlockGrid, Zeros};
use super::{BuildError, identity};
use crate::clone::{CloneTarget, Range};

/// Bytes copied at a time by one thread: large enough to amortise system calls, small enough to stay in the processor
/// cache between read and write.
const COPY_BYTES: usize = 256 << 10;

/// Files are passed to a thread in batches of at least this size, or of `BATCH_FILES` files.
const BATCH_BYTES: u64 = COPY_BYTES as u64;
const BATCH_FILES: usize = 64;

/// Maximum number of batches waiting for a thread.
const QUEUE_LEN: usize = 32;

/// Page size of the host. Zeros after the end of a file are written only within the page of its last byte, so that the
/// image stays sparse.
const PAGE_BYTES: u64 = 4096;

/// Extent of a file and its destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyExtent {
    /// Byte offset in the file.
    pub(super) file_offset: u64,
    /// Byte offset on the device.
    pub(super) device_offset: u64,
    /// Length in bytes.
    pub(super) len: u64,
}

impl CopyExtent {
    /// Splits a run at multiples of `unit` in the file.
    pub(super) fn parts(self, unit: u64) -> impl Iterator<Item = Self> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let file_offset = self.file_offset + done;
            let device_offset = self.device_offset + done;
            let len = (self.len - done).min(unit - file_offset % unit);
            done += len;
            (len > 0).then_some(Self { file_offset, device_offset, len })
        })
    }
}

/// One file to copy.
struct Job {
    file: Copied,
    runs: Runs,
}

/// File whose contents are copied.
#[derive(Clone)]
pub(super) struct Copied {
    pub(super) ino: Ino,
    /// Size in bytes, holes included.
    pub(super) size: u64,
    pub(super) body: Detached,
}

/// Results of the copying threads.
#[derive(Default)]
pub(super) struct CopyResults {
    /// Checksum of the contents.
    pub(super) sum: u64,
    /// Blocks of zeros that were not written.
    pub(super) zeros: Vec<Zeros>,
}

impl CopyResults {
    fn add(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.zeros.extend(other.zeros);
    }
}

/// Runs of a file; usually one.
pub(super) enum Runs {
    One(CopyExtent),
    Many(Vec<CopyExtent>),
}

impl Runs {
    pub(super) fn as_slice(&self) -> &[CopyExtent] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Many(runs) => runs,
        }
    }
}

/// Destination of contents.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) device: Arc<dyn BlockDevice>,
    /// File of the device, if it can share blocks with the source files (reflink).
    pub(super) clones: Option<Arc<CloneTarget>>,
    /// True if the checksum of all contents is required. Shared contents are read for it.
    pub(super) is_summed: bool,
    /// Block size of the file system, in bytes.
    pub(super) block_size: u64,
    /// Byte offset of the image in its file.
    pub(super) offset: u64,
    /// True if blocks of zeros are omitted and reported.
    pub(super) is_sparse: bool,
}

/// Function that starts a copying thread.
type Start<'scope> =
    dyn Fn(&Arc<Mutex<Receiver<Vec<Job>>>>) -> std::io::Result<Copying<'scope>> + 'scope;

/// A copying thread.
type Copying<'scope> = ScopedJoinHandle<'scope, Result<CopyResults, BuildError>>;

/// Pool of copying threads. Without threads, files are copied by the caller.
pub(super) struct Copier<'scope> {
    queue: Option<SyncSender<Vec<Job>>>,
    threads: Vec<Copying<'scope>>,
    threads_count: usize,
    start_one: Box<Start<'scope>>,
    destination: Destination,
    /// Files not yet passed to a thread.
    batch: Vec<Job>,
    batch_bytes: u64,
    buffer: Vec<u8>,
    /// Results of the finished threads.
    found: CopyResults,
}

impl<'scope> Copier<'scope> {
    /// Starts `threads` copying threads within `scope`.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        destination: Destination,
        threads: usize,
    ) -> Self {
        let shared = destination.clone();
        let start_one = move |receiver: &Arc<Mutex<Receiver<Vec<Job>>>>| {
            let (receiver, destination) = (Arc::clone(receiver), shared.clone());
            let copy = move || copy_batches(&receiver, &destination);
            std::thread::Builder::new().spawn_scoped(scope, copy)
        };
        let mut copier = Self {
            queue: None,
            threads: Vec::new(),
            threads_count: threads,
            start_one: Box::new(start_one),
            destination,
            batch: Vec::new(),
            batch_bytes: 0,
            buffer: Vec::new(),
            found: CopyResults::default(),
        };
        copier.start_threads();
        copier
    }

    fn start_threads(&mut self) {
        if self.threads_count == 0 {
            return;
        }
        let (sender, receiver) = sync_channel(QUEUE_LEN);
        let receiver = Arc::new(Mutex::new(receiver));
        // Use fewer threads if the system provides no more. Without any, the caller copies the files.
        let threads = (0..self.threads_count).map_while(|_| (self.start_one)(&receiver).ok());
        self.threads = threads.collect();
        self.queue = Some(sender).filter(|_| !self.threads.is_empty());
    }

    /// Queues the `runs` of a file for copying.
    pub(super) fn copy(&mut self, file: Copied, runs: Runs) -> Result<(), BuildError> {
        self.batch_bytes += runs.as_slice().iter().map(|run| run.len).sum::<u64>();
        self.batch.push(Job { file, runs });
        if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Returns the block size of the file system, in bytes.
    pub(super) fn block_size(&self) -> u64 {
        self.destination.block_size
    }

    /// Waits until everything so far is copied. Returns the blocks of zeros since the last call, in any order.
    pub(super) fn settle(&mut self) -> Result<Vec<Zeros>, BuildError> {
        self.hand_over()?;
        self.join()?;
        self.start_threads();
        Ok(std::mem::take(&mut self.found.zeros))
    }

    /// Waits until everything is copied. Returns the results since the last call.
    pub(super) fn finish(mut self) -> Result<CopyResults, BuildError> {
        self.hand_over()?;
        self.join()?;
        Ok(self.found)
    }

    fn hand_over(&mut self) -> Result<(), BuildError> {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let Some(queue) = &self.queue else {
            let found = BatchCopy::new(&self.destination, &mut self.buffer).copy_batch(&batch)?;
            self.found.add(found);
            return Ok(());
        };
        if queue.send(batch).is_err() {
            // The threads end early only after an error; `join` returns it.
            self.join()?;
        }
        Ok(())
    }

    fn join(&mut self) -> Result<(), BuildError> {
        self.queue = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(outcome) => self.found.add(outcome?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }
}

fn copy_batches(
    queue: &Mutex<Receiver<Vec<Job>>>,
    destination: &Destination,
) -> Result<CopyResults, BuildError> {
    let mut buffer = Vec::new();
    let mut found = CopyResults::default();
    loop {
        let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        let Ok(batch) = next else { return Ok(found) };
        found.add(BatchCopy::new(destination, &mut buffer).copy_batch(&batch)?);
    }
}

/// Copies the files of a batch. Contiguous contents are written together.
struct BatchCopy<'a> {
    destination: &'a Destination,
    buffer: &'a mut Vec<u8>,
    /// Number of buffered bytes that are not written yet.
    used: usize,
    /// Device offset of the buffered bytes.
    start: u64,
    found: CopyResults,
}

impl<'a> BatchCopy<'a> {
    fn new(destination: &'a Destination, buffer: &'a mut Vec<u8>) -> Self {
        Self { destination, buffer, used: 0, start: 0, found: CopyResults::default() }
    }

    fn copy_batch(mut self, batch: &[Job]) -> Result<CopyResults, BuildError> {
        self.buffer.resize(COPY_BYTES, 0);
        for job in batch {
            let file = job.file.body.open()?;
            for run in job.runs.as_slice() {
                self.copy_run(&job.file, &file, run)?;
            }
            file.finish()?;
        }
        self.write()?;
        Ok(self.found)
    }

    fn copy_run(
        &mut self,
        copied: &Copied,
        file: &ContentFile,
        run: &CopyExtent,
    ) -> Result<(), BuildError> {
        let Destination { is_summed, is_sparse, .. } = *self.destination;
        let shared = self.destination.share(file, run);
        let mut done = if is_summed || is_sparse { 0 } else { shared };
        // Pieces must not split checksum granules or blocks.
        let unit = identity::GRANULE_BYTES.max(self.destination.block_size);
        while done < run.len {
            let end = if done < shared { shared } else { run.len };
            let is_shared = done < shared;
            let from = if is_shared { self.apart()? } else { self.room(run.device_offset + done)? };
            // Contents are checksummed in granules, which must not be split.
            let at = run.file_offset + done;
            let room = (COPY_BYTES - from) as u64;
            let len = (end - done).min(room - (at + room) % unit) as usize;
            let piece = &mut self.buffer[from..from + len];
            file.read_at(at, piece)?;
            if is_summed {
                let term = identity::contents_term(at, piece);
                self.found.sum = self.found.sum.wrapping_add(term);
            }
            if !is_shared {
                self.used = from + len;
            }
            if is_sparse {
                self.leave_out_zeros(copied, at, from..from + len)?;
            }
            done += len as u64;
        }
        Ok(())
    }

    /// Excludes blocks of zeros from the next write. `piece` contains the bytes read last, which start at offset `at`
    /// of the file.
    fn leave_out_zeros(
        &mut self,
        copied: &Copied,
        at: u64,
        piece: Span<usize>,
    ) -> Result<(), BuildError> {
        let blocks = BlockGrid { unit: self.destination.block_size, size: copied.size };
        let mut done = 0;
        // Bytes shared with the source are not written.
        let mut written = if self.used == 0 { piece.end } else { 0 };
        while let Some(zeros) = blocks.next_zeros(at, &self.buffer[piece.clone()], done) {
            let (offset, len) = (at + zeros.start as u64, zeros.len() as u64);
            self.found.zeros.push(Zeros { ino: copied.ino, offset, len });
            self.write_part(written..piece.start + zeros.start)?;
            written = written.max(piece.start + zeros.end);
            done = zeros.end;
        }
        if done > 0 {
            self.write_part(written..piece.end)?;
            self.used = 0;
        }
        Ok(())
    }

    /// Writes part of the buffer.
    fn write_part(&self, part: Span<usize>) -> Result<(), BuildError> {
        if part.is_empty() {
            return Ok(());
        }
        let at = self.start + part.start as u64;
        let written = self.destination.device.write_at(at, &self.buffer[part]);
        written.map_err(BuildError::Write)
    }

    /// Flushes the buffer and returns its start, for bytes that are read but not written.
    fn apart(&mut self) -> Result<usize, BuildError> {
        self.write()?;
        Ok(0)
    }

    /// Returns the buffer position for bytes with a device offset: after the buffered bytes if they are contiguous.
    fn room(&mut self, at: u64) -> Result<usize, BuildError> {
        let end = self.start + self.used as u64;
        // The rest of the last block of a file is filled with zeros.
        let unit = self.destination.block_size.min(PAGE_BYTES);
        let is_next = at == end || at == end.next_multiple_of(unit);
        let from = at.saturating_sub(self.start) as usize;
        if self.used > 0 && is_next && from <= COPY_BYTES / 2 {
            self.buffer[self.used..from].fill(0);
            return Ok(from);
        }
        self.write()?;
        self.start = at;
        Ok(0)
    }

    fn write(&mut self) -> Result<(), BuildError> {
        let used = std::mem::take(&mut self.used);
        self.write_part(0..used)
    }
}

impl Destination {
    /// Shares the start of a run with the source, if possible. Returns the number of bytes.
    fn share(&self, file: &ContentFile, run: &CopyExtent) -> u64 {
        let Some(clones) = &self.clones else { return 0 };
        let Some(stored) = file.stored(run.file_offset) else { return 0 };
        let Stored { file, offset, len } = stored;
        let to = self.offset + run.device_offset;
        clones.share(Range { file, offset, len: len.min(run.len) }, to)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use import::{Body, Content, ReadContent, SourceError};

    use super::*;

    /// File whose bytes are a function of offset and number.
    #[derive(Debug)]
    struct Numbered(u64);

    impl Numbered {
        fn bytes(&self, len: usize) -> Vec<u8> {
            (0..len as u64).map(|at| (at * 7 % 251 + self.0) as u8).collect()
        }
    }

    impl ReadContent for Numbered {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
            let bytes = self.bytes(offset as usize + buf.len());
            buf.copy_from_slice(&bytes[offset as usize..]);
            Ok(())
        }
    }

    /// Device that counts writes.
    struct Counting {
        bytes: Mutex<Vec<u8>>,
        writes: std::sync::atomic::AtomicUsize,
    }

    impl BlockDevice for Counting {
        fn len(&self) -> u64 {
            self.bytes.lock().unwrap().len() as u64
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
            Ok(())
        }

        fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Copies files with given lengths to given offsets. Returns the image, the checksum and the number of writes.
    fn copied(files: &[(u64, u64)], block_size: u64, threads: usize) -> (Vec<u8>, u64, usize) {
        let (bytes, writes) = (Mutex::new(vec![0xee; 4 << 20]), 0.into());
        let counting = Arc::new(Counting { bytes, writes });
        let device = Arc::clone(&counting) as Arc<dyn BlockDevice>;
        let (is_summed, is_sparse) = (true, false);
        let destination =
            Destination { device, clones: None, is_summed, block_size, offset: 0, is_sparse };
        let sum = std::thread::scope(|scope| {
            let mut copier = Copier::start(scope, destination, threads);
            for (number, &(at, len)) in files.iter().enumerate() {
                let content = Content::elsewhere(len, None, Arc::new(Numbered(number as u64)));
                let Body::Detached(body) = content.into_body() else { panic!("nothing to copy") };
                let run = CopyExtent { file_offset: 0, device_offset: at, len };
                let file = Copied { ino: Ino(number as u64), size: len, body };
                copier.copy(file, Runs::One(run)).unwrap();
            }
            copier.finish().unwrap().sum
        });
        let image = counting.bytes.lock().unwrap().clone();
        (image, sum, counting.writes.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[test]
    fn files_side_by_side_are_written_together_and_nothing_between_them() {
        // Lengths, and the number of unrelated 4 KiB blocks before each file.
        let lens: [(u64, u64); 9] = [
            (1, 0),
            (4096, 0),
            (5000, 0),
            (100, 2),
            (300_000, 0),
            (4095, 0),
            (70_000, 1),
            (262_144, 0),
            (3, 0),
        ];
        for block_size in [1024, 4096, 65_536] {
            let mut end = 0_u64;
            let place = |(len, gap): &(u64, u64)| {
                let at =
                    (end.next_multiple_of(block_size) + gap * 4096).next_multiple_of(block_size);
                end = at + len;
                (at, *len)
            };
            let files: Vec<_> = lens.iter().map(place).collect();
            let (image, sum, writes) = copied(&files, block_size, 0);
            let mut expected = vec![0xee; image.len()];
            let mut expected_sum = 0_u64;
            for (number, &(at, len)) in files.iter().enumerate() {
                let bytes = Numbered(number as u64).bytes(len as usize);
                expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                expected_sum = expected_sum.wrapping_add(identity::contents_term(0, &bytes));
                // The rest of the last block may have been zeroed.
                let (end, unit) = ((at + len) as usize, block_size.min(4096) as usize);
                let tail = end..end.next_multiple_of(unit);
                assert!(image[tail.clone()].iter().all(|byte| matches!(byte, 0 | 0xee)));
                expected[tail.clone()].copy_from_slice(&image[tail]);
            }
            assert!(image == expected, "blocks of {block_size} bytes");
            assert_eq!(sum, expected_sum);
            assert!(block_size == 65_536 || writes < lens.len(), "{writes} writes");
            let (with_threads, sum, _) = copied(&files, block_size, 3);
            assert!(with_threads == image && sum == expected_sum);
        }
    }
}
