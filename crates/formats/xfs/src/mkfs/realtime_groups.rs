//! A realtime section with groups: its fields, and writing it.
//!
//! A file system without the section is formatted in memory, the section is added as by growing, and what was written
//! is copied to the device.

use std::io;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole, OverlayDevice, is_zero};
use vfs::{Error, Result};

use super::layout::Layout;
use super::options::{Options, RealtimeSection};
use super::realtime_fields::extent_blocks;
use super::write::PreviousContents;
use crate::format::features::Features;
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::resize::realtime::{self, growth};

/// Divisor of the section for the default size of groups, which is then rounded down to a power of two.
const GROUPS_USUAL: u64 = 4;
/// Minimum and maximum default size of groups in bytes.
const GROUP_BYTES_MIN: u64 = 16 << 20;
const GROUP_BYTES_MAX: u64 = 1 << 40;
/// Minimum and maximum number of realtime extents of a group (`XFS_MIN_RGEXTENTS`, `XFS_MAX_RGEXTENTS`).
const GROUP_EXTENTS_MIN: u64 = 2;
const GROUP_EXTENTS_MAX: u64 = i32::MAX as u64;
/// Number of files of a group.
const FILES_PER_GROUP: u64 = 4;

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

impl Layout {
    /// Returns an upper bound of the blocks that the files of realtime groups take.
    pub(super) fn blocks_of_realtime_groups(&self) -> u64 {
        let Some(with) = &self.with_groups else { return 0 };
        let realtime = crate::format::realtime::Realtime::of(with).ok().flatten();
        let Some(space) = realtime.map(|realtime| realtime.space(0)) else { return 0 };
        let groups = u64::from(with.raw.rgcount.get());
        let files = groups * (space.bitmap_blocks() + space.summary_blocks());
        let inodes = groups * FILES_PER_GROUP;
        let of_inodes = (inodes >> self.geometry.inodes_per_block_log())
            + 2 * u64::from(self.geometry.chunk_blocks());
        // The directory, with its index.
        let of_names = ((inodes * 32) >> self.geometry.block_log) + 4;
        files + of_inodes + of_names
    }
}

/// Writes a file system with groups, with `write` for the file system without them.
pub(super) fn format(
    device: &dyn BlockDevice,
    layout: &Layout,
    with: &Superblock,
    before: PreviousContents,
    write: impl FnOnce(&dyn BlockDevice) -> Result<()>,
) -> Result<()> {
    let parts = [DeviceRole::Log, DeviceRole::Realtime].map(|part| device.part_len(part));
    let blank = Blank { len: device.len(), parts };
    let scratch = Arc::new(OverlayDevice::new(Arc::new(blank)));
    write(&*scratch)?;
    let shared: Arc<dyn BlockDevice> = scratch.clone();
    realtime::extend(&shared, with.raw.rblocks.get(), layout.root.time)?;
    let mut head = Vec::new();
    let copied = scratch.for_each_written(|offset, bytes| match offset {
        0 => {
            head = bytes.to_vec();
            Ok(())
        }
        _ if before == PreviousContents::Zeros && is_zero(bytes) => Ok(()),
        _ => device.write_at(offset, bytes),
    });
    copied.and_then(|()| device.write_at(0, &head)).map_err(Error::Device)
}

/// A device of zeros.
struct Blank {
    len: u64,
    /// Lengths of the log and the realtime device.
    parts: [Option<u64>; 2],
}

impl BlockDevice for Blank {
    fn len(&self) -> u64 {
        self.len
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.parts[usize::from(part == DeviceRole::Realtime)]
    }

    fn read_at(&self, _offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn zero_range(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
