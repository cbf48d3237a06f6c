//! Group descriptors: positions of a block group's bitmaps and inode table, and its free counts.
//!
//! A descriptor has 32 bytes, or `desc_size` bytes with 64-bit block numbers, of which 64 are defined. All blocks of a
//! parsed descriptor are inside the file system.

use bitflags::bitflags;
use vfs::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address::{Block, Group};
use super::checksum;
use super::features::Incompat;
use super::geometry::Geometry;
use super::superblock::Superblock;

bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table are not initialised: all inodes are free.
        const INODE_UNINIT = 1;
        /// The block bitmap is not initialised: all blocks are free except the group's own metadata.
        const BLOCK_UNINIT = 2;
        /// The unused part of the inode table is zero on disk.
        const INODE_ZEROED = 4;
    }
}

/// First part of a descriptor, which all sizes have. Field names as in the format document, without `bg_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLow {
    block_bitmap_lo: U32,
    inode_bitmap_lo: U32,
    inode_table_lo: U32,
    free_blocks_count_lo: U16,
    free_inodes_count_lo: U16,
    used_dirs_count_lo: U16,
    flags: U16,
    exclude_bitmap_lo: U32,
    block_bitmap_csum_lo: U16,
    inode_bitmap_csum_lo: U16,
    itable_unused_lo: U16,
    checksum: U16,
}

/// Second part, with 64-bit block numbers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHigh {
    block_bitmap_hi: U32,
    inode_bitmap_hi: U32,
    inode_table_hi: U32,
    free_blocks_count_hi: U16,
    free_inodes_count_hi: U16,
    used_dirs_count_hi: U16,
    itable_unused_hi: U16,
    exclude_bitmap_hi: U32,
    block_bitmap_csum_hi: U16,
    inode_bitmap_csum_hi: U16,
    reserved: U32,
}

const _: () = assert!(size_of::<RawLow>() == 32);
const _: () = assert!(size_of::<RawHigh>() == 32);
const CHECKSUM_OFFSET: usize = std::mem::offset_of!(RawLow, checksum);

/// A group descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDescriptor {
    /// Block of the block bitmap.
    pub block_bitmap: Block,
    /// Block of the inode bitmap.
    pub inode_bitmap: Block,
    /// First block of the inode table.
    pub inode_table: Block,
    /// Number of free clusters (blocks without `bigalloc`).
    pub free_blocks: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of inodes that are directories.
    pub used_dirs: u32,
    /// Number of inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// Initialisation state.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; 16 bits in a 32-byte descriptor.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; 16 bits in a 32-byte descriptor.
    pub inode_bitmap_csum: u32,
}

impl GroupDescriptor {
    /// Parses and checks the descriptor of `group` in `bytes`, which has `sb.desc_size` bytes.
    ///
    /// # Errors
    /// A wrong checksum, a bitmap or table outside the file system, or free counts that are too large.
    pub fn parse(bytes: &[u8], sb: &Superblock, group: Group) -> Result<Self, Corruption> {
        Self::check_sum(bytes, sb, group)?;
        Self::parse_unsealed(bytes, sb, group)
    }

    /// Verifies only the descriptor's checksum.
    ///
    /// # Errors
    /// A wrong checksum.
    pub(crate) fn check_sum(bytes: &[u8], sb: &Superblock, group: Group) -> Result<(), Corruption> {
        let stored = RawLow::ref_from_prefix(bytes).map(|(low, _)| low.checksum);
        match (checksum_of(bytes, sb, group), stored) {
            (Some(computed), Ok(stored)) if stored != computed => {
                let (computed, stored) = (u32::from(computed), u32::from(stored.get()));
                let damage = Corruption::checksum("group descriptor", computed, stored);
                Err(damage.in_group(u64::from(group.0)))
            }
            _ => Ok(()),
        }
    }

    /// Like [`Self::parse`], but ignores the checksum.
    ///
    /// # Errors
    /// Like [`Self::parse`], except for the checksum.
    pub fn parse_unsealed(bytes: &[u8], sb: &Superblock, group: Group) -> Result<Self, Corruption> {
        let in_group = |c: Corruption| c.in_group(u64::from(group.0));
        let Ok((low, rest)) = RawLow::read_from_prefix(bytes) else {
            return Err(in_group(Corruption::new("group descriptor", "truncated")));
        };
        let high = match RawHigh::read_from_prefix(rest) {
            Ok((high, _)) => high,
            Err(_) => RawHigh::new_zeroed(),
        };
        let descriptor = Self::join(&low, &high);
        descriptor.check(sb).map_err(in_group)?;
        Ok(descriptor)
    }

    /// Writes the descriptor over the old one (`sb.desc_size` bytes) and updates its checksum. Bytes past the defined
    /// fields are kept.
    pub fn write(&self, bytes: &mut [u8], sb: &Superblock, group: Group) {
        let (mut new_low, mut new_high) = self.split();
        // Snapshots were never merged, but the address of their bitmap must be kept. A slice that is too short for a
        // part does not have it.
        if let Ok((low, rest)) = RawLow::mut_from_prefix(bytes) {
            new_low.exclude_bitmap_lo = low.exclude_bitmap_lo;
            *low = new_low;
            if let Ok((high, _)) = RawHigh::mut_from_prefix(rest) {
                new_high.exclude_bitmap_hi = high.exclude_bitmap_hi;
                *high = new_high;
            }
        }
        if let Some(checksum) = checksum_of(bytes, sb, group) {
            bytes[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Verifies the block bitmap with the descriptor's checksum.
    pub fn check_block_bitmap(
        &self,
        bitmap: &[u8],
        sb: &Superblock,
        group: Group,
    ) -> Result<(), Corruption> {
        let computed = block_bitmap_checksum(bitmap, sb);
        check_bitmap("block bitmap", computed, self.block_bitmap_csum, sb)
            .map_err(|c| c.in_group(u64::from(group.0)).at_block(self.block_bitmap.0))
    }

    /// Verifies the inode bitmap with the descriptor's checksum.
    pub fn check_inode_bitmap(
        &self,
        bitmap: &[u8],
        sb: &Superblock,
        group: Group,
    ) -> Result<(), Corruption> {
        let computed = inode_bitmap_checksum(bitmap, sb);
        check_bitmap("inode bitmap", computed, self.inode_bitmap_csum, sb)
            .map_err(|c| c.in_group(u64::from(group.0)).at_block(self.inode_bitmap.0))
    }

    fn join(low: &RawLow, high: &RawHigh) -> Self {
        let block = |lo: U32, hi: U32| Block(u64::from(hi.get()) << 32 | u64::from(lo.get()));
        let count = |lo: U16, hi: U16| u32::from(hi.get()) << 16 | u32::from(lo.get());
        Self {
            block_bitmap: block(low.block_bitmap_lo, high.block_bitmap_hi),
            inode_bitmap: block(low.inode_bitmap_lo, high.inode_bitmap_hi),
            inode_table: block(low.inode_table_lo, high.inode_table_hi),
            free_blocks: count(low.free_blocks_count_lo, high.free_blocks_count_hi),
            free_inodes: count(low.free_inodes_count_lo, high.free_inodes_count_hi),
            used_dirs: count(low.used_dirs_count_lo, high.used_dirs_count_hi),
            itable_unused: count(low.itable_unused_lo, high.itable_unused_hi),
            flags: GroupFlags::from_bits_retain(low.flags.get()),
            block_bitmap_csum: count(low.block_bitmap_csum_lo, high.block_bitmap_csum_hi),
            inode_bitmap_csum: count(low.inode_bitmap_csum_lo, high.inode_bitmap_csum_hi),
        }
    }

    fn split(&self) -> (RawLow, RawHigh) {
        let lo = |v: u32| U16::new(v as u16);
        let hi = |v: u32| U16::new((v >> 16) as u16);
        let block_lo = |b: Block| U32::new(b.0 as u32);
        let block_hi = |b: Block| U32::new((b.0 >> 32) as u32);
        let low = RawLow {
            block_bitmap_lo: block_lo(self.block_bitmap),
            inode_bitmap_lo: block_lo(self.inode_bitmap),
            inode_table_lo: block_lo(self.inode_table),
            free_blocks_count_lo: lo(self.free_blocks),
            free_inodes_count_lo: lo(self.free_inodes),
            used_dirs_count_lo: lo(self.used_dirs),
            flags: self.flags.bits().into(),
            exclude_bitmap_lo: 0.into(),
            block_bitmap_csum_lo: lo(self.block_bitmap_csum),
            inode_bitmap_csum_lo: lo(self.inode_bitmap_csum),
            itable_unused_lo: lo(self.itable_unused),
            checksum: 0.into(),
        };
        let high = RawHigh {
            block_bitmap_hi: block_hi(self.block_bitmap),
            inode_bitmap_hi: block_hi(self.inode_bitmap),
            inode_table_hi: block_hi(self.inode_table),
            free_blocks_count_hi: hi(self.free_blocks),
            free_inodes_count_hi: hi(self.free_inodes),
            used_dirs_count_hi: hi(self.used_dirs),
            itable_unused_hi: hi(self.itable_unused),
            exclude_bitmap_hi: 0.into(),
            block_bitmap_csum_hi: hi(self.block_bitmap_csum),
            inode_bitmap_csum_hi: hi(self.inode_bitmap_csum),
            reserved: 0.into(),
        };
        (low, high)
    }

    /// Returns the fields of a descriptor without any check. Returns `None` if there are too few bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (low, rest) = RawLow::read_from_prefix(bytes).ok()?;
        let high = RawHigh::read_from_prefix(rest);
        Some(Self::join(&low, &high.map_or_else(|_| RawHigh::new_zeroed(), |(high, _)| high)))
    }

    fn check(&self, sb: &Superblock) -> Result<(), Corruption> {
        self.check_places(sb)?;
        self.check_counts(sb)
    }

    /// Checks that bitmaps and table are inside the file system.
    pub(crate) fn check_places(&self, sb: &Superblock) -> Result<(), Corruption> {
        let first = u64::from(sb.first_data_block);
        let inodes_per_block = sb.block_size() / u32::from(sb.inode_size);
        let table_blocks = u64::from(sb.inodes_per_group.div_ceil(inodes_per_block));
        let places = [
            ("block bitmap outside the file system", self.block_bitmap, 1),
            ("inode bitmap outside the file system", self.inode_bitmap, 1),
            ("inode table outside the file system", self.inode_table, table_blocks),
        ];
        for (problem, start, len) in places {
            // The first block of the file system contains the superblock.
            if start.0 <= first || start.plus(len).0 > sb.blocks_count {
                let range = format!("{len} blocks in {}..{}", first + 1, sb.blocks_count);
                return Err(Corruption::new("group descriptor", problem).mismatch(range, start));
            }
        }
        Ok(())
    }

    /// Like [`Self::check_places`]. Without `flex_bg`, they must also be in their own group.
    pub(crate) fn check_places_in(
        &self,
        sb: &Superblock,
        geometry: &Geometry,
        group: Group,
    ) -> Result<(), Corruption> {
        self.check_places(sb)?;
        if sb.features.incompat(Incompat::FLEX_BG) {
            return Ok(());
        }
        let table = (self.inode_table, u64::from(geometry.itable_blocks()));
        for (start, len) in [(self.block_bitmap, 1), (self.inode_bitmap, 1), table] {
            let last = start.plus(len - 1);
            if geometry.group_of(start) != group || geometry.group_of(last) != group {
                let damage = Corruption::new("group descriptor", "not in its own group");
                return Err(damage.mismatch(format_args!("blocks of group {group}"), start));
            }
        }
        Ok(())
    }

    fn check_counts(&self, sb: &Superblock) -> Result<(), Corruption> {
        let clusters_per_group = sb.blocks_per_group >> sb.cluster_blocks_log;
        let counts = [
            ("free blocks", self.free_blocks, clusters_per_group),
            ("free inodes", self.free_inodes, sb.inodes_per_group),
            ("directories", self.used_dirs, sb.inodes_per_group),
            ("unused inodes", self.itable_unused, sb.inodes_per_group),
        ];
        for (what, found, max) in counts {
            if found > max {
                return Err(Corruption::new("group descriptor", format!("too many {what}"))
                    .mismatch(format_args!("at most {max}"), found));
            }
        }
        Ok(())
    }
}

/// Returns the checksum of a descriptor with its checksum field as 0, if the file system has such checksums.
fn checksum_of(bytes: &[u8], sb: &Superblock, group: Group) -> Option<u16> {
    let number = group.0.to_le_bytes();
    let (before, after) = (bytes.get(..CHECKSUM_OFFSET)?, bytes.get(CHECKSUM_OFFSET + 2..)?);
    if sb.features.metadata_csum() {
        let crc = checksum::crc32c(checksum::crc32c(sb.checksum_seed, &number), before);
        return Some(checksum::crc32c(checksum::crc32c(crc, &[0, 0]), after) as u16);
    }
    // The older CRC-16 skips its own field.
    sb.features.group_csum().then(|| {
        let crc = checksum::crc16(checksum::crc16(u16::MAX, &sb.raw.uuid), &number);
        checksum::crc16(checksum::crc16(crc, before), after)
    })
}

/// Returns the checksum of a block bitmap. It covers the bits of a full group even if the group is shorter.
#[must_use]
pub fn block_bitmap_checksum(bitmap: &[u8], sb: &Superblock) -> u32 {
    let clusters_per_group = sb.blocks_per_group >> sb.cluster_blocks_log;
    bitmap_checksum(bitmap, clusters_per_group, sb)
}

/// Returns the checksum of an inode bitmap, over the bits of the group's inodes.
#[must_use]
pub fn inode_bitmap_checksum(bitmap: &[u8], sb: &Superblock) -> u32 {
    bitmap_checksum(bitmap, sb.inodes_per_group, sb)
}

fn bitmap_checksum(bitmap: &[u8], bits: u32, sb: &Superblock) -> u32 {
    let len = bitmap.len().min(bits as usize / 8);
    checksum::crc32c(sb.checksum_seed, &bitmap[..len])
}

/// Compares the computed checksum of a bitmap with the stored one, but only the bits that a descriptor has on disk. A
/// descriptor in memory may have more.
pub(crate) fn check_bitmap(
    structure: &'static str,
    computed: u32,
    stored: u32,
    sb: &Superblock,
) -> Result<(), Corruption> {
    let mask = if sb.desc_size >= 64 { u32::MAX } else { 0xffff };
    let (computed, stored) = (computed & mask, stored & mask);
    if !sb.features.metadata_csum() || computed == stored {
        return Ok(());
    }
    Err(Corruption::checksum(structure, computed, stored))
}
