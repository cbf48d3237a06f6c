//! The index of a hashed directory: a root in block 0 and nodes below it.
//!
//! Source: kernel Documentation/filesystems/ext4/directory.rst, with its known errors about `dx_node` corrected (the
//! count is at 0xA, block 0 at 0xC). The root also contains the entries `.` and `..`, and a node one unused record, so
//! that a program without the feature sees an ordinary directory.
//!
//! An index is an array of 8-byte entries {hash, block} with ascending hashes. Instead of a hash, entry 0 contains
//! `limit` and `count`, which include entry 0; its hash counts as 0. Bit 0 of a hash is set if the previous block ends
//! with names of the same hash.

use engine::Corruption;

use super::address::FileBlock;
use super::checksum::crc32c;

/// Offset of `dx_root_info` in a root, in bytes.
const ROOT_INFO: usize = 0x18;
/// Offset of the entries in a root, in bytes.
const ROOT_ENTRIES: usize = 0x20;
/// Offset of the entries in a node, in bytes.
const NODE_ENTRIES: usize = 0x08;
/// Size of an entry, and of the checksum after the last one, in bytes.
const ENTRY_SIZE: usize = 8;

/// Hash version of directories whose names are both encrypted and case-insensitive.
pub(crate) const SIPHASH: u8 = 6;
/// Maximum number of node levels below the root.
pub(crate) const LEVELS_MAX: u8 = 1;
/// Maximum number of node levels below the root with `large_dir`.
pub const LEVELS_MAX_LARGE: u8 = 2;

/// Kind of an index block, which determines where its entries start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// The root.
    Root,
    /// A node.
    Node,
}

impl IndexKind {
    const fn entries(self) -> usize {
        match self {
            Self::Root => ROOT_ENTRIES,
            Self::Node => NODE_ENTRIES,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Root => "directory index root",
            Self::Node => "directory index node",
        }
    }

    /// Returns the maximum number of entries of such a block of `block_size` bytes, including entry 0.
    pub(crate) const fn limit(self, block_size: usize, checksums: bool) -> u16 {
        let entries = (block_size - self.entries()) / ENTRY_SIZE;
        (entries - checksums as usize) as u16
    }
}

/// `dx_root_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// Hash version of the names.
    pub hash_version: u8,
    /// Number of node levels below the root.
    pub indirect_levels: u8,
}

/// Reads `dx_root_info` of a verified root.
pub fn root_info(block: &[u8]) -> RootInfo {
    RootInfo { hash_version: block[ROOT_INFO + 4], indirect_levels: block[ROOT_INFO + 6] }
}

/// Writes `dx_root_info` to the eight bytes `bytes`.
pub(crate) fn write_root_info(bytes: &mut [u8], info: RootInfo) {
    bytes.copy_from_slice(&[0, 0, 0, 0, info.hash_version, 8, info.indirect_levels, 0]);
}

/// Byte range of `dx_root_info` in a root.
pub(crate) const ROOT_INFO_RANGE: std::ops::Range<usize> = ROOT_INFO..ROOT_ENTRIES;

#[inline]
fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

#[inline]
fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// View of the entries of a verified index block.
#[derive(Clone, Copy)]
pub struct Index<'a> {
    /// The entries in use, beginning with the field `limit`.
    entries: &'a [u8],
    limit: u16,
}

impl<'a> Index<'a> {
    /// Returns the entries of a block. An invalid block may yield fewer.
    pub fn new(block: &'a [u8], place: IndexKind) -> Self {
        let bytes = &block[place.entries()..];
        let count = usize::from(u16_at(bytes, 2)).clamp(1, bytes.len() / ENTRY_SIZE);
        Self { entries: &bytes[..count * ENTRY_SIZE], limit: u16_at(bytes, 0) }
    }

    /// Returns the number of entries, including entry 0; at least 1.
    pub fn count(&self) -> usize {
        self.entries.len() / ENTRY_SIZE
    }

    /// Returns the maximum number of entries.
    pub(crate) fn limit(&self) -> u16 {
        self.limit
    }

    /// Returns whether no further entry fits.
    pub(crate) fn is_full(&self) -> bool {
        self.count() >= usize::from(self.limit)
    }

    /// Returns the hash of entry `at`.
    #[inline]
    pub fn hash(&self, at: usize) -> u32 {
        if at == 0 { 0 } else { u32_at(self.entries, at * ENTRY_SIZE) }
    }

    /// Returns the block of entry `at`.
    pub fn block(&self, at: usize) -> FileBlock {
        FileBlock(u32_at(self.entries, at * ENTRY_SIZE + 4) & 0x0fff_ffff)
    }

    /// Returns the position of the last entry whose hash is not above `hash`.
    pub(crate) fn position(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(middle) > hash {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low - 1
    }
}

/// Returns the byte range that changes when an entry is inserted at position `at` (at least 1) of `count` entries.
pub(crate) fn insert_range(place: IndexKind, at: usize, count: usize) -> std::ops::Range<usize> {
    let start = place.entries();
    start + at * ENTRY_SIZE..start + (count + 1) * ENTRY_SIZE
}

/// Moves the entries in `bytes` (from `insert_range`) up by one and writes the new one at the start.
pub(crate) fn insert(bytes: &mut [u8], hash: u32, block: FileBlock) {
    let end = bytes.len() - ENTRY_SIZE;
    bytes.copy_within(..end, ENTRY_SIZE);
    bytes[..4].copy_from_slice(&hash.to_le_bytes());
    bytes[4..8].copy_from_slice(&block.0.to_le_bytes());
}

/// Returns the byte range of `limit`, `count` and the block of entry 0.
pub(crate) const fn count_range(place: IndexKind) -> std::ops::Range<usize> {
    place.entries()..place.entries() + ENTRY_SIZE
}

/// Writes `limit`, `count` and the block of entry 0 to the eight bytes `bytes`.
pub(crate) fn write_counts(bytes: &mut [u8], limit: u16, count: u16, block: FileBlock) {
    bytes[..2].copy_from_slice(&limit.to_le_bytes());
    bytes[2..4].copy_from_slice(&count.to_le_bytes());
    bytes[4..8].copy_from_slice(&block.0.to_le_bytes());
}

/// Returns the bytes of the entries `range` of a block.
pub(crate) fn entry_bytes(block: &[u8], place: IndexKind, range: std::ops::Range<usize>) -> &[u8] {
    let start = place.entries();
    &block[start + range.start * ENTRY_SIZE..start + range.end * ENTRY_SIZE]
}

/// Verifies an index block that was read, with `verify_structure`, and its checksum if there is a `seed`.
pub fn verify(block: &[u8], place: IndexKind, seed: Option<u32>) -> Result<(), Corruption> {
    verify_structure(block, place, seed.is_some())?;
    if let Some(seed) = seed {
        let stored = u32_at(block, tail_offset(block, place) + 4);
        let computed = checksum(block, place, seed);
        if stored != computed {
            return Err(Corruption::checksum(place.name(), computed, stored));
        }
    }
    Ok(())
}

/// Checks counts and order of an index block in a file system with or without checksums. A block must pass this before
/// it is sealed.
pub(crate) fn verify_structure(
    block: &[u8],
    place: IndexKind,
    has_checksums: bool,
) -> Result<(), Corruption> {
    let name = place.name();
    let bad = |problem| Err(Corruption::new(name, problem));
    if place == IndexKind::Root
        && (block[ROOT_INFO + 5] != 8 || block[ROOT_INFO..ROOT_INFO + 4] != [0; 4])
    {
        return bad("its root information is invalid");
    }
    let (limit, count) = counts(block, place);
    let limit_expected = place.limit(block.len(), has_checksums);
    if limit != limit_expected {
        return Err(Corruption::new(name, "wrong limit").mismatch(limit_expected, limit));
    }
    if count == 0 || count > limit {
        return Err(
            Corruption::new(name, "wrong count").mismatch(format_args!("1 to {limit}"), count)
        );
    }
    let index = Index::new(block, place);
    if (1..index.count()).any(|at| index.hash(at) < index.hash(at - 1)) {
        return bad("its hashes are not in order");
    }
    Ok(())
}

fn counts(block: &[u8], place: IndexKind) -> (u16, u16) {
    (u16_at(block, place.entries()), u16_at(block, place.entries() + 2))
}

fn tail_offset(block: &[u8], place: IndexKind) -> usize {
    place.entries() + usize::from(place.limit(block.len(), true)) * ENTRY_SIZE
}

/// Covers the block up to the last entry in use, then the reserved word of the tail, and zero for the checksum itself.
fn checksum(block: &[u8], place: IndexKind, seed: u32) -> u32 {
    let (_, count) = counts(block, place);
    let end = (place.entries() + usize::from(count) * ENTRY_SIZE).min(block.len());
    let tail = tail_offset(block, place);
    let crc = crc32c(seed, &block[..end]);
    crc32c(crc32c(crc, &block[tail..tail + 4]), &[0; 4])
}

/// Returns the checksum that an index block of a file system with checksums stores.
pub(crate) fn stored_checksum(block: &[u8], place: IndexKind) -> Option<u32> {
    let limit = usize::from(Index::new(block, place).limit());
    // The checksum is the second half of an entry-sized record after the last entry.
    let at = place.entries() + limit * ENTRY_SIZE + ENTRY_SIZE / 2;
    block.get(at..at + 4).map(|_| u32_at(block, at))
}

/// Updates the checksum.
pub fn seal(block: &mut [u8], place: IndexKind, seed: u32) {
    let (checksum, tail) = (checksum(block, place, seed), tail_offset(block, place));
    block[tail + 4..tail + 8].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_are_those_of_the_format() {
        assert_eq!(IndexKind::Root.limit(4096, true), 507);
        assert_eq!(IndexKind::Node.limit(4096, true), 510);
        assert_eq!(IndexKind::Root.limit(4096, false), 508);
        assert_eq!(IndexKind::Node.limit(1024, false), 127);
    }

    proptest! {
        #[test]
        fn any_block_is_read_without_harm(block in proptest::collection::vec(any::<u8>(), 1024)) {
            for place in [IndexKind::Root, IndexKind::Node] {
                let _ = (verify(&block, place, None), verify(&block, place, Some(3)));
                let index = Index::new(&block, place);
                let at = index.position(0x8000_0000);
                let _ = (index.hash(at), index.block(at), index.is_full());
            }
        }

        #[test]
        fn inserted_entries_are_found(mut hashes in proptest::collection::vec(1_u32.., 1..100)) {
            hashes.sort_unstable();
            hashes.dedup();
            let mut block = vec![0; 1024];
            let place = IndexKind::Node;
            let limit = place.limit(1024, true);
            write_counts(&mut block[count_range(place)], limit, 1, FileBlock(7));
            for (n, &hash) in hashes.iter().enumerate().rev() {
                let count = Index::new(&block, place).count();
                insert(&mut block[insert_range(place, 1, count)], hash, FileBlock(n as u32));
                write_counts(&mut block[count_range(place)], limit, count as u16 + 1, FileBlock(7));
            }
            seal(&mut block, place, 5);
            prop_assert!(verify(&block, place, Some(5)).is_ok());
            prop_assert!(verify(&block, place, Some(6)).is_err());
            let index = Index::new(&block, place);
            for (n, &hash) in hashes.iter().enumerate() {
                prop_assert_eq!(index.block(index.position(hash)), FileBlock(n as u32));
                let below = if n == 0 { FileBlock(7) } else { FileBlock(n as u32 - 1) };
                prop_assert_eq!(index.block(index.position(hash - 1)), below);
            }
        }
    }
}
