//! The realtime section: addresses of the contents of realtime files, and the superblock of its groups.
//!
//! Without groups, an address is the number of a block of the realtime device. With groups (`metadir`), it has the
//! group in the bits from `sb_rgblklog` up, and the block within the group below. Groups follow one another on the
//! device.
//!
//! The groups of a zoned device are zones. It has no superblock, no bitmaps and no summaries; the reverse maps contain the
//! used space. Internal zones follow the data on the same device, from `sb_rtstart` up.
//!
//! Space is allocated in realtime extents of `sb_rextsize` blocks. The [bitmap and the summary](space) of the free ones
//! are files on the data device.

pub mod space;

use std::ops::Range;

use disk::DeviceRole;
use engine::Corruption;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address::FsBlock;
use super::checksum;
use super::features::Incompat;
use super::superblock::Superblock;
use space::SpaceLayout;

/// `rsb_magicnum`: "Frog".
const MAGIC: u32 = 0x4672_6f67;
/// Byte offset of the checksum, which covers the first block of the device.
const CRC_OFFSET: usize = 4;
/// Name of the structure in errors.
const NAME: &str = "realtime superblock";
/// Maximum size of a realtime device as a power of two, in bytes.
const BYTES_LOG_MAX: u32 = 60;

/// The superblock of the realtime groups, in the first block of the device (`struct xfs_rtsb`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation, without rsb_")]
pub struct RawRealtimeSuperblock {
    pub magicnum: U32,
    pub crc: [u8; 4],
    pub pad: U32,
    pub fname: [u8; 12],
    pub uuid: [u8; 16],
    pub meta_uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawRealtimeSuperblock>() == 56);
const _: () = assert!(std::mem::offset_of!(RawRealtimeSuperblock, crc) == CRC_OFFSET);

impl RawRealtimeSuperblock {
    /// Returns the first block of the realtime device of a file system.
    #[must_use]
    pub(crate) fn block(sb: &Superblock) -> Vec<u8> {
        let raw = Self {
            magicnum: MAGIC.into(),
            crc: [0; 4],
            pad: 0.into(),
            fname: sb.raw.fname,
            uuid: sb.raw.uuid,
            meta_uuid: match sb.features.incompat(Incompat::META_UUID) {
                true => sb.raw.meta_uuid,
                false => sb.raw.uuid,
            },
        };
        let mut block = vec![0; 1 << sb.raw.blocklog];
        block[..size_of::<Self>()].copy_from_slice(raw.as_bytes());
        checksum::seal(&mut block, CRC_OFFSET);
        block
    }

    /// Parses the first block of a realtime device; `None` if it has another magic number.
    ///
    /// # Errors
    /// `Corrupt` for a wrong checksum.
    pub fn parse(block: &[u8]) -> Result<Option<Self>, Corruption> {
        let Ok((raw, _)) = Self::read_from_prefix(block) else { return Ok(None) };
        if raw.magicnum.get() != MAGIC {
            return Ok(None);
        }
        checksum::check(NAME, block, CRC_OFFSET)?;
        Ok(Some(raw))
    }
}

/// Realtime groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    /// Number of blocks of a group; the last one may have fewer.
    blocks: u64,
    /// Number of groups.
    count: u32,
    /// Number of bits of the block number in an address.
    block_log: u8,
}

/// Geometry of the realtime section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Realtime {
    /// Total number of blocks.
    blocks: u64,
    /// Block size as a power of two.
    block_log: u8,
    /// Number of blocks of a realtime extent.
    extent_blocks: u32,
    groups: Option<Groups>,
    /// True if the groups are zones.
    is_zoned: bool,
    /// First block on the data device (`sb_rtstart`); 0 if the section is on another device.
    start: u64,
}

impl Realtime {
    /// Returns the geometry according to a superblock; `None` without a realtime section.
    ///
    /// # Errors
    /// `Corrupt` if the fields contradict each other.
    pub fn of(sb: &Superblock) -> Result<Option<Self>, Corruption> {
        let raw = &sb.raw;
        let (blocks, block_log) = (raw.rblocks.get(), raw.blocklog);
        if blocks == 0 {
            return Ok(None);
        }
        let damage = |field: &str| Corruption::new("superblock", field);
        if blocks > 1 << (BYTES_LOG_MAX - u32::from(block_log)) {
            return Err(damage("rblocks").mismatch("at most 1 EiB", blocks));
        }
        let extent_blocks = raw.rextsize.get();
        if extent_blocks == 0 || u64::from(extent_blocks) > blocks {
            return Err(damage("rextsize").mismatch(format_args!("1 to {blocks}"), extent_blocks));
        }
        if !sb.features.incompat(Incompat::METADIR) {
            let plain =
                Self { blocks, block_log, extent_blocks, groups: None, is_zoned: false, start: 0 };
            return Ok(Some(plain));
        }
        let (count, log) = (raw.rgcount.get(), raw.rgblklog);
        let of_group = u64::from(raw.rgextents.get()) * u64::from(raw.rextsize.get());
        if of_group == 0 || u64::from(count) != blocks.div_ceil(of_group) {
            let found = format_args!("{count} groups of {of_group} blocks");
            return Err(
                damage("rgcount").mismatch(format_args!("groups of {blocks} blocks"), found)
            );
        }
        if of_group > u64::from(u32::MAX) {
            return Err(damage("rgextents").mismatch("groups of less than 2^32 blocks", of_group));
        }
        if u32::from(log) > BYTES_LOG_MAX || of_group > 1 << log {
            let expected = of_group.next_power_of_two().trailing_zeros();
            return Err(damage("rgblklog").mismatch(expected, log));
        }
        let groups = Some(Groups { blocks: of_group, count, block_log: log });
        let is_zoned = sb.features.incompat(Incompat::ZONED);
        let start = if is_zoned { raw.rtstart.get() } else { 0 };
        if start != 0
            && (start < raw.dblocks.get() || start > 1 << (BYTES_LOG_MAX - u32::from(block_log)))
        {
            let expected = format_args!("0, or {} and more", raw.dblocks);
            return Err(damage("rtstart").mismatch(expected, start));
        }
        Ok(Some(Self { blocks, block_log, extent_blocks, groups, is_zoned, start }))
    }

    /// Returns whether the groups are zones, which are written sequentially.
    #[must_use]
    pub(crate) const fn is_zoned(&self) -> bool {
        self.is_zoned
    }

    /// Returns whether the section is on the data device, after the data.
    #[must_use]
    pub(crate) const fn is_internal(&self) -> bool {
        self.start != 0
    }

    /// Returns the address of a block of the section, as a device with all parts has it.
    #[must_use]
    pub(crate) const fn byte_of(&self, block: u64) -> u64 {
        match self.start {
            0 => DeviceRole::Realtime.start() + (block << self.block_log),
            start => (start + block) << self.block_log,
        }
    }

    /// Returns its size in bytes.
    #[must_use]
    pub(crate) const fn bytes(&self) -> u64 {
        self.blocks << self.block_log
    }

    /// Returns the number of blocks of a realtime extent (`sb_rextsize`).
    #[must_use]
    pub const fn extent_blocks(&self) -> u32 {
        self.extent_blocks
    }

    /// Returns the number of realtime extents (`sb_rextents`). Blocks after the last whole one are not used.
    #[must_use]
    pub const fn extents(&self) -> u64 {
        self.blocks / self.extent_blocks as u64
    }

    /// Returns the realtime extents that contain blocks at an address, counted from the start of the device; `None` if
    /// the blocks are not all within whole ones.
    #[must_use]
    pub fn extents_of(&self, start: FsBlock, len: u64) -> Option<Range<u64>> {
        let first = self.device_block(start, len)?;
        let of_extent = u64::from(self.extent_blocks);
        let range = first / of_extent..(first + len).div_ceil(of_extent);
        (range.end <= self.extents()).then_some(range)
    }

    /// Returns the layout of the bitmap and the summary of a group, or of the whole section as group 0 without groups.
    #[must_use]
    pub fn space(&self, group: u32) -> SpaceLayout {
        let layout = SpaceLayout::new(self.block_log, self.extents(), self.has_groups());
        match self.groups {
            None => layout,
            Some(groups) => layout.of_group(groups.blocks / u64::from(self.extent_blocks), group),
        }
    }

    /// Returns the number of groups; 1 without groups.
    #[must_use]
    pub(crate) fn groups(&self) -> u32 {
        self.groups.map_or(1, |groups| groups.count)
    }

    /// Returns the number of blocks of each group but the last one, which may have fewer.
    #[must_use]
    pub(crate) fn group_blocks(&self) -> u32 {
        let blocks = self.groups.map_or(self.blocks, |groups| groups.blocks);
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// Returns the group of a block of the device, and the number of the block in it.
    #[must_use]
    pub(crate) fn locate(&self, block: u64) -> (u32, u64) {
        match self.groups {
            None => (0, block),
            Some(groups) => ((block / groups.blocks) as u32, block % groups.blocks),
        }
    }

    /// Returns the address of a block of a group, as in extent maps.
    #[must_use]
    pub(crate) fn address(&self, group: u32, block: u64) -> FsBlock {
        let log = self.groups.map_or(0, |groups| groups.block_log);
        FsBlock(u64::from(group) << log | block)
    }

    /// Returns the logarithm of the distance of the addresses of two groups; `None` without groups.
    #[must_use]
    pub(crate) fn group_block_log(&self) -> Option<u8> {
        self.groups.map(|groups| groups.block_log)
    }

    /// Returns whether the section is divided into groups, each with a bitmap and a summary.
    #[must_use]
    pub(crate) const fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Returns whether the device starts with a superblock.
    #[must_use]
    pub(crate) const fn has_superblock(&self) -> bool {
        self.groups.is_some() && !self.is_zoned
    }

    /// Returns the number on the device of the first of `len` blocks at an address; `None` if they are not all within
    /// the section, or within one group.
    #[must_use]
    pub(crate) fn device_block(&self, start: FsBlock, len: u64) -> Option<u64> {
        let first = match self.groups {
            None => start.0,
            Some(groups) => {
                let group = start.0 >> groups.block_log;
                let block = start.0 & ((1 << groups.block_log) - 1);
                let is_within = group < u64::from(groups.count)
                    && block.checked_add(len).is_some_and(|end| end <= groups.blocks);
                is_within.then(|| group * groups.blocks + block)?
            }
        };
        first.checked_add(len).filter(|end| *end <= self.blocks).map(|_| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Realtime = Realtime {
        blocks: 100,
        block_log: 12,
        extent_blocks: 1,
        groups: None,
        is_zoned: false,
        start: 0,
    };

    #[test]
    fn internal_zones_follow_the_data() {
        assert_eq!(PLAIN.byte_of(2), DeviceRole::Realtime.start() + 8192);
        assert_eq!(Realtime { start: 16, is_zoned: true, ..PLAIN }.byte_of(2), 18 << 12);
    }

    #[test]
    fn addresses_are_numbered_by_groups() {
        let plain = PLAIN;
        assert_eq!(plain.device_block(FsBlock(90), 10), Some(90));
        assert_eq!(plain.device_block(FsBlock(90), 11), None);
        assert_eq!(plain.device_block(FsBlock(u64::MAX), 2), None);
        let groups = Groups { blocks: 40, count: 3, block_log: 6 };
        let grouped = Realtime { groups: Some(groups), ..plain };
        assert_eq!(grouped.device_block(FsBlock(64 + 7), 33), Some(47));
        assert_eq!(grouped.device_block(FsBlock(64 + 7), 34), None);
        // The last group is shorter.
        assert_eq!(grouped.device_block(FsBlock(2 * 64 + 10), 10), Some(90));
        assert_eq!(grouped.device_block(FsBlock(2 * 64 + 10), 11), None);
        assert_eq!(grouped.device_block(FsBlock(3 * 64), 1), None);
        assert_eq!(grouped.device_block(FsBlock(63), u64::MAX), None);
    }

    #[test]
    fn extents_contain_whole_blocks() {
        let realtime = Realtime { blocks: 103, extent_blocks: 4, ..PLAIN };
        assert_eq!(realtime.extents(), 25);
        assert_eq!(realtime.extents_of(FsBlock(4), 4), Some(1..2));
        assert_eq!(realtime.extents_of(FsBlock(3), 2), Some(0..2));
        assert_eq!(realtime.extents_of(FsBlock(96), 4), Some(24..25));
        // Blocks after the last whole extent belong to none.
        assert_eq!(realtime.extents_of(FsBlock(96), 5), None);
    }
}
