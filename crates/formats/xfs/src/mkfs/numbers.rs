//! Number of allocation groups, size of the log, and limit of inodes, computed from the size of the image.

use vfs::{Error, Result};

use super::options::{Options, SMALL_SIZE_MIN};

/// Minimum size of an allocation group that mkfs.xfs makes, in bytes.
const AG_BYTES_MIN: u64 = SMALL_SIZE_MIN;
/// Limit of the size of allocation groups, in bytes; they are at least one block smaller.
const AG_BYTES_MAX: u64 = 1 << 40;
/// Minimum size of images with groups of the maximum size, in bytes.
const MANY_AGS_FROM: u64 = 4 << 40;
/// Minimum size of images with four groups by default, in bytes. Images of at least half of it have two.
const FOUR_AGS_FROM: u64 = 64 << 20;
/// Minimum size of images with stripes that have more than four groups, in bytes.
const STRIPES_FROM: u64 = 128 << 20;
/// Maximum sizes of images with stripes that have eight and 16 groups, in bytes; larger ones have 32.
const FEW_STRIPES_TO: u64 = 8 << 30;
const SOME_STRIPES_TO: u64 = 512 << 30;
/// Ratio of image size to log size.
const LOG_RATIO: u64 = 2048;
/// Minimum log size of images of at least [`ORDINARY_FROM`], in bytes.
pub(super) const LOG_BYTES_USUAL_MIN: u64 = 64 << 20;
/// Smaller images have the minimum log, in bytes.
const ORDINARY_FROM: u64 = 300 << 20;
/// Maximum size of the log in bytes and in blocks (`XFS_MAX_LOG_BYTES`, `XFS_MAX_LOG_BLOCKS`).
pub const LOG_BYTES_MAX: u64 = (2 << 30) - (10 << 20);
const LOG_BLOCKS_MAX: u64 = 1 << 20;

/// Size and number of allocation groups, and the resulting number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) ag_blocks: u32,
    pub(super) ag_count: u32,
    /// Blocks of all groups. Less than the image has, if the rest is too small for a group.
    pub(super) blocks: u64,
}

/// Divides the image into groups.
pub(super) fn groups(options: &Options) -> Result<Groups> {
    let block_size = u64::from(options.block_size);
    let blocks = options.size_bytes / block_size;
    let ag_blocks = match (options.ag_bytes, options.ag_count) {
        (Some(bytes), _) if bytes % block_size != 0 => {
            return Err(Error::Invalid("allocation groups must be whole blocks"));
        }
        (Some(bytes), _) => bytes / block_size,
        (None, Some(0)) => return Err(Error::Invalid("at least one allocation group is required")),
        (None, Some(count)) => blocks.div_ceil(count.into()),
        (None, None) if options.stripe.is_some() => {
            striped_ag_blocks(options.size_bytes, block_size)
        }
        (None, None) => default_ag_blocks(options.size_bytes, block_size),
    };
    let ag_blocks_max = AG_BYTES_MAX / block_size - 1;
    if options.atomic_write_bytes.is_some_and(|bytes| bytes > ag_blocks * block_size) {
        return Err(Error::Invalid(
            "the size of atomic writes must be at most that of an allocation group",
        ));
    }
    let ag_blocks = for_atomic_writes(options, ag_blocks, ag_blocks_max);
    let ag_blocks = match options.stripe.and_then(|stripe| stripe.in_blocks(options.block_size)) {
        Some((unit, width)) if options.ag_bytes.is_none() => {
            let atomic = options.atomic_write_bytes.map_or(0, |bytes| (bytes / block_size) as u32);
            let stripe = (unit.max(atomic), width);
            let limits = (AG_BYTES_MIN / block_size, ag_blocks_max);
            // A given number of groups is kept even if it is worse.
            let is_free = options.ag_count.is_none() && blocks > ag_blocks;
            aligned(ag_blocks, stripe, limits, is_free)
        }
        Some((unit, _)) if !ag_blocks.is_multiple_of(unit.into()) => {
            return Err(Error::Invalid("allocation groups must be whole stripe units"));
        }
        _ => ag_blocks,
    };
    let is_asked_for = options.ag_bytes.is_some() || options.ag_count.is_some();
    if is_asked_for && !(AG_BYTES_MIN / block_size..=ag_blocks_max).contains(&ag_blocks) {
        return Err(Error::Invalid("allocation groups must have 16 MiB to 1 TiB minus one block"));
    }
    let last = blocks % ag_blocks;
    // A last group that is too small is dropped.
    let is_short = last != 0 && last < AG_BYTES_MIN / block_size;
    let blocks = if is_short && blocks > ag_blocks { blocks - last } else { blocks };
    if options.only_supported && blocks * block_size < ORDINARY_FROM {
        return Err(Error::Invalid("Filesystem must be larger than 300MiB, in whole groups"));
    }
    let ag_count = u32::try_from(blocks.div_ceil(ag_blocks))
        .map_err(|_| Error::Invalid("too many allocation groups"))?;
    Ok(Groups { ag_blocks: ag_blocks as u32, ag_count, blocks })
}

/// Rounds the size of a group without stripes to whole atomic writes.
fn for_atomic_writes(options: &Options, ag_blocks: u64, max: u64) -> u64 {
    let bytes = options.atomic_write_bytes.filter(|_| options.stripe.is_none());
    let Some(unit) = bytes.map(|bytes| bytes / u64::from(options.block_size)) else {
        return ag_blocks;
    };
    let up = ag_blocks.next_multiple_of(unit);
    if up <= max { up } else { ag_blocks - ag_blocks % unit }
}

/// Returns the number of blocks of a group that mkfs.xfs chooses for a single disk.
fn default_ag_blocks(size_bytes: u64, block_size: u64) -> u64 {
    let blocks = size_bytes / block_size;
    let max = AG_BYTES_MAX / block_size - 1;
    let count = match size_bytes {
        MANY_AGS_FROM.. => return max,
        FOUR_AGS_FROM.. => 4,
        _ if size_bytes >= FOUR_AGS_FROM / 2 => 2,
        _ => 1,
    };
    blocks.div_ceil(count).min(max)
}

/// Returns the number of blocks of a group that mkfs.xfs chooses for a device with stripes.
fn striped_ag_blocks(size_bytes: u64, block_size: u64) -> u64 {
    let blocks = size_bytes / block_size;
    let max = AG_BYTES_MAX / block_size - 1;
    if size_bytes < STRIPES_FROM {
        return default_ag_blocks(size_bytes, block_size);
    }
    let count = match size_bytes {
        _ if size_bytes <= FEW_STRIPES_TO => 8,
        _ if size_bytes <= SOME_STRIPES_TO => 16,
        _ => 32,
    };
    blocks.div_ceil(count).min(max)
}

/// Rounds the size of a group to whole stripe units. If it were whole stripes, the headers of all groups would be on one
/// disk, so it is changed by a unit if it is free.
fn aligned(
    ag_blocks: u64,
    (unit, width): (u32, u32),
    (min, max): (u64, u64),
    is_free: bool,
) -> u64 {
    let (unit, width) = (u64::from(unit), u64::from(width));
    let up = ag_blocks.next_multiple_of(unit);
    let whole = if up <= max { up } else { ag_blocks - ag_blocks % unit };
    if width == unit || !whole.is_multiple_of(width) || !is_free {
        return whole;
    }
    if whole - unit >= min { whole - unit } else { whole + unit }
}

/// Returns the maximum share of space for inodes, in percent, that mkfs.xfs chooses.
pub(super) const fn inodes_percent_max(size_bytes: u64) -> u8 {
    match size_bytes >> 40 {
        0 => 25,
        1..50 => 5,
        _ => 1,
    }
}

/// Returns whether a log may have this number of blocks.
pub(super) fn is_log_length(options: &Options, blocks: u64) -> bool {
    blocks <= LOG_BLOCKS_MAX.min(LOG_BYTES_MAX / u64::from(options.block_size))
}

/// Returns the number of log blocks, given the minimum that works and the maximum that fits into a group.
pub(super) fn log_blocks(options: &Options, blocks: u64, min: u64, fit: u64) -> Result<u32> {
    let block_size = u64::from(options.block_size);
    let max = fit.min(LOG_BLOCKS_MAX).min(LOG_BYTES_MAX / block_size);
    if min > max {
        return Err(Error::Invalid("the log does not fit into an allocation group"));
    }
    let wanted = match options.log_bytes {
        Some(bytes) => {
            let wanted = bytes / block_size;
            if !(min..=max).contains(&wanted) {
                let what = "the log must be large enough for any transaction, and fit into an \
                            allocation group";
                let external = "the log must be large enough for any transaction, and have less than \
                                2 GiB";
                return Err(Error::Invalid(if options.external_log { external } else { what }));
            }
            wanted
        }
        None if blocks * block_size < ORDINARY_FROM => min,
        None => (blocks / LOG_RATIO).max(LOG_BYTES_USUAL_MIN / block_size),
    };
    Ok(wanted.clamp(min, max) as u32)
}

#[cfg(test)]
mod tests {
    use super::super::options::Stripe;
    use super::*;

    #[test]
    fn a_rest_too_small_for_a_group_is_left_out() {
        let options = Options::new((4 << 40) + (10 << 12));
        let groups = groups(&options).unwrap();
        assert_eq!((groups.ag_count, groups.ag_blocks), (4, (1 << 28) - 1));
        assert_eq!(groups.blocks, 4 * ((1 << 28) - 1));
    }

    /// The sizes are those of `mkfs.xfs -N`.
    #[test]
    fn groups_of_stripes_are_those_of_mkfs_xfs() {
        let of = |mib: u64, kib: u32, units: u32| {
            let stripe = Some(Stripe { unit_bytes: kib << 10, units });
            let groups = groups(&Options { stripe, ..Options::new(mib << 20) }).unwrap();
            (groups.ag_count, groups.ag_blocks, groups.blocks)
        };
        assert_eq!(of(100, 64, 4), (4, 6384, 25536));
        assert_eq!(of(128, 64, 4), (7, 4112, 28784));
        assert_eq!(of(1024, 64, 4), (8, 32752, 262_016));
        assert_eq!(of(1024, 64, 1), (8, 32768, 262_144));
        assert_eq!(of(1024, 20, 3), (8, 32770, 262_144));
        assert_eq!(of(1024, 1024, 4), (8, 32512, 260_096));
        assert_eq!(of(8193, 64, 4), (16, 131_088, 2_097_408));
        assert_eq!(of(600 << 10, 64, 4), (32, 4_915_184, 157_285_888));
        assert_eq!(of(5 << 20, 64, 4), (32, 41_943_024, 1_342_176_768));
    }

    #[test]
    fn inodes_take_less_of_large_images() {
        assert_eq!([1 << 39, 1 << 40, 50 << 40].map(inodes_percent_max), [25, 5, 1]);
    }
}
