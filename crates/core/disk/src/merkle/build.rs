//! Parallel construction of a tree.
//!
//! Each level is computed from the stored level below, so a tree need not fit into memory. The threads of a level take
//! pieces of it in order; the result does not depend on which thread computes a piece.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use sha2::{Digest as _, Sha256};

use crate::merkle::{DIGEST_BYTES, Digest, TreeShape};

/// Number of input bytes that a thread takes at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Storage of the data and of the tree.
pub trait Ground: Sync {
    /// Error of reading or writing.
    type Error: Send;

    /// Fills `buf` with data from `offset` on; past the end of the data with zeros.
    fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Returns whether a range of the data is known, without reading, to contain zeros only.
    fn is_hole(&self, _offset: u64, _len: u64) -> bool {
        false
    }

    /// Fills `buf` with bytes of the tree that were written before.
    fn read_tree(&self, offset: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes to the tree. Every byte is written once.
    fn write_tree(&self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reports that `bytes` more bytes of data have been read.
    fn done(&self, _bytes: u64) {}
}

/// Computes and stores the tree, and returns the root hash. `prefix` is hashed before the block in each digest. Without
/// data, the root hash is zero.
///
/// # Errors
/// The first error of `ground`.
pub fn build<G: Ground>(
    ground: &G,
    shape: &TreeShape,
    prefix: &[u8],
    threads: usize,
) -> Result<Digest, G::Error> {
    let start = Sha256::new().chain_update(prefix);
    let mut below = Below::Data;
    for (index, level) in shape.levels().iter().enumerate() {
        let inputs = match below {
            Below::Data => shape.data_blocks(),
            Below::Level(first) => shape.levels()[first].blocks,
        };
        let worker = Worker { ground, shape, start: &start, below, inputs, first: level.first };
        worker.run(level.blocks, threads)?;
        below = Below::Level(index);
    }
    if shape.data_blocks() == 0 {
        return Ok([0; DIGEST_BYTES]);
    }
    let worker = Worker { ground, shape, start: &start, below, inputs: 1, first: 0 };
    let mut block = vec![0; worker.input_bytes() as usize];
    worker.read(0, &mut block)?;
    Ok(digest_from(&start, &block))
}

/// Returns the digest of bytes in several parts.
pub fn digest(parts: &[&[u8]]) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn digest_from(start: &Sha256, block: &[u8]) -> Digest {
    start.clone().chain_update(block).finalize().into()
}

/// Input of a level.
#[derive(Clone, Copy)]
enum Below {
    Data,
    /// The level of this number.
    Level(usize),
}

/// Computes one level.
struct Worker<'a, G> {
    ground: &'a G,
    shape: &'a TreeShape,
    /// State of the hash before each block.
    start: &'a Sha256,
    below: Below,
    /// Number of input blocks.
    inputs: u64,
    /// First block of this level.
    first: u64,
}

impl<G: Ground> Worker<'_, G> {
    /// Returns the size of an input block in bytes.
    fn input_bytes(&self) -> u64 {
        match self.below {
            Below::Data => self.shape.data_block().into(),
            Below::Level(_) => self.shape.hash_block().into(),
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), G::Error> {
        match self.below {
            Below::Data => {
                self.ground.read_data(offset, buf)?;
                self.ground.done(buf.len() as u64);
                Ok(())
            }
            Below::Level(index) => {
                let start = self.shape.levels()[index].first * u64::from(self.shape.hash_block());
                self.ground.read_tree(start + offset, buf)
            }
        }
    }

    fn is_hole(&self, offset: u64, len: u64) -> bool {
        matches!(self.below, Below::Data) && self.ground.is_hole(offset, len)
    }

    /// Computes all `blocks` of the level.
    fn run(&self, blocks: u64, threads: usize) -> Result<(), G::Error> {
        let per_piece = (PIECE_BYTES / (self.input_bytes() * self.shape.per_block())).max(1);
        let pieces = blocks.div_ceil(per_piece);
        let (next, is_over, failure) =
            (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(None));
        let work = || {
            let mut buffer = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    break;
                }
                let first = piece * per_piece;
                let count = per_piece.min(blocks - first);
                if let Err(error) = self.compute(first, count, &mut buffer) {
                    is_over.store(true, Ordering::Relaxed);
                    let mut failure =
                        failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    failure.get_or_insert(error);
                }
            }
        };
        let helpers = (threads as u64).min(pieces).saturating_sub(1);
        thread::scope(|scope| {
            for _ in 0..helpers {
                // Fewer where the system provides no more: this thread works too.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        let failure = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }

    /// Computes `count` blocks of the level, starting with number `first`.
    fn compute(&self, first: u64, count: u64, buffer: &mut Vec<u8>) -> Result<(), G::Error> {
        let (size, per_block) = (self.input_bytes(), self.shape.per_block());
        let (from, to) = (first * per_block, ((first + count) * per_block).min(self.inputs));
        let mut digests = vec![0; (count * u64::from(self.shape.hash_block())) as usize];
        let (offset, len) = (from * size, (to - from) * size);
        let zeros = vec![0; size as usize];
        let zero_digest = digest_from(self.start, &zeros);
        let mut places = digests.chunks_exact_mut(DIGEST_BYTES);
        if self.is_hole(offset, len) {
            self.ground.done(len);
            for place in places.by_ref().take((to - from) as usize) {
                place.copy_from_slice(&zero_digest);
            }
        } else {
            buffer.resize(len as usize, 0);
            self.read(offset, buffer)?;
            for (block, place) in buffer.chunks_exact(size as usize).zip(places) {
                let found =
                    if block == zeros { zero_digest } else { digest_from(self.start, block) };
                place.copy_from_slice(&found);
            }
        }
        let place = (self.first + first) * u64::from(self.shape.hash_block());
        self.ground.write_tree(place, &digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory {
        data: Vec<u8>,
        hole: std::ops::Range<u64>,
        tree: Mutex<Vec<u8>>,
        fails_at: Option<u64>,
    }

    impl Memory {
        fn new(len: usize) -> Self {
            let data: Vec<u8> = (0..len).map(|at| (at / 7 % 251) as u8).collect();
            Self { data, hole: 0..0, tree: Mutex::new(Vec::new()), fails_at: None }
        }
    }

    impl Ground for Memory {
        type Error = u64;

        fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<(), u64> {
            let end = offset + buf.len() as u64;
            if let Some(at) = self.fails_at.filter(|at| (offset..end).contains(at)) {
                return Err(at);
            }
            assert!(self.hole.is_empty() || end <= self.hole.start || offset >= self.hole.end);
            buf.fill(0);
            let rest = &self.data[(offset as usize).min(self.data.len())..];
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            Ok(())
        }

        fn is_hole(&self, offset: u64, len: u64) -> bool {
            self.hole.start <= offset && offset + len <= self.hole.end
        }

        fn read_tree(&self, offset: u64, buf: &mut [u8]) -> Result<(), u64> {
            let tree = self.tree.lock().unwrap();
            buf.copy_from_slice(&tree[offset as usize..][..buf.len()]);
            Ok(())
        }

        fn write_tree(&self, offset: u64, bytes: &[u8]) -> Result<(), u64> {
            let (mut tree, end) = (self.tree.lock().unwrap(), offset as usize + bytes.len());
            if tree.len() < end {
                tree.resize(end, 0xee);
            }
            tree[offset as usize..end].copy_from_slice(bytes);
            Ok(())
        }
    }

    /// Reference implementation: levels as lists of digests.
    fn plain(data: &[u8], prefix: &[u8], block: usize) -> (Digest, Vec<u8>) {
        let hash = |bytes: &[u8]| -> Digest {
            let mut padded = bytes.to_vec();
            padded.resize(block, 0);
            Sha256::new().chain_update(prefix).chain_update(padded).finalize().into()
        };
        let (mut level, mut tree) = (data.to_vec(), Vec::new());
        while level.len() > block {
            let mut above: Vec<u8> = level.chunks(block).flat_map(hash).collect();
            above.resize(above.len().next_multiple_of(block), 0);
            tree = [&above[..], &tree].concat();
            level = above;
        }
        (if data.is_empty() { [0; 32] } else { hash(&level) }, tree)
    }

    #[test]
    fn trees_are_as_defined_whatever_the_threads() {
        for len in [0, 1, 1024, 1025, 32 * 1024, 32 * 1024 + 1, 3_300_000] {
            let expected = plain(&Memory::new(len).data, b"salt", 1024);
            for threads in [1, 3] {
                let memory = Memory::new(len);
                let shape = TreeShape::new(len as u64, 1024, 1024);
                let root = build(&memory, &shape, b"salt", threads).unwrap();
                let tree = memory.tree.into_inner().unwrap();
                assert_eq!(tree.len() as u64, shape.tree_bytes());
                assert_eq!((root, tree), expected, "{len} bytes");
            }
        }
    }

    #[test]
    fn holes_are_not_read() {
        let mut memory = Memory::new(6 << 20);
        memory.data[1 << 20..5 << 20].fill(0);
        memory.hole = 1 << 20..5 << 20;
        let shape = TreeShape::new(6 << 20, 4096, 4096);
        let expected = plain(&memory.data, b"", 4096);
        let root = build(&memory, &shape, b"", 2).unwrap();
        assert_eq!((root, memory.tree.into_inner().unwrap()), expected);
    }

    #[test]
    fn a_failure_is_reported() {
        let mut memory = Memory::new(6 << 20);
        memory.fails_at = Some(5 << 20);
        let shape = TreeShape::new(6 << 20, 4096, 4096);
        assert_eq!(build(&memory, &shape, b"", 4), Err(5 << 20));
    }
}
