//! The bitmap of free realtime extents, and its summary. Both are files on the data device.
//!
//! The bitmap has a bit for each realtime extent: 1 if it is free. The summary has a counter for each pair of a level
//! and a block of the bitmap: the number of runs of free extents that start in this block of the bitmap and have a
//! length of 2^level to 2^(level + 1) - 1. The counters of a level are contiguous.
//!
//! Bitmap and summary consist of 32-bit words. With groups, each block starts with a header, and words are big-endian.
//! Without groups, blocks contain only words, in the byte order of the kernel that wrote them. This module assumes
//! little-endian.

use std::ops::Range;

use engine::Corruption;
use vfs::Ino;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::address::Block;
use crate::format::checksum;
use crate::format::geometry::Geometry;
use crate::format::metafile::MetafileType;
use crate::format::superblock::RawSuperblock;

/// Number of bits of a word, each for one realtime extent.
pub(crate) const WORD_BITS: u64 = 32;
/// Size of a word in bytes.
const WORD_SIZE: usize = 4;
/// Byte offset of the checksum in a header.
const CRC_OFFSET: usize = 4;

/// The header of a block of a bitmap or a summary (`struct xfs_rtbuf_blkinfo`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation, without rt_")]
pub(crate) struct RawSpaceHeader {
    pub magic: U32,
    pub crc: [u8; 4],
    pub owner: U64,
    pub blkno: U64,
    pub lsn: U64,
    pub uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawSpaceHeader>() == 48);
const _: () = assert!(std::mem::offset_of!(RawSpaceHeader, crc) == CRC_OFFSET);

/// The two files that describe free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceFile {
    /// The bitmap.
    Bitmap,
    /// The summary.
    Summary,
}

impl SpaceFile {
    /// Returns the magic number of its blocks: "BMPZ" or "SUMY".
    const fn magic(self) -> u32 {
        match self {
            Self::Bitmap => 0x424d_505a,
            Self::Summary => 0x5355_4d59,
        }
    }

    /// Returns the file whose blocks have a magic number.
    #[must_use]
    pub(crate) fn of_magic(magic: u32) -> Option<Self> {
        [Self::Bitmap, Self::Summary].into_iter().find(|file| file.magic() == magic)
    }

    /// Returns the type of the file of a realtime group.
    #[must_use]
    pub(crate) const fn metafile_type(self) -> MetafileType {
        match self {
            Self::Bitmap => MetafileType::RtBitmap,
            Self::Summary => MetafileType::RtSummary,
        }
    }

    /// Returns the inode of the file in a section without groups.
    #[must_use]
    pub(crate) const fn ino(self, raw: &RawSuperblock) -> Ino {
        Ino(match self {
            Self::Bitmap => raw.rbmino.get(),
            Self::Summary => raw.rsumino.get(),
        })
    }

    /// Returns its name in messages.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "realtime bitmap",
            Self::Summary => "realtime summary",
        }
    }
}

/// Layout of the bitmap and the summary of a group, or of a section without groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceLayout {
    block_log: u8,
    /// Number of realtime extents.
    extents: u64,
    /// Number of realtime extents that both files have room for: the last group may have fewer.
    room: u64,
    /// Number of realtime extents of the section.
    all: u64,
    has_headers: bool,
}

impl SpaceLayout {
    /// Returns the layout for `extents` realtime extents, at least one.
    #[must_use]
    pub const fn new(block_log: u8, extents: u64, has_headers: bool) -> Self {
        Self { block_log, extents, room: extents, all: extents, has_headers }
    }

    /// Returns the layout for a group of a section with this layout, given the number of realtime extents of a group.
    #[must_use]
    pub(crate) const fn of_group(self, room: u64, group: u32) -> Self {
        let left = self.all.saturating_sub(group as u64 * room);
        Self { extents: if left < room { left } else { room }, room, ..self }
    }

    /// Returns the number of realtime extents.
    #[must_use]
    pub const fn extents(&self) -> u64 {
        self.extents
    }

    /// Returns the size of the header of each block in bytes.
    const fn header_size(&self) -> usize {
        if self.has_headers { size_of::<RawSpaceHeader>() } else { 0 }
    }

    /// Returns the number of words of a block.
    #[must_use]
    pub const fn words_per_block(&self) -> u64 {
        (((1 << self.block_log) - self.header_size()) / WORD_SIZE) as u64
    }

    /// Calls `each` with the start and the length of each run of free extents, given the words of a bitmap. Bits past
    /// the last extent must be clear.
    pub(crate) fn free_runs(&self, word: impl Fn(u64) -> u32, mut each: impl FnMut(u64, u64)) {
        // Start of the run that reaches the current extent.
        let mut start = None;
        for index in 0..self.extents.div_ceil(WORD_BITS) {
            let (bits, mut at) = (word(index), 0);
            while at < WORD_BITS {
                let left = bits >> at;
                let is_free = left & 1 != 0;
                let place = index * WORD_BITS + at;
                match start {
                    None if is_free => start = Some(place),
                    Some(from) if !is_free => {
                        each(from, place - from);
                        start = None;
                    }
                    _ => {}
                }
                let same = if is_free { left.trailing_ones() } else { left.trailing_zeros() };
                at += u64::from(same);
            }
        }
        if let Some(from) = start {
            each(from, self.extents - from);
        }
    }

    /// Returns the counters of the summary, given the words of the bitmap.
    pub(crate) fn count_runs(&self, word: impl Fn(u64) -> u32) -> Vec<u32> {
        let counters = u64::from(self.levels()) * self.bitmap_blocks();
        let mut summary = vec![0; counters as usize];
        self.free_runs(word, |start, len| {
            if let Some(counter) = summary.get_mut(self.counter_of(start, len) as usize) {
                *counter += 1;
            }
        });
        summary
    }

    /// Returns the number of realtime extents of a block of the bitmap.
    #[must_use]
    pub(crate) const fn extents_per_block(&self) -> u64 {
        self.words_per_block() * WORD_BITS
    }

    /// Returns the number of blocks of the bitmap (`sb_rbmblocks`).
    #[must_use]
    pub const fn bitmap_blocks(&self) -> u64 {
        self.room.div_ceil(self.extents_per_block())
    }

    /// Returns the number of levels of the summary.
    #[must_use]
    pub(crate) const fn levels(&self) -> u32 {
        match self.room.checked_ilog2() {
            Some(log) => log + 1,
            None => 1,
        }
    }

    /// Returns the number of blocks of the summary.
    #[must_use]
    pub const fn summary_blocks(&self) -> u64 {
        (self.levels() as u64 * self.bitmap_blocks()).div_ceil(self.words_per_block())
    }

    /// Returns the number of blocks of a file.
    #[must_use]
    pub const fn blocks_of(&self, file: SpaceFile) -> u64 {
        match file {
            SpaceFile::Bitmap => self.bitmap_blocks(),
            SpaceFile::Summary => self.summary_blocks(),
        }
    }

    /// Returns the word of the summary that counts runs of `len` free extents, at least one, from extent `start` on.
    #[must_use]
    pub const fn counter_of(&self, start: u64, len: u64) -> u64 {
        let level = match len.checked_ilog2() {
            Some(log) => log as u64,
            None => 0,
        };
        level * self.bitmap_blocks() + start / self.extents_per_block()
    }

    /// Returns the bits of word `index` of the bitmap of extents below `end`.
    #[must_use]
    pub(crate) const fn bits_below(index: u64, end: u64) -> u32 {
        match end.saturating_sub(index * WORD_BITS) {
            left if left < WORD_BITS => ((1_u64 << left) - 1) as u32,
            _ => u32::MAX,
        }
    }

    /// Returns word number `nth` of a block.
    #[must_use]
    pub fn word(&self, block: &[u8], nth: usize) -> u32 {
        let at = self.header_size() + nth * WORD_SIZE;
        let bytes = block.get(at..at + WORD_SIZE).and_then(|word| word.first_chunk());
        let bytes = bytes.copied().unwrap_or_default();
        if self.has_headers { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Returns the range of the bytes of words in a block.
    #[must_use]
    pub(crate) const fn bytes_of(&self, words: Range<usize>) -> Range<usize> {
        let start = self.header_size();
        start + words.start * WORD_SIZE..start + words.end * WORD_SIZE
    }

    /// Changes words, given their bytes. `change` receives each with its number among them.
    pub(crate) fn change(&self, bytes: &mut [u8], mut change: impl FnMut(usize, u32) -> u32) {
        for (nth, stored) in bytes.as_chunks_mut::<WORD_SIZE>().0.iter_mut().enumerate() {
            *stored = match self.has_headers {
                true => change(nth, u32::from_be_bytes(*stored)).to_be_bytes(),
                false => change(nth, u32::from_le_bytes(*stored)).to_le_bytes(),
            };
        }
    }

    /// Returns whether blocks have headers.
    #[must_use]
    pub(crate) const fn has_headers(&self) -> bool {
        self.has_headers
    }

    /// Checks a block that was read, if blocks have headers.
    ///
    /// # Errors
    /// The first problem found.
    pub fn verify(
        &self,
        geometry: &Geometry,
        (file, owner): (SpaceFile, Ino),
        place: Block,
        block: &[u8],
    ) -> Result<(), Corruption> {
        if !self.has_headers {
            return Ok(());
        }
        checksum::check(file.name(), block, CRC_OFFSET)?;
        self.verify_header(geometry, (file, owner), place, block)
    }

    /// Updates the checksum of a block, if blocks have headers.
    pub(crate) fn seal(&self, block: &mut [u8]) {
        if self.has_headers {
            checksum::seal(block, CRC_OFFSET);
        }
    }

    /// Writes the header of a new block, if blocks have headers.
    pub(crate) fn init(
        &self,
        geometry: &Geometry,
        (file, owner): (SpaceFile, Ino),
        place: Block,
        block: &mut [u8],
    ) {
        if !self.has_headers {
            return;
        }
        let header = RawSpaceHeader {
            magic: file.magic().into(),
            crc: [0; 4],
            owner: owner.0.into(),
            blkno: geometry.daddr(place).into(),
            lsn: 0.into(),
            uuid: geometry.meta_uuid,
        };
        block[..size_of::<RawSpaceHeader>()].copy_from_slice(header.as_bytes());
        self.seal(block);
    }

    /// Checks the header of a block except for its checksum, if blocks have headers.
    ///
    /// # Errors
    /// The first problem found.
    pub(crate) fn verify_header(
        &self,
        geometry: &Geometry,
        (file, owner): (SpaceFile, Ino),
        place: Block,
        block: &[u8],
    ) -> Result<(), Corruption> {
        if !self.has_headers {
            return Ok(());
        }
        let damage = |problem| Corruption::new(file.name(), problem);
        let Ok((header, _)) = RawSpaceHeader::read_from_prefix(block) else {
            return Err(damage("truncated"));
        };
        if header.magic.get() != file.magic() {
            let (expected, found) = (file.magic(), header.magic.get());
            return Err(damage("wrong magic number")
                .mismatch(format_args!("{expected:#x}"), format_args!("{found:#x}")));
        }
        if header.owner.get() != owner.0 {
            return Err(damage("owner").mismatch(owner, header.owner));
        }
        let daddr = geometry.daddr(place);
        if header.blkno.get() != daddr {
            return Err(damage("blkno").mismatch(daddr, header.blkno));
        }
        if header.uuid != geometry.meta_uuid {
            return Err(damage("it belongs to another file system"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_tools() {
        // mkfs.xfs -r rtdev=...,extsize=16k with 48 MiB.
        let classic = SpaceLayout::new(12, 3072, false);
        assert_eq!((classic.bitmap_blocks(), classic.levels()), (1, 12));
        assert_eq!(classic.summary_blocks(), 1);
        // 1 TiB in extents of 4 KiB.
        let large = SpaceLayout::new(12, 1 << 28, false);
        assert_eq!((large.bitmap_blocks(), large.levels()), (8192, 29));
        assert_eq!(large.summary_blocks(), 29 * 8192 / 1024);
        // Headers take room.
        let grouped = SpaceLayout::new(12, 32768, true);
        assert_eq!((grouped.words_per_block(), grouped.bitmap_blocks()), (1012, 2));
    }

    #[test]
    fn counters_are_by_level_and_block() {
        let layout = SpaceLayout::new(12, 100_000, false);
        assert_eq!(layout.bitmap_blocks(), 4);
        assert_eq!(layout.counter_of(0, 1), 0);
        assert_eq!(layout.counter_of(40_000, 1), 1);
        assert_eq!(layout.counter_of(40_000, 7), 2 * 4 + 1);
        let mut block = vec![0; 4096];
        let range = layout.bytes_of(3..5);
        assert_eq!(range, 12..20);
        layout.change(&mut block[range], |nth, word| word + 0x0102_0304 + nth as u32);
        assert_eq!(block[12..20], [4, 3, 2, 1, 5, 3, 2, 1]);
        assert_eq!(layout.word(&block, 4), 0x0102_0305);
        let grouped = SpaceLayout::new(12, 100_000, true);
        assert_eq!(grouped.bytes_of(0..1), 48..52);
        grouped.change(&mut block[48..52], |_, _| 1);
        assert_eq!(block[48..52], [0, 0, 0, 1]);
    }
}
