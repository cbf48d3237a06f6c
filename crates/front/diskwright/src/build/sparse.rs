//! Blocks of zeros in the contents of files, which become holes if the caller asks for it.
//!
//! Space is allocated before contents are read, because another thread reads them. So blocks of zeros get space first.
//! The copying threads find them and do not write them; the writer gives their space back at fixed points of the source:
//! when space runs out, after [`SETTLED_BYTES`] of contents, and at the end. The layout therefore does not depend on threads.

use std::ops::Range;

use import::{DataRun, Detached};
use vfs::Ino;

use super::BuildError;

/// Bytes of contents after which the space of zeros is freed. This limits the number of runs in memory.
pub(super) const SETTLED_BYTES: u64 = 4 << 30;

/// Bytes read at a time when searching for zeros.
const LOOK_BYTES: u64 = 1 << 20;

/// Bytes compared at a time.
const WORD_BYTES: usize = 16;

/// Run of zero blocks in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Zeros {
    pub(super) ino: Ino,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Sorts runs and merges adjacent ones.
pub(super) fn joined(mut zeros: Vec<Zeros>) -> Vec<Zeros> {
    zeros.sort_unstable();
    zeros.dedup_by(|next, before| {
        let adjoins = before.ino == next.ino && before.offset + before.len == next.offset;
        if adjoins {
            before.len += next.len;
        }
        adjoins
    });
    zeros
}

/// Returns whether all bytes are zero. Checks the first byte separately, because in data it is rarely zero.
fn is_zero(bytes: &[u8]) -> bool {
    if bytes.first().is_some_and(|byte| *byte != 0) {
        return false;
    }
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// Block grid of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockGrid {
    /// Block size in bytes.
    pub(super) unit: u64,
    /// File size; the last block ends there.
    pub(super) size: u64,
}

impl BlockGrid {
    /// Returns the first run of zero blocks at or after index `from` of `bytes`, which start at file offset `at`. Only
    /// blocks completely within `bytes` count.
    pub(super) fn next_zeros(&self, at: u64, bytes: &[u8], from: usize) -> Option<Range<usize>> {
        let unit = usize::try_from(self.unit).unwrap_or(usize::MAX);
        let file_end = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut start = ((at + from as u64).next_multiple_of(self.unit) - at) as usize;
        let mut zeros: Option<Range<usize>> = None;
        while start < bytes.len().min(file_end) {
            let end = start.saturating_add(unit).min(file_end);
            let Some(block) = bytes.get(start..end) else { break };
            if is_zero(block) {
                zeros = Some(zeros.map_or(start, |run| run.start)..end);
            } else if zeros.is_some() {
                break;
            }
            start = end;
        }
        zeros
    }

    /// Returns the parts of `bytes` between runs of zero blocks.
    pub(super) fn data(&self, at: u64, bytes: &[u8]) -> Vec<Range<usize>> {
        let (mut parts, mut done) = (Vec::new(), 0);
        while let Some(zeros) = self.next_zeros(at, bytes, done) {
            parts.push(done..zeros.start);
            done = zeros.end;
        }
        parts.push(done..bytes.len());
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// Returns the runs of a file without blocks of zeros. Reads the whole file.
pub(super) fn data_runs(
    body: &Detached,
    runs: &[DataRun],
    blocks: BlockGrid,
) -> Result<Vec<DataRun>, BuildError> {
    let file = body.open()?;
    let mut buffer = vec![0; LOOK_BYTES as usize];
    let mut found: Vec<DataRun> = Vec::new();
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let at = run.offset + done;
            // Pieces end at block boundaries.
            let len = (run.len - done).min(LOOK_BYTES - at % blocks.unit);
            let bytes = &mut buffer[..len as usize];
            file.read_at(at, bytes)?;
            for part in blocks.data(at, bytes) {
                let (offset, len) = (at + part.start as u64, part.len() as u64);
                match found.last_mut() {
                    Some(last) if last.offset + last.len == offset => last.len += len,
                    _ => found.push(DataRun { offset, len }),
                }
            }
            done += len;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_of_zeros_are_found_and_the_last_block_ends_with_the_file() {
        let blocks = BlockGrid { unit: 16, size: 100 };
        let mut bytes = [1; 100];
        bytes[10..48].fill(0);
        bytes[96..].fill(0);
        assert_eq!(blocks.data(0, &bytes), [0..16, 48..96]);
        // This piece starts at byte 24, so its first block is partial.
        assert_eq!(blocks.data(24, &bytes[24..]), [0..8, 24..72]);
        // The file continues, so the last bytes are not a whole block.
        assert_eq!(BlockGrid { unit: 16, size: 200 }.data(0, &bytes), [0..16, 48..100]);
        assert!(blocks.data(0, &[0; 100]).is_empty());
        assert!(BlockGrid { unit: 4096, size: 100 }.data(0, &[0; 100]).is_empty());
        assert!(blocks.data(0, &[]).is_empty());
    }

    #[test]
    fn one_byte_anywhere_makes_a_block_data() {
        for at in 0..200 {
            let mut bytes = [0; 200];
            assert!(is_zero(&bytes));
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
        }
    }

    #[test]
    fn runs_join_whoever_found_them() {
        let zeros = |ino, offset, len| Zeros { ino: Ino(ino), offset, len };
        let found = vec![zeros(5, 8, 4), zeros(4, 4, 4), zeros(5, 0, 4), zeros(4, 0, 4)];
        assert_eq!(joined(found), [zeros(4, 0, 8), zeros(5, 0, 4), zeros(5, 8, 4)]);
    }
}
