//! The chunks in memory and in transit.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::FetchError;

/// Number of turns for which a chunk stays after it was fetched, and after a part of it was read. Prefetched chunks must
/// stay until they are read.
const TURNS_OF_UNREAD: u8 = 2;
const TURNS_OF_READ: u8 = 1;

/// Chunks that were read to the end are evicted from this part of the limit on.
const KEPT_OF_READ: u64 = 3;

/// Chunks by number.
///
/// Stored chunks take at most `limit` bytes, except that one chunk is always kept. Chunks that were read to the end are
/// evicted earlier, because the layers above cache what they read again. The others are evicted by the clock algorithm
/// with several turns: the oldest chunk is evicted after its turns, and a read renews them.
pub(super) struct Chunks {
    slots: HashMap<u64, Slot>,
    /// Stored chunks, the oldest first, and some that were evicted.
    order: VecDeque<Turn>,
    /// Chunks that were read to the end, and some that were evicted.
    finished: VecDeque<Turn>,
    /// Number of chunks that were ever stored.
    turns: u64,
    bytes: u64,
    limit: u64,
}

enum Slot {
    Ready(Stored),
    Coming(Arc<ChunkFetch>),
}

struct Stored {
    bytes: Bytes,
    /// Number of turns for which the chunk stays.
    stays: u8,
    /// Number of bytes that were not read.
    unread: u64,
    turn: Turn,
}

/// Identifies a stored chunk, also if it is evicted and stored again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Turn {
    chunk: u64,
    number: u64,
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
    outcome: Mutex<Option<Result<Vec<Bytes>, FetchError>>>,
    is_finished: Condvar,
}

impl ChunkFetch {
    fn new(chunks: Range<u64>) -> Arc<Self> {
        Arc::new(Self { chunks, outcome: Mutex::default(), is_finished: Condvar::new() })
    }

    /// Waits for the run and returns the bytes of one of its chunks.
    pub(super) fn wait(&self, chunk: u64) -> Result<Bytes, FetchError> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                let pieces = outcome.as_ref().map_err(Clone::clone)?;
                return Ok(pieces[(chunk - self.chunks.start) as usize].clone());
            }
            self.is_finished.wait(&mut outcome);
        }
    }

    fn finish(&self, outcome: Result<Vec<Bytes>, FetchError>) {
        self.outcome.lock().get_or_insert(outcome);
        self.is_finished.notify_all();
    }
}

impl Chunks {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            slots: HashMap::new(),
            order: VecDeque::new(),
            finished: VecDeque::new(),
            turns: 0,
            bytes: 0,
            limit,
        }
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
            Some(Slot::Ready(stored)) => {
                stored.stays = TURNS_OF_READ;
                Piece::Ready(stored.bytes.clone())
            }
            Some(Slot::Coming(run)) => Piece::Coming(Arc::clone(run)),
            None => unreachable!("missing chunks were requested above"),
        };
        (chunks.map(piece).collect(), runs)
    }

    /// Creates runs for the missing chunks of a prefetch. The others stay longer in memory.
    pub(super) fn start_ahead(&mut self, chunks: Range<u64>, longest: u64) -> Vec<Arc<ChunkFetch>> {
        for chunk in chunks.clone() {
            if let Some(Slot::Ready(stored)) = self.slots.get_mut(&chunk) {
                stored.stays = TURNS_OF_UNREAD;
            }
        }
        self.start(chunks, longest)
    }

    fn start(&mut self, chunks: Range<u64>, longest: u64) -> Vec<Arc<ChunkFetch>> {
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
    pub(super) fn finish(&mut self, run: &ChunkFetch, outcome: Result<Vec<Bytes>, FetchError>) {
        for chunk in run.chunks.clone() {
            self.slots.remove(&chunk);
        }
        if let Ok(pieces) = &outcome {
            for (chunk, piece) in run.chunks.clone().zip(pieces) {
                self.insert(chunk, piece.clone());
            }
        }
        run.finish(outcome);
    }

    /// Adds a chunk from another source, unless it is in memory or in transit.
    pub(super) fn insert(&mut self, chunk: u64, bytes: Bytes) {
        if self.slots.contains_key(&chunk) {
            return;
        }
        let (unread, turn) = (bytes.len() as u64, Turn { chunk, number: self.turns });
        self.turns += 1;
        self.bytes += unread;
        self.slots
            .insert(chunk, Slot::Ready(Stored { bytes, stays: TURNS_OF_UNREAD, unread, turn }));
        self.order.push_back(turn);
        self.shrink();
    }

    /// Records that `bytes` of a chunk were read.
    pub(super) fn note(&mut self, chunk: u64, bytes: u64) {
        let Some(Slot::Ready(stored)) = self.slots.get_mut(&chunk) else { return };
        if stored.unread > 0 {
            stored.unread = stored.unread.saturating_sub(bytes);
            if stored.unread == 0 {
                self.finished.push_back(stored.turn);
            }
        }
    }

    /// Evicts chunks until the limit is met, but never the newest.
    fn shrink(&mut self) {
        while self.bytes > self.limit / KEPT_OF_READ
            && let Some(turn) = self.finished.pop_front()
        {
            self.evict(turn);
        }
        while self.bytes > self.limit && self.evict_oldest() {}
        // Evicted chunks that were read to the end leave their turns behind.
        if self.order.len() > 2 * self.slots.len() + 64 {
            let slots = &self.slots;
            self.order.retain(|turn| is_stored(slots, *turn));
        }
    }

    /// Evicts the oldest chunk that has had its turns. Returns false if there is only one.
    fn evict_oldest(&mut self) -> bool {
        while let Some(turn) = self.order.pop_front() {
            let Some(Slot::Ready(stored)) = self.slots.get_mut(&turn.chunk) else { continue };
            if stored.turn != turn {
                continue;
            }
            let is_newest = turn.number + 1 == self.turns;
            if is_newest && self.order.is_empty() {
                self.order.push_back(turn);
                return false;
            }
            if stored.stays > 0 || is_newest {
                stored.stays = stored.stays.saturating_sub(1);
                self.order.push_back(turn);
            } else {
                self.evict(turn);
                return true;
            }
        }
        false
    }

    fn evict(&mut self, turn: Turn) {
        if is_stored(&self.slots, turn)
            && let Some(Slot::Ready(stored)) = self.slots.remove(&turn.chunk)
        {
            self.bytes -= stored.bytes.len() as u64;
        }
    }
}

/// Returns whether a chunk is still stored since its turn.
fn is_stored(slots: &HashMap<u64, Slot>, turn: Turn) -> bool {
    matches!(slots.get(&turn.chunk), Some(Slot::Ready(stored)) if stored.turn == turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(chunks: &mut Chunks, chunk: u64) -> bool {
        chunks.missing(chunk..chunk + 1).is_empty()
    }

    #[test]
    fn unread_chunks_stay_longer_and_memory_is_limited() {
        let mut chunks = Chunks::new(400);
        for chunk in 0..4 {
            chunks.insert(chunk, Bytes::from(vec![0; 100]));
        }
        let (pieces, runs) = chunks.pieces(2..3, 8);
        assert!(matches!(pieces[..], [Piece::Ready(_)]) && runs.is_empty());
        chunks.insert(4, Bytes::from(vec![0; 100]));
        let kept = (0..5).map(|chunk| ready(&mut chunks, chunk));
        assert_eq!(kept.collect::<Vec<_>>(), [true, true, false, true, true]);
        assert_eq!(chunks.bytes, 400);
        // A chunk larger than the limit stays until the next one arrives.
        chunks.insert(9, Bytes::from(vec![0; 1000]));
        assert!(ready(&mut chunks, 9));
        chunks.insert(10, Bytes::from(vec![0; 100]));
        assert!(!ready(&mut chunks, 9) && ready(&mut chunks, 10));
    }

    #[test]
    fn chunks_read_to_the_end_are_evicted_first() {
        let mut chunks = Chunks::new(400);
        let insert = |chunks: &mut Chunks, chunk| {
            chunks.insert(chunk, Bytes::from(vec![0; 100]));
        };
        for round in 0..1000 {
            for chunk in 0..4 {
                insert(&mut chunks, 10 * round + chunk);
            }
            let first = 10 * round;
            chunks.note(first + 2, 60);
            chunks.note(first + 2, 40);
            chunks.note(first + 1, 99);
            insert(&mut chunks, first + 4);
            let kept = (0..5).map(|chunk| ready(&mut chunks, first + chunk));
            assert_eq!(kept.collect::<Vec<_>>(), [true, true, false, true, true]);
        }
        assert_eq!(chunks.bytes, 400);
        assert!(chunks.order.len() < 100 && chunks.finished.is_empty());
    }

    #[test]
    fn neighbours_are_one_run_and_nothing_comes_twice() {
        let mut chunks = Chunks::new(1 << 20);
        chunks.insert(2, Bytes::from_static(b"xx"));
        let (_, runs) = chunks.pieces(0..7, 3);
        let ranges: Vec<_> = runs.iter().map(|run| run.chunks.clone()).collect();
        assert_eq!(ranges, [0..2, 3..6, 6..7]);
        assert!(chunks.pieces(0..7, 3).1.is_empty());
        chunks.finish(&runs[0], Ok(vec![Bytes::from_static(b"aa"), Bytes::from_static(b"bb")]));
        assert_eq!(&*runs[0].wait(1).unwrap(), b"bb");
        let gone = FetchError::Refused { address: "a".into(), reason: "b".into() };
        chunks.finish(&runs[1], Err(gone));
        assert!(runs[1].wait(3).is_err());
        assert_eq!(chunks.missing(0..7), [3, 4, 5]);
    }
}
