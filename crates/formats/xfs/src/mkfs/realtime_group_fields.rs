//! Options of a realtime section with groups, and the fields of the superblock that follow from them.

use vfs::{Error, Result};

use super::options::{Options, RealtimeSection};
use super::realtime_fields::extent_blocks;
use crate::format::features::Features;
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::resize::realtime::growth;

/// Minimum sizes in bytes of sections whose default groups are about a quarter, and of 1 TiB or more.
const QUARTERS_FROM: u64 = 128 << 20;
const LARGE_FROM: u64 = 4 << 40;
/// Default size of groups of sections of at least [`LARGE_FROM`], unless they are larger, in bytes.
const GROUP_BYTES_LARGE: u64 = 1 << 40;
/// Growth factor of default groups, applied until the last group is not too small.
const GROWTH: u64 = 4;
/// Minimum and maximum number of realtime extents of a group (`XFS_MIN_RGEXTENTS`, `XFS_MAX_RGEXTENTS`).
const GROUP_EXTENTS_MIN: u64 = 2;
const GROUP_EXTENTS_MAX: u64 = i32::MAX as u64;

/// Sets the fields that a file system has before its section exists, and returns the superblock with the section; `None`
/// for a section of 0 bytes.
///
/// # Errors
/// `Invalid` for an invalid size.
pub(super) fn set_fields(
    options: &Options,
    section: &RealtimeSection,
    features: &Features,
    sb: &mut RawSuperblock,
) -> Result<Option<Superblock>> {
    let of_extent = extent_blocks(options, section)?;
    let blocks = section.bytes >> sb.blocklog;
    let blocks = blocks - blocks % u64::from(of_extent);
    if section.bytes == 0 {
        return set_sizes(section, of_extent, sb).map(|()| None);
    }
    let of_group = group_blocks(section, sb.blocklog, of_extent.into(), blocks)?;
    sb.rextsize = of_extent.into();
    sb.rgextents = ((of_group / u64::from(of_extent)) as u32).into();
    sb.rgblklog = of_group.next_power_of_two().trailing_zeros() as u8;
    let base = Superblock { raw: sb.clone(), features: *features };
    let blocks = growth::without_small_group(&base, blocks);
    if blocks == 0 {
        return Err(Error::Invalid("the realtime section is smaller than a realtime group"));
    }
    growth::with_blocks(&base, blocks).map(Some)
}

/// Sets the sizes of realtime extents and groups of a file system that has no section yet.
fn set_sizes(section: &RealtimeSection, of_extent: u32, sb: &mut RawSuperblock) -> Result<()> {
    if section.group_count.is_some() {
        return Err(Error::Invalid("a number of realtime groups needs a realtime section"));
    }
    let usual = 1 << sb.rgblklog;
    let of_group = match section.group_bytes {
        Some(_) => group_blocks(section, sb.blocklog, of_extent.into(), 0)?,
        None => usual - usual % u64::from(of_extent),
    };
    sb.rextsize = of_extent.into();
    sb.rgextents = ((of_group / u64::from(of_extent)) as u32).into();
    sb.rgblklog = of_group.next_power_of_two().trailing_zeros() as u8;
    Ok(())
}

/// Returns the number of blocks of a group that mkfs.xfs chooses. The rule was observed with sections of 8 MiB to 11 TiB.
/// The last group has at least two extents. Sizes are powers of two if realtime extents are.
fn default_group_blocks(blocks: u64, block_log: u8, of_extent: u64) -> u64 {
    let extents = blocks / of_extent;
    let bytes = blocks << block_log;
    let (share, is_large) = match bytes {
        LARGE_FROM.. => (GROUP_BYTES_LARGE >> block_log, true),
        QUARTERS_FROM.. => (blocks.div_ceil(4), false),
        _ => (blocks, false),
    };
    let is_too_small = |group: u64| extents % group < GROUP_EXTENTS_MIN;
    let usual = match of_extent.is_power_of_two() {
        true if is_large => share,
        true => share.next_power_of_two() / 2,
        false => share,
    };
    let mut group = (usual / of_extent).clamp(GROUP_EXTENTS_MIN, GROUP_EXTENTS_MAX);
    while is_too_small(group) {
        let next = if of_extent.is_power_of_two() { group * GROWTH } else { group + 1 };
        if next > GROUP_EXTENTS_MAX {
            group = (group + 1).min(GROUP_EXTENTS_MAX);
            break;
        }
        group = next;
    }
    group * of_extent
}

/// Returns the number of blocks of a group.
fn group_blocks(
    section: &RealtimeSection,
    block_log: u8,
    of_extent: u64,
    blocks: u64,
) -> Result<u64> {
    let of_group = match (section.group_bytes, section.group_count) {
        (Some(_), Some(_)) => {
            return Err(Error::Invalid(
                "set the number of realtime groups or their size, not both",
            ));
        }
        (Some(bytes), None) => bytes >> block_log,
        (None, Some(0)) => return Err(Error::Invalid("a realtime section has at least one group")),
        (None, Some(count)) => (blocks / of_extent).div_ceil(count.into()) * of_extent,
        (None, None) => default_group_blocks(blocks, block_log, of_extent),
    };
    if !of_group.is_multiple_of(of_extent) {
        return Err(Error::Invalid(
            "the size of realtime groups must be a multiple of the realtime extent size",
        ));
    }
    let extents = of_group / of_extent;
    if !(GROUP_EXTENTS_MIN..=GROUP_EXTENTS_MAX).contains(&extents) || of_group > u32::MAX.into() {
        return Err(Error::Invalid(
            "realtime groups must have 2 to 2^31 - 1 realtime extents, and less than 2^32 blocks",
        ));
    }
    Ok(of_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes are those of `mkfs.xfs -N -m metadir=1 -r rtdev=`.
    #[test]
    fn default_groups_are_those_of_mkfs_xfs() {
        let of = |mib: u64, extent: u64| {
            default_group_blocks((mib << 8) - (mib << 8) % extent, 12, extent) / extent
        };
        for (mib, group) in [
            (8, 4096),
            (16, 8192),
            (17, 4096),
            (64, 32768),
            (100, 16384),
            (127, 16384),
            (128, 65536),
            (129, 8192),
            (160, 32768),
            (176, 8192),
            (200, 8192),
            (256, 131_072),
            (1000, 32768),
            (3 << 10, 524_288),
            (5 << 10, 1 << 20),
            (13 << 10, 524_288),
            (100 << 10, 4_194_304),
            (1 << 20, 536_870_912),
            (2 << 20, 1 << 30),
            (3 << 20, 1 << 29),
            (4 << 20, (1 << 30) + 1),
            (5 << 20, 1 << 30),
            (8 << 20, (1 << 30) + 1),
            (11 << 20, 1 << 30),
        ] {
            assert_eq!(of(mib, 1), group, "{mib} MiB");
        }
        for (mib, extent, group) in [
            (17, 7, 622),
            (129, 7, 1180),
            (160, 7, 1462),
            (512, 7, 4682),
            (10 << 10, 7, 93_622),
            (17, 256, 64),
            (129, 256, 512),
            (160, 16, 2048),
            (100 << 10, 2, 2_097_152),
        ] {
            assert_eq!(of(mib, extent), group, "{mib} MiB, extents of {extent} blocks");
        }
    }
}
