//! Buffer items: metadata blocks as left by a transaction, in chunks of 128 bytes.
//!
//! The first region (`xfs_buf_log_format`) contains the location of the buffer, and a bitmap of the logged chunks. Each
//! further region is a run of chunks.

use smallvec::SmallVec;

use super::BLOCK_SIZE;
use super::raw_item::ItemType;
use crate::format::address::Block;
use crate::format::geometry::Geometry;

/// Size of a chunk in bytes, one bit of the bitmap (`XFS_BLF_CHUNK`).
pub(crate) const CHUNK: usize = 128;
/// Size of the format without its bitmap, in bytes.
pub(crate) const FORMAT_SIZE: usize = 20;
/// Typical number of words of a bitmap: that of a cluster of inodes of 512 bytes.
const WORDS: usize = 4;
/// `blf_flags`: earlier items of this buffer must not be replayed.
pub(crate) const CANCEL: u16 = 1 << 1;
/// Position of the type in `blf_flags`.
pub(crate) const TYPE_SHIFT: u32 = 11;

/// The type of a buffer (`XFS_BLFT_*`), by which kernels choose how to verify and seal it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub enum BufferType {
    /// Plain bytes, not verified.
    Unknown = 0,
    UserDquot = 1,
    ProjectDquot = 2,
    GroupDquot = 3,
    Btree = 4,
    Agf = 5,
    Agfl = 6,
    Agi = 7,
    Dinode = 8,
    Symlink = 9,
    DirBlock = 10,
    DirData = 11,
    DirFree = 12,
    DirLeaf1 = 13,
    DirLeafN = 14,
    DaNode = 15,
    AttrLeaf = 16,
    AttrRemote = 17,
    Superblock = 18,
    RealtimeBitmap = 19,
    RealtimeSummary = 20,
}

impl BufferType {
    /// Converts a number; to `Unknown` if the number is unknown.
    pub(crate) fn from_raw(raw: u16) -> Self {
        use BufferType::*;
        const ALL: [BufferType; 21] = [
            Unknown,
            UserDquot,
            ProjectDquot,
            GroupDquot,
            Btree,
            Agf,
            Agfl,
            Agi,
            Dinode,
            Symlink,
            DirBlock,
            DirData,
            DirFree,
            DirLeaf1,
            DirLeafN,
            DaNode,
            AttrLeaf,
            AttrRemote,
            Superblock,
            RealtimeBitmap,
            RealtimeSummary,
        ];
        ALL.get(usize::from(raw)).copied().unwrap_or(Unknown)
    }
}

/// The first region of a buffer item to be written.
#[derive(Clone, Debug)]
pub(crate) struct BufferFormat {
    bytes: SmallVec<[u8; FORMAT_SIZE + 4 * WORDS]>,
}

/// The location of a buffer: daddr and length, both in units of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferPlace {
    /// `blf_blkno`.
    pub daddr: u64,
    /// `blf_len`.
    pub len: u16,
}

impl BufferPlace {
    /// Returns the location of `blocks` blocks.
    pub(crate) fn of_blocks(geometry: &Geometry, first: Block, blocks: u32) -> Self {
        let len = (blocks as usize * geometry.block_size() / BLOCK_SIZE) as u16;
        Self { daddr: geometry.daddr(first), len }
    }
}

impl BufferFormat {
    /// Returns an item with the runs of chunks in `runs`, which must ascend.
    ///
    /// # Panics
    /// If a run extends past the buffer.
    pub(crate) fn new(
        place: BufferPlace,
        kind: BufferType,
        runs: &[std::ops::Range<usize>],
    ) -> Self {
        let words = (usize::from(place.len) * 512 / CHUNK).div_ceil(32);
        let mut map: SmallVec<[u32; WORDS]> = SmallVec::from_elem(0, words);
        for chunk in runs.iter().cloned().flatten() {
            map[chunk / 32] |= 1 << (chunk % 32);
        }
        Self::encode(place, (kind as u16) << TYPE_SHIFT, 1 + runs.len() as u16, &map)
    }

    /// Returns an item that cancels a buffer.
    pub(crate) fn cancel(place: BufferPlace) -> Self {
        let words = (usize::from(place.len) * 512 / CHUNK).div_ceil(32);
        let map: SmallVec<[u32; WORDS]> = SmallVec::from_elem(0, words);
        Self::encode(place, CANCEL, 1, &map)
    }

    fn encode(place: BufferPlace, flags: u16, regions: u16, map: &[u32]) -> Self {
        let mut bytes = SmallVec::new();
        for half in [ItemType::Buf as u16, regions, flags, place.len] {
            bytes.extend_from_slice(&half.to_le_bytes());
        }
        bytes.extend_from_slice(&place.daddr.to_le_bytes());
        bytes.extend_from_slice(&(map.len() as u32).to_le_bytes());
        map.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        Self { bytes }
    }

    /// Returns its form in the log.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the runs of chunks that cover the 64ths of a block in the mask `pieces` (bit 0 is the first).
pub(crate) fn runs_of(pieces: u64, block_size: usize) -> SmallVec<[std::ops::Range<usize>; 16]> {
    let piece = block_size / 64;
    let mut runs: SmallVec<[std::ops::Range<usize>; 16]> = SmallVec::new();
    for chunk in 0..block_size / CHUNK {
        let (first, last) = (chunk * CHUNK / piece, (chunk * CHUNK + CHUNK - 1) / piece);
        let mask = (u64::MAX >> (63 - last)) & (u64::MAX << first);
        if pieces & mask == 0 {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == chunk => run.end += 1,
            _ => runs.push(chunk..chunk + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_the_pieces_and_no_chunk_that_has_none() {
        let runs = |pieces, size| -> Vec<(usize, usize)> {
            runs_of(pieces, size).into_iter().map(|run| (run.start, run.end)).collect()
        };
        assert_eq!(runs(0, 4096), []);
        assert_eq!(runs(u64::MAX, 4096), [(0, 32)]);
        assert_eq!(runs(0b1011, 4096), [(0, 2)]);
        assert_eq!(runs(1 << 63 | 1, 4096), [(0, 1), (31, 32)]);
        assert_eq!(runs(0x100, 1024), [(1, 2)]);
        assert_eq!(runs(u64::MAX, 1024), [(0, 8)]);
        assert_eq!(runs(0b10, 65536), [(8, 16)]);
    }

    #[test]
    fn a_format_gives_locations_of_chunks() {
        let place = BufferPlace { daddr: 0x1234, len: 8 };
        let item = BufferFormat::new(place, BufferType::Btree, &[0..1, 3..5]);
        let mut expected = vec![0x3c, 0x12, 3, 0, 0, 0x20, 8, 0, 0x34, 0x12];
        expected.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0b11001, 0, 0, 0]);
        assert_eq!(item.as_bytes(), expected);
        let cancel = BufferFormat::cancel(place);
        assert_eq!(cancel.as_bytes()[2..6], [1, 0, 2, 0]);
        assert_eq!(cancel.as_bytes()[20..], [0; 4]);
    }
}
