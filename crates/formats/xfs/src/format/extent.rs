//! Extents as stored in the inode or in the leaves of extent map trees: 128 bits each (`xfs_bmbt_rec_t`).

use engine::Corruption;

use super::address::{FileBlock, FsBlock};
use super::bytes::{be64, put64};
use super::geometry::Geometry;
use super::realtime::Realtime;

/// Size of an extent on disk in bytes.
pub(crate) const EXTENT_SIZE: usize = 16;
/// Maximum length of an extent in blocks: 21 bits.
pub(crate) const LEN_MAX: u64 = (1 << 21) - 1;

/// Number of bits of the first logical block; above them is the unwritten flag.
const OFFSET_BITS: u32 = 54;
/// Number of bits of the first block that are in the upper half of the record.
const START_HIGH_BITS: u32 = 9;
/// Number of bits of the length, at the bottom of the lower half.
const LEN_BITS: u32 = 21;

const _: () = assert!(1 + OFFSET_BITS + START_HIGH_BITS == u64::BITS);
const _: () = assert!(FileBlock::END.0 == 1 << OFFSET_BITS);

/// Contiguous blocks of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub offset: FileBlock,
    /// First block.
    pub start: FsBlock,
    /// Number of blocks: 1 to `LEN_MAX`.
    pub len: u64,
    /// True if they are unwritten and read as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Parses the extent in the first 16 bytes of `record`. Does not check it.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn parse(record: &[u8]) -> Self {
        let (high, low) = (be64(record, 0), be64(record, 8));
        let start_high = high & ((1 << START_HIGH_BITS) - 1);
        Self {
            offset: offset_of(record),
            start: FsBlock(start_high << (u64::BITS - LEN_BITS) | low >> LEN_BITS),
            len: low & LEN_MAX,
            unwritten: high >> (u64::BITS - 1) != 0,
        }
    }

    /// Writes the extent into the first 16 bytes of `record`.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn put(&self, record: &mut [u8]) {
        let state = u64::from(self.unwritten) << (u64::BITS - 1);
        let start_high = self.start.0 >> (u64::BITS - LEN_BITS);
        put64(record, 0, state | self.offset.0 << START_HIGH_BITS | start_high);
        put64(record, 8, self.start.0 << LEN_BITS | self.len);
    }

    /// Returns one past its last logical block.
    #[must_use]
    pub(crate) const fn end(&self) -> FileBlock {
        self.offset.plus(self.len)
    }

    /// Returns the part of it within the logical blocks `from..to`. `None` if that is empty.
    #[must_use]
    pub(crate) fn part(&self, from: FileBlock, to: FileBlock) -> Option<Self> {
        let (from, to) = (from.max(self.offset), to.min(self.end()));
        let skip = from.0.checked_sub(self.offset.0)?;
        let len = to.0.checked_sub(from.0).filter(|len| *len > 0)?;
        Some(Self { offset: from, start: self.start.plus(skip), len, ..*self })
    }

    /// Returns both joined, if `next` continues this one in every respect and the length does not overflow.
    #[must_use]
    pub(crate) fn joined(&self, next: &Self) -> Option<Self> {
        let continues = self.end() == next.offset
            && self.start.plus(self.len) == next.start
            && self.unwritten == next.unwritten
            && self.len + next.len <= LEN_MAX;
        continues.then_some(Self { len: self.len + next.len, ..*self })
    }

    /// Like [`Self::check`], for an extent of a realtime file.
    pub(crate) fn check_realtime(&self, realtime: &Realtime) -> Result<(), Corruption> {
        let is_sound = self.len > 0
            && self.end() <= FileBlock::END
            && realtime.extents_of(self.start, self.len).is_some();
        if is_sound {
            return Ok(());
        }
        let found = format_args!("{} blocks at {}, from {}", self.len, self.offset, self.start);
        let damage = Corruption::new("extent", "invalid extent");
        Err(damage.mismatch("blocks of the realtime device", found))
    }

    /// Checks that it is not empty, is within one group, and does not end past the last logical block.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), Corruption> {
        let is_sound =
            self.len > 0 && self.end() <= FileBlock::END && geometry.contains(self.start, self.len);
        if is_sound {
            return Ok(());
        }
        let found = format_args!("{} blocks at {}, from {}", self.len, self.offset, self.start);
        let damage = Corruption::new("extent", "invalid extent");
        Err(damage.mismatch("blocks of one allocation group", found))
    }
}

/// Returns the first logical block of the extent in `record`.
pub(crate) fn offset_of(record: &[u8]) -> FileBlock {
    FileBlock(be64(record, 0) >> START_HIGH_BITS & ((1 << OFFSET_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_restored_from_its_record() {
        let extents = [
            Extent { offset: FileBlock(0), start: FsBlock(1), len: 1, unwritten: false },
            Extent {
                offset: FileBlock((1 << 54) - 1),
                start: FsBlock((1 << 52) - 1),
                len: LEN_MAX,
                unwritten: true,
            },
            Extent {
                offset: FileBlock(0x12_3456_789a_bcde),
                start: FsBlock(0xf_edcb_a987_6543),
                len: 0x1_2345,
                unwritten: false,
            },
        ];
        for extent in extents {
            let mut record = [0; EXTENT_SIZE];
            extent.put(&mut record);
            assert_eq!(Extent::parse(&record), extent);
            assert_eq!(offset_of(&record), extent.offset);
        }
    }

    #[test]
    fn the_record_is_laid_out_as_the_format_says() {
        let extent =
            Extent { offset: FileBlock(1), start: FsBlock(1 << 43 | 2), len: 3, unwritten: true };
        let mut record = [0; EXTENT_SIZE];
        extent.put(&mut record);
        assert_eq!(be64(&record, 0), 1 << 63 | 1 << 9 | 1);
        assert_eq!(be64(&record, 8), 2 << 21 | 3);
    }

    #[test]
    fn only_what_continues_in_every_respect_is_joined() {
        let first = Extent { offset: FileBlock(5), start: FsBlock(50), len: 3, unwritten: false };
        let next = Extent { offset: FileBlock(8), start: FsBlock(53), len: 2, unwritten: false };
        assert_eq!(first.joined(&next), Some(Extent { len: 5, ..first }));
        assert_eq!(first.joined(&Extent { start: FsBlock(54), ..next }), None);
        assert_eq!(first.joined(&Extent { offset: FileBlock(9), ..next }), None);
        assert_eq!(first.joined(&Extent { unwritten: true, ..next }), None);
        assert_eq!(first.joined(&Extent { len: LEN_MAX - 2, ..next }), None);
        assert_eq!(
            first.part(FileBlock(6), FileBlock(7)).map(|p| (p.start, p.len)),
            Some((FsBlock(51), 1))
        );
        assert_eq!(first.part(FileBlock(8), FileBlock(9)), None);
    }
}
