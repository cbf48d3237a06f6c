//! The chunks in memory and in transit.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::FetchError;

/// Chunks by number.
///
/// Stored chunks take at most `limit` bytes, except that one chunk is always kept. Eviction uses the clock algorithm:
/// the oldest chunk is evicted unless it was used since its last turn.
pub(super) struct Chunks {
    slots: HashMap<u64, Slot>,
    order: VecDeque<u64>,
    bytes: u64,
    limit: u64,
}

enum Slot {
    Ready { bytes: Bytes, is_used: bool },
    Coming(Arc<ChunkFetch>),
}

/// Source of one chunk for a read.
pub(super) enum Piece {
    /// The chunk is in memory.
    Ready(Bytes),
    /// The chunk arrives with this run.
    Coming(Arc<ChunkFetch>),
}

/// Neighbouring chunks that are fetched by one request.
pub(super) struct ChunkFetch {
    /// Numbers of the chunks.
    pub(super) chunks: Range<u64>,
    outcome: Mutex<Option<Result<Bytes, FetchError>>>,
    is_finished: Condvar,
}

impl ChunkFetch {
    fn new(chunks: Range<u64>) -> Arc<Self> {
        Arc::new(Self { chunks, outcome: Mutex::default(), is_finished: Condvar::new() })
    }

    /// Waits for the run and returns the bytes of all its chunks.
    pub(super) fn wait(&self) -> Result<Bytes, FetchError> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.is_finished.wait(&mut outcome);
        }
    }

    fn finish(&self, outcome: Result<Bytes, FetchError>) {
        self.outcome.lock().get_or_insert(outcome);
        self.is_finished.notify_all();
    }
}

impl Chunks {
    pub(super) fn new(limit: u64) -> Self {
        Self { slots: HashMap::new(), order: VecDeque::new(), bytes: 0, limit }
    }

    /// Returns the chunks that are neither in memory nor in transit.
    pub(super) fn missing(&self, chunks: Range<u64>) -> Vec<u64> {
        chunks.filter(|chunk| !self.slots.contains_key(chunk)).collect()
    }

    /// Returns the sources of these chunks. Starts runs of at most `longest` chunks for the missing ones, which the
    /// caller must fetch.
    pub(super) fn pieces(
        &mut self,
        chunks: Range<u64>,
        longest: u64,
    ) -> (Vec<Piece>, Vec<Arc<ChunkFetch>>) {
        let runs = self.start(chunks.clone(), longest);
        let piece = |chunk| match self.slots.get_mut(&chunk) {
            Some(Slot::Ready { bytes, is_used }) => {
                *is_used = true;
                Piece::Ready(bytes.clone())
            }
            Some(Slot::Coming(run)) => Piece::Coming(Arc::clone(run)),
            None => unreachable!("missing chunks were requested above"),
        };
        (chunks.map(piece).collect(), runs)
    }

    /// Creates runs for the missing chunks.
    pub(super) fn start(&mut self, chunks: Range<u64>, longest: u64) -> Vec<Arc<ChunkFetch>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for chunk in self.missing(chunks) {
            match runs.last_mut() {
                Some(run) if run.end == chunk && run.end - run.start < longest => run.end += 1,
                _ => runs.push(chunk..chunk + 1),
            }
        }
        let runs: Vec<_> = runs.into_iter().map(ChunkFetch::new).collect();
        for run in &runs {
            for chunk in run.chunks.clone() {
                self.slots.insert(chunk, Slot::Coming(Arc::clone(run)));
            }
        }
        runs
    }

    /// Ends a run: its chunks are in memory, or missing again after an error.
    pub(super) fn finish(
        &mut self,
        run: &ChunkFetch,
        chunk_bytes: u64,
        outcome: Result<Bytes, FetchError>,
    ) {
        for chunk in run.chunks.clone() {
            self.slots.remove(&chunk);
        }
        if let Ok(bytes) = &outcome {
            let chunk_bytes = chunk_bytes as usize;
            for (chunk, part) in run.chunks.clone().zip(bytes.chunks(chunk_bytes)) {
                // A copy, so that one chunk does not keep the whole run in memory.
                self.insert(chunk, Bytes::copy_from_slice(part));
            }
        }
        run.finish(outcome);
    }

    /// Adds a chunk from another source, unless it is in memory or in transit.
    pub(super) fn insert(&mut self, chunk: u64, bytes: Bytes) {
        if self.slots.contains_key(&chunk) {
            return;
        }
        self.bytes += bytes.len() as u64;
        self.slots.insert(chunk, Slot::Ready { bytes, is_used: false });
        self.order.push_back(chunk);
        self.shrink();
    }

    /// Evicts chunks until the limit is met, but never the newest.
    fn shrink(&mut self) {
        while self.bytes > self.limit && self.order.len() > 1 {
            let Some(chunk) = self.order.pop_front() else { return };
            let Some(Slot::Ready { bytes, is_used }) = self.slots.get_mut(&chunk) else { continue };
            if std::mem::take(is_used) {
                self.order.push_back(chunk);
            } else {
                self.bytes -= bytes.len() as u64;
                self.slots.remove(&chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(chunks: &mut Chunks, chunk: u64) -> bool {
        chunks.missing(chunk..chunk + 1).is_empty()
    }

    #[test]
    fn used_chunks_stay_and_memory_is_limited() {
        let mut chunks = Chunks::new(400);
        for chunk in 0..4 {
            chunks.insert(chunk, Bytes::from(vec![0; 100]));
        }
        let (pieces, runs) = chunks.pieces(0..1, 8);
        assert!(matches!(pieces[..], [Piece::Ready(_)]) && runs.is_empty());
        chunks.insert(4, Bytes::from(vec![0; 100]));
        assert!(ready(&mut chunks, 0) && !ready(&mut chunks, 1) && ready(&mut chunks, 4));
        assert_eq!(chunks.bytes, 400);
        // A chunk larger than the limit stays until the next one arrives.
        chunks.insert(9, Bytes::from(vec![0; 1000]));
        assert!(ready(&mut chunks, 9));
        chunks.insert(10, Bytes::from(vec![0; 100]));
        assert!(!ready(&mut chunks, 9) && ready(&mut chunks, 10));
    }

    #[test]
    fn neighbours_are_one_run_and_nothing_comes_twice() {
        let mut chunks = Chunks::new(1 << 20);
        chunks.insert(2, Bytes::from_static(b"xx"));
        let (_, runs) = chunks.pieces(0..7, 3);
        let ranges: Vec<_> = runs.iter().map(|run| run.chunks.clone()).collect();
        assert_eq!(ranges, [0..2, 3..6, 6..7]);
        assert!(chunks.pieces(0..7, 3).1.is_empty());
        chunks.finish(&runs[0], 2, Ok(Bytes::from_static(b"aabb")));
        assert_eq!(&*runs[0].wait().unwrap(), b"aabb");
        let gone = FetchError::Refused { address: "a".into(), reason: "b".into() };
        chunks.finish(&runs[1], 2, Err(gone));
        assert!(runs[1].wait().is_err());
        assert_eq!(chunks.missing(0..7), [3, 4, 5]);
    }
}
