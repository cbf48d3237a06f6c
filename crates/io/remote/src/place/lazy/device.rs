//! A device that reads from a source on demand.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use disk::{BlockDevice, ContentKind};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

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
    /// Ranges that callers requested, but for which there was no room yet, in chunks. Locked before `chunks`.
    waiting: Mutex<VecDeque<Range<u64>>>,
    sequential: SequentialReads,
    /// Signals that a prefetch has ended.
    has_come: Notify,
    requests: AtomicU64,
}

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
            has_come: Notify::new(),
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

    /// Prefetches `ranges` in order within the read-ahead budget. Stops when the device is dropped. Limited to three
    /// quarters of the memory cache unless a disk cache is configured.
    pub fn read_ahead_in_order(&self, ranges: Vec<Range<u64>>) {
        if !self.has_read_ahead() {
            return;
        }
        let kept = self.shared.options.memory_bytes / 4 * 3;
        let room = if self.shared.disk.is_some() { u64::MAX } else { kept };
        let steps = self.shared.steps(&ranges, room);
        drop(runtime::handle().spawn(read_ahead_in_order(Arc::downgrade(&self.shared), steps)));
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
            let bytes = match piece {
                Piece::Ready(bytes) => bytes,
                Piece::Coming(run) => run.wait(chunk)?,
            };
            let start = chunk * self.chunk_bytes;
            let from = offset.max(start);
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

    async fn fetch(&self, run: &ChunkFetch, is_ahead: bool) -> Result<Vec<Bytes>, FetchError> {
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
        let room = limit.saturating_sub(self.ahead_bytes.load(Ordering::Relaxed));
        let end = chunks.end.min(chunks.start.saturating_add(room / self.chunk_bytes));
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
        let count: u64 = waiting.iter().map(|range| range.end - range.start).sum();
        let room = (self.options.read_ahead_bytes / self.chunk_bytes).saturating_sub(count);
        if room > 0 {
            waiting.push_back(chunks.start..chunks.end.min(chunks.start.saturating_add(room)));
        }
        drop(waiting);
        self.start_waiting();
    }

    /// Starts waiting ranges while there is room.
    fn start_waiting(self: &Arc<Self>) {
        let limit = self.options.read_ahead_bytes;
        let mut waiting = self.waiting.lock();
        while let Some(chunks) = waiting.pop_front() {
            let rest = self.read_chunks_ahead(chunks, limit);
            if !rest.is_empty() {
                return waiting.push_front(rest);
            }
        }
    }

    /// Starts a waiting range that a reader has reached, even without room.
    fn start_waiting_at(self: &Arc<Self>, chunks: &Range<u64>) {
        let mut waiting = self.waiting.lock();
        let is_reached = |range: &Range<u64>| range.contains(&chunks.start);
        let reached = waiting.iter().position(is_reached);
        if let Some(range) = reached.and_then(|index| waiting.remove(index)) {
            drop(waiting);
            let _ = self.read_chunks_ahead(range, u64::MAX);
        }
    }

    /// Splits ranges into steps of at most one request, up to `room` bytes in total.
    fn steps(&self, ranges: &[Range<u64>], mut room: u64) -> Vec<Range<u64>> {
        let longest = self.options.request_bytes.min(self.options.read_ahead_bytes);
        let mut steps = Vec::new();
        for range in ranges {
            let (mut start, end) = (range.start, range.end.min(self.source.len()));
            while start < end {
                let step = start..end.min(start.saturating_add(longest));
                let Some(rest) = room.checked_sub(step.end - step.start) else { return steps };
                (room, start) = (rest, step.end);
                steps.push(step);
            }
        }
        steps
    }

    /// Checks whether the read-ahead budget allows `bytes` more.
    fn has_room_ahead(&self, bytes: u64) -> bool {
        let coming = self.ahead_bytes.load(Ordering::Relaxed);
        coming == 0 || coming + bytes <= self.options.read_ahead_bytes
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

async fn read_ahead_in_order(device: Weak<LazyState>, steps: Vec<Range<u64>>) {
    for step in steps {
        loop {
            let Some(shared) = device.upgrade() else { return };
            if shared.has_room_ahead(step.end - step.start) {
                shared.read_ahead(step, shared.options.read_ahead_bytes);
                break;
            }
            shared.has_come.notified().await;
        }
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
        if let Ok(pieces) = &outcome {
            self.keep(pieces.clone()).await;
        }
        self.finish(outcome);
    }

    /// Writes chunks to the disk cache before waiters wake up, because the process may exit right after that.
    async fn keep(&self, pieces: Vec<Bytes>) {
        if self.shared.disk.is_none() {
            return;
        }
        let (shared, first) = (Arc::clone(&self.shared), self.run.chunks.start);
        let written = tokio::task::spawn_blocking(move || {
            let Some(disk) = &shared.disk else { return };
            for (chunk, piece) in (first..).zip(pieces) {
                disk.put(chunk, &piece);
            }
        });
        // Chunks that are not stored are fetched again.
        let _ = written.await;
    }

    fn finish(&mut self, outcome: Result<Vec<Bytes>, FetchError>) {
        self.is_done = true;
        if self.is_ahead {
            let bytes = self.shared.ahead_bytes_of(&self.run);
            self.shared.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.has_come.notify_one();
        }
        self.shared.chunks.lock().finish(&self.run, outcome);
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

    fn read_ahead(&self, offset: u64, len: u64, _content: ContentKind) {
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
