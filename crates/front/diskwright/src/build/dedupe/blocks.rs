//! Index of blocks by contents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use import::DataRun;
use vfs::Ino;
use xxhash_rust::xxh3::xxh3_128;

use super::FilePart;

/// Hash and length in bytes; the last block of a file may be partial.
type Key = (u128, u32);

/// Size of a table entry in bytes.
pub(super) const ENTRY_BYTES: usize = size_of::<(Key, (Ino, u64))>();
const _: () = assert!(ENTRY_BYTES <= 48);

/// Distinct blocks so far and their locations.
#[derive(Default)]
pub(crate) struct DistinctBlocks {
    table: HashMap<Key, (Ino, u64)>,
}

impl DistinctBlocks {
    /// Returns the location of a block that may have the same bytes. If there is none, records `place`.
    pub(crate) fn known_or_new(&mut self, block: &[u8], place: (Ino, u64)) -> Option<(Ino, u64)> {
        match self.table.entry((xxh3_128(block), block.len() as u32)) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => {
                new.insert(place);
                None
            }
        }
    }
}

/// Splits bytes at block boundaries, each with its offset in the file. The first and last may be partial blocks.
pub(crate) fn blocks_in(
    offset: u64,
    bytes: &[u8],
    block_size: u64,
) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let at = offset + (bytes.len() - rest.len()) as u64;
        let len = (block_size - at % block_size).min(rest.len() as u64);
        let (block, more) = rest.split_at(len as usize);
        rest = more;
        (len > 0).then_some((at, block))
    })
}

/// Adds a part, merging it with the last one if it continues it.
pub(crate) fn add(parts: &mut Vec<FilePart>, offset: u64, len: u64, same: Option<(Ino, u64)>) {
    if let Some(last) = parts.last_mut()
        && last.run.offset + last.run.len == offset
    {
        let expected = last.same.map(|(ino, at)| (ino, at + last.run.len));
        // A partial block is the end of its file, so nothing can continue it.
        if expected == same {
            last.run.len += len;
            return;
        }
    }
    parts.push(FilePart { run: DataRun { offset, len }, same });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_where_blocks_end() {
        let bytes = [0; 10_000];
        let cut = |offset| {
            blocks_in(offset, &bytes, 4096).map(|(at, block)| (at, block.len())).collect::<Vec<_>>()
        };
        assert_eq!(cut(0), [(0, 4096), (4096, 4096), (8192, 1808)]);
        assert_eq!(cut(4000), [(4000, 96), (4096, 4096), (8192, 4096), (12_288, 1712)]);
    }

    #[test]
    fn parts_that_go_on_are_one() {
        let mut parts = Vec::new();
        let from = |at| Some((Ino(7), at));
        for (at, same) in
            [(0, None), (1, None), (2, from(10)), (3, from(11)), (4, from(13)), (5, None)]
        {
            add(&mut parts, at * 4096, 4096, same.map(|(ino, at): (Ino, u64)| (ino, at * 4096)));
        }
        let found: Vec<_> = parts.iter().map(|part| (part.run.len / 4096, part.same)).collect();
        let expected = [(2, None), (2, from(10 * 4096)), (1, from(13 * 4096)), (1, None)];
        assert_eq!(found, expected);
    }
}
