//! A device that reads from a source on demand.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use disk::BlockDevice;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::chunks::{ChunkFetch, Chunks, Piece};
use super::fetch::fetch;
use super::{FetchError, LazyOptions, RangeSource};
use crate::place::disk_cache::Cached;
use crate::place::runtime;
use crate::place::sequential::SequentialReads;

/// Number of concurrent requests for waiting readers: equal to the number of scouts ahead of a walk.
const REQUESTS_MAX: usize = 32;

/// Number of concurrent prefetch requests. Lower, so that waiting readers are served first.
const REQUESTS_AHEAD_MAX: usize = 16;

/// Maximum number of bytes of one read that are in transit at a time.
const STEP_BYTES: u64 = 16 << 20;

/// A read-only device that fetches bytes when they are read.
///
/// Reads block on this crate's runtime, so tasks of that runtime must not read from it.
pub struct LazyDevice {
    shared: Arc<LazyState>,
}

struct LazyState {
    source: Arc<dyn RangeSource>,
    options: LazyOptions,
    chunk_bytes: u64,
    chunks: Mutex<Chunks>,
    disk: Option<Cached>,
    wanted: Semaphore,
    ahead: Semaphore,
    ahead_bytes: AtomicU64,
    waiting: Mutex<WaitingRanges>,
    sequential: SequentialReads,
    requests: AtomicU64,
}

/// Ranges to be prefetched for which there was no room yet, in chunks.
#[derive(Default)]
struct WaitingRanges {
    /// Ranges that a caller is about to read.
    soon: VecDeque<Range<u64>>,
    /// Ranges that may be read later, prefetched when no others wait.
    later: VecDeque<Range<u64>>,
}

/// One of the queues of [`WaitingRanges`].
type Queue = fn(&mut WaitingRanges) -> &mut VecDeque<Range<u64>>;

impl LazyDevice {
    /// Creates a device for `source`. Fetches nothing yet.
    #[must_use]
    pub fn new(source: Arc<dyn RangeSource>, options: LazyOptions) -> Self {
        let chunk_bytes = source.chunk_bytes().max(1);
        let disk = options.disk.as_ref();
        let disk = disk.and_then(|disk| disk.of(source.identity(), source.len(), chunk_bytes));
        let shared = LazyState {
            chunk_bytes,
            chunks: Mutex::new(Chunks::new(options.memory_bytes)),
            disk,
            wanted: Semaphore::new(REQUESTS_MAX),
            ahead: Semaphore::new(REQUESTS_AHEAD_MAX),
            ahead_bytes: AtomicU64::new(0),
            waiting: Mutex::default(),
            sequential: SequentialReads::new(options.read_ahead_bytes / 2),
            requests: AtomicU64::new(0),
            source,
            options,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the identity of the contents: [`RangeSource::identity`].
    #[must_use]
    pub fn identity(&self) -> &str {
        self.shared.source.identity()
    }

    /// Returns the number of requests so far, including retries.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Prefetches `ranges` in order, when nothing else is prefetched. Stops when the device is dropped. Limited to three
    /// quarters of the memory cache unless a disk cache is configured.
    pub fn read_ahead_in_order(&self, ranges: Vec<Range<u64>>) {
        if !self.has_read_ahead() {
            return;
        }
        let shared = &self.shared;
        let mut room = match shared.disk {
            Some(_) => u64::MAX,
            None => shared.options.memory_bytes / 4 * 3 / shared.chunk_bytes,
        };
        let mut waiting = shared.waiting.lock();
        for range in ranges {
            let chunks = shared.chunks_of(&(range.start..range.end.min(shared.source.len())));
            let end = chunks.end.min(chunks.start.saturating_add(room));
            if chunks.start < end {
                room -= end - chunks.start;
                waiting.later.push_back(chunks.start..end);
            }
        }
        drop(waiting);
        let shared = Arc::clone(shared);
        // Looking for chunks in the disk cache may take long.
        drop(runtime::handle().spawn_blocking(move || shared.start_waiting()));
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len);
        if end.is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        let what = format!("bytes {offset}+{len} are past the end ({} bytes)", self.len());
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }
}

impl LazyState {
    /// Returns the chunks that overlap `range`.
    fn chunks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.chunk_bytes..range.end.div_ceil(self.chunk_bytes)
    }

    fn bytes_of(&self, chunks: &Range<u64>) -> Range<u64> {
        let end = chunks.end.saturating_mul(self.chunk_bytes).min(self.source.len());
        chunks.start * self.chunk_bytes..end
    }

    /// Maximum number of chunks in one request.
    fn longest(&self) -> u64 {
        (self.options.request_bytes / self.chunk_bytes).max(1)
    }

    fn read(self: &Arc<Self>, offset: u64, buf: &mut [u8]) -> Result<(), FetchError> {
        let chunks = self.chunks_of(&(offset..offset + buf.len() as u64));
        let was_on_disk = self.take_from_disk(chunks.clone());
        self.start_waiting_at(&chunks);
        let (pieces, runs) = self.chunks.lock().pieces(chunks.clone(), self.longest());
        for run in runs {
            self.spawn(run, false);
        }
        let is_waiting = pieces.iter().any(|piece| matches!(piece, Piece::Coming(_)));
        // If these were read before, the next ones probably were, too.
        if !was_on_disk
            && let Some(ahead) = self.sequential.note(offset, buf.len() as u64, is_waiting)
        {
            // The rest is for requests of callers, which know what they will read.
            self.read_ahead(ahead, self.options.read_ahead_bytes / 2);
        }
        let end = offset + buf.len() as u64;
        for (chunk, piece) in chunks.clone().zip(pieces) {
            let (bytes, start) = match piece {
                Piece::Ready(bytes) => (bytes, chunk * self.chunk_bytes),
                Piece::Coming(run) => (run.wait()?, run.chunks.start * self.chunk_bytes),
            };
            let from = offset.max(chunk * self.chunk_bytes);
            let to = end.min((chunk + 1).saturating_mul(self.chunk_bytes));
            let part = &bytes[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        let mut stored = self.chunks.lock();
        for chunk in chunks {
            let start = chunk * self.chunk_bytes;
            stored.note(chunk, end.min(start.saturating_add(self.chunk_bytes)) - offset.max(start));
        }
        Ok(())
    }

    /// Loads missing chunks from the disk cache. Returns false if there are none.
    fn take_from_disk(&self, chunks: Range<u64>) -> bool {
        let Some(disk) = &self.disk else { return false };
        let missing = self.chunks.lock().missing(chunks);
        let mut has_any = false;
        for chunk in missing {
            if let Some(bytes) = disk.get(chunk) {
                self.chunks.lock().insert(chunk, bytes);
                has_any = true;
            }
        }
        has_any
    }

    fn spawn(self: &Arc<Self>, run: Arc<ChunkFetch>, is_ahead: bool) {
        let ending = Ending { shared: Arc::clone(self), run, is_ahead, is_done: false };
        drop(runtime::handle().spawn(ending.fetch()));
    }

    async fn fetch(&self, run: &ChunkFetch, is_ahead: bool) -> Result<Bytes, FetchError> {
        let places = if is_ahead { &self.ahead } else { &self.wanted };
        // The semaphore is never closed.
        let _place = places.acquire().await.ok();
        let count = || {
            self.requests.fetch_add(1, Ordering::Relaxed);
        };
        fetch(&*self.source, self.bytes_of(&run.chunks), &self.options, count).await
    }

    /// Prefetches the start of a range, so that at most `limit` bytes are being prefetched.
    fn read_ahead(self: &Arc<Self>, range: Range<u64>, limit: u64) {
        let range = range.start..range.end.min(self.source.len());
        if !range.is_empty() {
            let _ = self.read_chunks_ahead(self.chunks_of(&range), limit);
        }
    }

    /// Prefetches the first chunks, so that at most `limit` bytes are being prefetched. Returns the other chunks.
    fn read_chunks_ahead(self: &Arc<Self>, chunks: Range<u64>, limit: u64) -> Range<u64> {
        let end = chunks.end.min(chunks.start.saturating_add(self.room_ahead(limit)));
        let is_on_disk = |chunk| self.disk.as_ref().is_some_and(|disk| disk.has(chunk));
        // Chunks on disk are skipped, and no run extends over them.
        let mut start = chunks.start;
        for chunk in chunks.start..end {
            if is_on_disk(chunk) {
                self.start_ahead(start..chunk);
                start = chunk + 1;
            }
        }
        self.start_ahead(start..end);
        end..chunks.end
    }

    /// Prefetches a range. Without room, the range waits for earlier ones. The size of all waiting ranges is limited to the
    /// read-ahead budget, and the rest is not prefetched.
    fn read_ahead_later(self: &Arc<Self>, range: Range<u64>) {
        let range = range.start..range.end.min(self.source.len());
        if range.is_empty() {
            return;
        }
        let chunks = self.chunks_of(&range);
        let mut waiting = self.waiting.lock();
        let count: u64 = waiting.soon.iter().map(|range| range.end - range.start).sum();
        let room = (self.options.read_ahead_bytes / self.chunk_bytes).saturating_sub(count);
        if room > 0 {
            let end = chunks.end.min(chunks.start.saturating_add(room));
            waiting.soon.push_back(chunks.start..end);
        }
        drop(waiting);
        self.start_waiting();
    }

    /// Starts waiting ranges while there is room.
    fn start_waiting(self: &Arc<Self>) {
        let limit = self.options.read_ahead_bytes;
        while let Some((chunks, queue)) = self.next_waiting(limit) {
            let rest = self.read_chunks_ahead(chunks, limit);
            if !rest.is_empty() {
                queue(&mut self.waiting.lock()).push_front(rest);
                // The end of a prefetch continues. There may be none, if it ended before the range was back.
                if self.ahead_bytes.load(Ordering::Relaxed) > 0 {
                    return;
                }
            }
        }
    }

    /// Takes the next waiting range and its queue. Of a range to be read later, takes one request, if there is room for
    /// all of it.
    fn next_waiting(&self, limit: u64) -> Option<(Range<u64>, Queue)> {
        let mut waiting = self.waiting.lock();
        if let Some(range) = waiting.soon.pop_front() {
            return Some((range, |waiting| &mut waiting.soon));
        }
        let range = waiting.later.front_mut()?;
        let longest = self.longest().min((limit / self.chunk_bytes).max(1));
        let step = range.start..range.end.min(range.start + longest);
        if step.end - step.start > self.room_ahead(limit) {
            return None;
        }
        range.start = step.end;
        if range.is_empty() {
            waiting.later.pop_front();
        }
        Some((step, |waiting| &mut waiting.later))
    }

    /// Starts a waiting range that a reader has reached, even without room.
    fn start_waiting_at(self: &Arc<Self>, chunks: &Range<u64>) {
        let mut waiting = self.waiting.lock();
        let is_reached = |range: &Range<u64>| range.contains(&chunks.start);
        let reached = waiting.soon.iter().position(is_reached);
        if let Some(range) = reached.and_then(|index| waiting.soon.remove(index)) {
            drop(waiting);
            let _ = self.read_chunks_ahead(range, u64::MAX);
        }
    }

    /// Returns how many chunks more may be prefetched, if at most `limit` bytes are being prefetched at a time.
    fn room_ahead(&self, limit: u64) -> u64 {
        limit.saturating_sub(self.ahead_bytes.load(Ordering::Relaxed)) / self.chunk_bytes
    }

    fn start_ahead(self: &Arc<Self>, chunks: Range<u64>) {
        let runs = self.chunks.lock().start_ahead(chunks, self.longest());
        for run in runs {
            self.ahead_bytes.fetch_add(self.ahead_bytes_of(&run), Ordering::Relaxed);
            self.spawn(run, true);
        }
    }

    fn ahead_bytes_of(&self, run: &ChunkFetch) -> u64 {
        (run.chunks.end - run.chunks.start) * self.chunk_bytes
    }
}

impl Drop for LazyDevice {
    fn drop(&mut self) {
        *self.shared.waiting.lock() = WaitingRanges::default();
    }
}

/// Guard of one request. It finishes the run even if its task is dropped, so that waiters always wake up.
struct Ending {
    shared: Arc<LazyState>,
    run: Arc<ChunkFetch>,
    is_ahead: bool,
    is_done: bool,
}

impl Ending {
    async fn fetch(mut self) {
        let outcome = self.shared.fetch(&self.run, self.is_ahead).await;
        if let Ok(bytes) = &outcome {
            self.keep(bytes.clone()).await;
        }
        self.finish(outcome);
    }

    /// Writes chunks to the disk cache before waiters wake up, because the process may exit right after that.
    async fn keep(&self, bytes: Bytes) {
        if self.shared.disk.is_none() {
            return;
        }
        let (shared, first) = (Arc::clone(&self.shared), self.run.chunks.start);
        let written = tokio::task::spawn_blocking(move || {
            let Some(disk) = &shared.disk else { return };
            for (chunk, part) in (first..).zip(bytes.chunks(shared.chunk_bytes as usize)) {
                disk.put(chunk, part);
            }
        });
        // Chunks that are not stored are fetched again.
        let _ = written.await;
    }

    fn finish(&mut self, outcome: Result<Bytes, FetchError>) {
        self.is_done = true;
        if self.is_ahead {
            let bytes = self.shared.ahead_bytes_of(&self.run);
            self.shared.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.shared.chunks.lock().finish(&self.run, self.shared.chunk_bytes, outcome);
        if self.is_ahead {
            self.shared.start_waiting();
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_done {
            self.finish(Err(FetchError::Refused {
                address: self.shared.source.identity().to_owned(),
                reason: "the request ended without a response".into(),
            }));
        }
    }
}

impl BlockDevice for LazyDevice {
    fn len(&self) -> u64 {
        self.shared.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let mut at = offset;
        for part in buf.chunks_mut(STEP_BYTES as usize) {
            self.shared.read(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        self.check(offset, len).ok()?;
        self.shared.source.known_zeros(offset..offset + len)
    }

    fn has_read_ahead(&self) -> bool {
        self.shared.options.read_ahead_bytes > 0
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        if self.has_read_ahead() {
            self.shared.read_ahead_later(offset..offset.saturating_add(len));
        }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a lazily read image cannot be written")
}
