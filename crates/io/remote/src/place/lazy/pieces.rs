//! Bytes of a range in one piece for each chunk.

use bytes::Bytes;

/// Collects bytes into pieces of one chunk, each with its own memory.
///
/// A large buffer for the whole range would be allocated and cleared for each request, and copied again into the cache.
pub(crate) struct Pieces {
    chunk_bytes: usize,
    done: Vec<Bytes>,
    last: Vec<u8>,
    /// Number of bytes that are still expected.
    rest: u64,
}

impl Pieces {
    /// Starts pieces of `chunk_bytes`, which is not 0. `len` is the expected number of bytes in total.
    pub(crate) fn new(chunk_bytes: usize, len: u64) -> Self {
        Self { chunk_bytes, done: Vec::new(), last: Vec::new(), rest: len }
    }

    /// Appends bytes.
    pub(crate) fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.last.is_empty() {
                let rest = usize::try_from(self.rest).unwrap_or(usize::MAX);
                self.last = Vec::with_capacity(self.chunk_bytes.min(rest));
            }
            let room = self.chunk_bytes - self.last.len();
            let (first, others) = bytes.split_at(room.min(bytes.len()));
            self.last.extend_from_slice(first);
            self.rest = self.rest.saturating_sub(first.len() as u64);
            if self.last.len() == self.chunk_bytes {
                self.done.push(std::mem::take(&mut self.last).into());
            }
            bytes = others;
        }
    }

    /// Returns the pieces. The last one may be shorter than a chunk.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        if !self.last.is_empty() {
            self.done.push(self.last.into());
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_become_whole_chunks() {
        let all: Vec<u8> = (0..23).collect();
        for part in 1..24 {
            for len in [0, 23, 1 << 40] {
                let mut pieces = Pieces::new(5, len);
                all.chunks(part).for_each(|part| pieces.extend(part));
                let found = pieces.finish();
                assert_eq!(found, all.chunks(5).collect::<Vec<_>>(), "{part} {len}");
            }
        }
        assert!(Pieces::new(5, 0).finish().is_empty());
    }
}
