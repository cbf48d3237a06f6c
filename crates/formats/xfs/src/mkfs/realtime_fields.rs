//! Options of a realtime section without groups, and the fields of the superblock that follow from them.

use vfs::{Error, Result};

use super::options::{Options, RealtimeSection};
use crate::format::realtime::space::SpaceLayout;
use crate::format::superblock::RawSuperblock;

/// Minimum and maximum size of a realtime extent in bytes (`XFS_MIN_RTEXTSIZE`, `XFS_MAX_RTEXTSIZE`).
const EXTENT_BYTES_MIN: u32 = 4 << 10;
const EXTENT_BYTES_MAX: u32 = 1 << 30;

/// Returns the size of a realtime extent in blocks.
///
/// # Errors
/// `Invalid` for an invalid size.
pub(super) fn extent_blocks(options: &Options, section: &RealtimeSection) -> Result<u32> {
    let default = options.block_size.max(EXTENT_BYTES_MIN);
    let bytes = section.extent_bytes.unwrap_or(default);
    if !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&bytes)
        || !bytes.is_multiple_of(options.block_size)
    {
        return Err(Error::Invalid(
            "the realtime extent size must be a multiple of the block size, 4 KiB to 1 GiB",
        ));
    }
    Ok(bytes / options.block_size)
}

/// Sets the fields of the superblock.
///
/// # Errors
/// `Invalid` for an invalid size.
pub(super) fn set_fields(options: &Options, sb: &mut RawSuperblock) -> Result<()> {
    let Some(section) = options.realtime else { return Ok(()) };
    let of_extent = u64::from(extent_blocks(options, &section)?);
    if section.group_bytes.is_some() || section.group_count.is_some() {
        return Err(Error::Invalid("realtime groups need the feature metadir"));
    }
    if section.bytes == 0 {
        // The size for a future section.
        sb.rextsize = (of_extent as u32).into();
        return Ok(());
    }
    let blocks = section.bytes >> sb.blocklog;
    let extents = blocks / of_extent;
    if extents == 0 {
        return Err(Error::Invalid("the realtime section is smaller than a realtime extent"));
    }
    if u32::try_from(extents).is_err() {
        return Err(Error::Invalid(
            "the realtime section has more than 2^32 extents; increase the realtime extent size",
        ));
    }
    let layout = SpaceLayout::new(sb.blocklog, extents, false);
    sb.rblocks = blocks.into();
    sb.rextents = extents.into();
    sb.rextsize = (of_extent as u32).into();
    sb.frextents = extents.into();
    sb.rbmblocks = (layout.bitmap_blocks() as u32).into();
    sb.rextslog = (layout.levels() - 1) as u8;
    Ok(())
}
