//! Options of a realtime section with groups, and the fields of the superblock that follow from them.

use vfs::{Error, Result};

use super::options::{Options, RealtimeSection};
use super::realtime_fields::extent_blocks;
use crate::format::features::Features;
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::resize::realtime::growth;

/// Divisor of the section for the default size of groups, which is then rounded down to a power of two.
const GROUPS_USUAL: u64 = 4;
/// Minimum and maximum default size of groups in bytes.
const GROUP_BYTES_MIN: u64 = 16 << 20;
const GROUP_BYTES_MAX: u64 = 1 << 40;
/// Minimum and maximum number of realtime extents of a group (`XFS_MIN_RGEXTENTS`, `XFS_MAX_RGEXTENTS`).
const GROUP_EXTENTS_MIN: u64 = 2;
const GROUP_EXTENTS_MAX: u64 = i32::MAX as u64;

/// Sets the fields that a file system has before its section exists, and returns the superblock with the section.
///
/// # Errors
/// `Invalid` for an invalid size.
pub(super) fn set_fields(
    options: &Options,
    section: &RealtimeSection,
    features: &Features,
    sb: &mut RawSuperblock,
) -> Result<Superblock> {
    let of_extent = extent_blocks(options, section)?;
    let blocks = section.bytes >> sb.blocklog;
    let blocks = blocks - blocks % u64::from(of_extent);
    let of_group = group_blocks(section, sb.blocklog, of_extent.into(), blocks)?;
    sb.rextsize = of_extent.into();
    sb.rgextents = ((of_group / u64::from(of_extent)) as u32).into();
    sb.rgblklog = of_group.next_power_of_two().trailing_zeros() as u8;
    let base = Superblock { raw: sb.clone(), features: *features };
    let blocks = growth::without_small_group(&base, blocks);
    if blocks == 0 {
        return Err(Error::Invalid("the realtime section is smaller than a realtime group"));
    }
    growth::with_blocks(&base, blocks)
}

/// Returns the number of blocks of a group.
fn group_blocks(
    section: &RealtimeSection,
    block_log: u8,
    of_extent: u64,
    blocks: u64,
) -> Result<u64> {
    let usual = || {
        let bytes = ((blocks / GROUPS_USUAL) << block_log).max(1);
        let bytes = (1_u64 << bytes.ilog2()).clamp(GROUP_BYTES_MIN, GROUP_BYTES_MAX);
        ((bytes >> block_log) / of_extent).clamp(GROUP_EXTENTS_MIN, GROUP_EXTENTS_MAX) * of_extent
    };
    let of_group = match (section.group_bytes, section.group_count) {
        (Some(_), Some(_)) => {
            return Err(Error::Invalid(
                "set the number of realtime groups or their size, not both",
            ));
        }
        (Some(bytes), None) => bytes >> block_log,
        (None, Some(0)) => return Err(Error::Invalid("a realtime section has at least one group")),
        (None, Some(count)) => blocks.div_ceil(count.into()),
        (None, None) => usual(),
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
