//! The chunks that are in memory, and those that are on their way.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::FetchError;

/// Chunks by their numbers.
///
/// Those that are there take no more than `limit` bytes, but for one of them. The one that goes is the oldest that
/// nobody used since its turn came last (a clock).
pub(super) struct Chunks {
    slots: HashMap<u64, Slot>,
    order: VecDeque<u64>,
    bytes: u64,
    limit: u64,
}

enum Slot {
    Ready { bytes: Bytes, is_used: bool },
    Coming(Arc<Run>),
}

/// A chunk to read from.
pub(super) enum Piece {
    /// It is there.
    Ready(Bytes),
    /// It comes with this run.
    Coming(Arc<Run>),
}

/// Neighbouring chunks that are fetched with one request.
pub(super) struct Run {
    /// The numbers of its chunks.
    pub(super) chunks: Range<u64>,
    outcome: Mutex<Option<Result<Bytes, FetchError>>>,
    is_finished: Condvar,
}

impl Run {
    fn new(chunks: Range<u64>) -> Arc<Self> {
        Arc::new(Self { chunks, outcome: Mutex::default(), is_finished: Condvar::new() })
    }

    /// The bytes of all its chunks, when they are there.
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

    /// Which of these are neither there nor on their way.
    pub(super) fn missing(&self, chunks: Range<u64>) -> Vec<u64> {
        chunks.filter(|chunk| !self.slots.contains_key(chunk)).collect()
    }

    /// What to read these chunks from. Those that are missing are on their way from now on, in runs of at most
    /// `longest`, which the caller has to fetch.
    pub(super) fn pieces(
        &mut self,
        chunks: Range<u64>,
        longest: u64,
    ) -> (Vec<Piece>, Vec<Arc<Run>>) {
        let runs = self.start(chunks.clone(), longest);
        let piece = |chunk| match self.slots.get_mut(&chunk) {
            Some(Slot::Ready { bytes, is_used }) => {
                *is_used = true;
                Piece::Ready(bytes.clone())
            }
            Some(Slot::Coming(run)) => Piece::Coming(Arc::clone(run)),
            None => unreachable!("it was started if it was missing"),
        };
        (chunks.map(piece).collect(), runs)
    }

    /// Makes runs of those that are missing.
    pub(super) fn start(&mut self, chunks: Range<u64>, longest: u64) -> Vec<Arc<Run>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for chunk in self.missing(chunks) {
            match runs.last_mut() {
                Some(run) if run.end == chunk && run.end - run.start < longest => run.end += 1,
                _ => runs.push(chunk..chunk + 1),
            }
        }
        let runs: Vec<_> = runs.into_iter().map(Run::new).collect();
        for run in &runs {
            for chunk in run.chunks.clone() {
                self.slots.insert(chunk, Slot::Coming(Arc::clone(run)));
            }
        }
        runs
    }

    /// Ends a run: its chunks are there, or may be asked for again.
    pub(super) fn finish(
        &mut self,
        run: &Run,
        chunk_bytes: u64,
        outcome: Result<Bytes, FetchError>,
    ) {
        for chunk in run.chunks.clone() {
            self.slots.remove(&chunk);
        }
        if let Ok(bytes) = &outcome {
            let chunk_bytes = chunk_bytes as usize;
            for (chunk, part) in run.chunks.clone().zip(bytes.chunks(chunk_bytes)) {
                // A copy, so that one chunk does not keep all of them in memory.
                self.insert(chunk, Bytes::copy_from_slice(part));
            }
        }
        run.finish(outcome);
    }

    /// Takes a chunk that was found elsewhere, unless it is there or on its way.
    pub(super) fn insert(&mut self, chunk: u64, bytes: Bytes) {
        if self.slots.contains_key(&chunk) {
            return;
        }
        self.bytes += bytes.len() as u64;
        self.slots.insert(chunk, Slot::Ready { bytes, is_used: false });
        self.order.push_back(chunk);
        self.shrink();
    }

    /// Lets chunks go until there is room. The newest stays.
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
    fn what_is_used_stays_and_memory_is_bounded() {
        let mut chunks = Chunks::new(400);
        for chunk in 0..4 {
            chunks.insert(chunk, Bytes::from(vec![0; 100]));
        }
        let (pieces, runs) = chunks.pieces(0..1, 8);
        assert!(matches!(pieces[..], [Piece::Ready(_)]) && runs.is_empty());
        chunks.insert(4, Bytes::from(vec![0; 100]));
        assert!(ready(&mut chunks, 0) && !ready(&mut chunks, 1) && ready(&mut chunks, 4));
        assert_eq!(chunks.bytes, 400);
        // A chunk larger than all memory is there until the next one comes.
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
