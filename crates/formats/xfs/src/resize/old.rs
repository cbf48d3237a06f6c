//! Growing version 4 file systems: adds new groups, and writes the superblock in place.
//!
//! The copies follow. A crash before they are written leaves an image that kernels accept; but xfs_repair goes by the
//! majority of superblocks, and may restore the old size, which loses only the added groups.

use disk::BlockDevice;
use vfs::{Corruption, Error, Result};
use zerocopy::IntoBytes;

use super::groups::{layout, write_groups};
use super::growth::Growth;
use crate::format::address::AgNumber;
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::log::log_is_clean;
use crate::mkfs::Layout;
use crate::volume::Volume;

const ADVICE: &str =
    "mount it and run xfs_growfs, or create an image of version 5: diskwright convert IN OUT";

/// Refuses cases that require writing the log.
pub(super) fn check(device: &dyn BlockDevice, sb: &Superblock, growth: &Growth) -> Result<()> {
    if sb.raw.rblocks.get() != 0 {
        return Err(Error::unsupported("growing an image with a realtime device", ADVICE));
    }
    if !log_is_clean(device, sb)? {
        let what = "growing an image of version 4 with an unreplayed log";
        return Err(Error::unsupported(what, "mount and unmount it once"));
    }
    if growth.last_group_gets() != 0 {
        let what = format!(
            "growing an image of version 4 with an incomplete last group ({} of {} blocks are \
             missing)",
            growth.last_group_gets(),
            growth.group_blocks
        );
        return Err(Error::unsupported(what, ADVICE));
    }
    Ok(())
}

/// Grows by new groups only.
pub(super) fn grow(device: &dyn BlockDevice, sb: &Superblock, growth: Growth) -> Result<Growth> {
    // Checks that the group headers are consistent.
    Volume::read(device)?;
    let (free, blocks) = (sb.raw.fdblocks.get(), sb.raw.dblocks.get());
    if free > blocks {
        let damage = Corruption::new("superblock", "fdblocks");
        return Err(damage.mismatch(format_args!("at most {blocks}"), free).into());
    }
    let layout = layout(sb, &growth);
    write_groups(device, &layout, &growth)?;
    let after = layout.as_superblock().raw;
    write(device, &layout, AgNumber(0), &after)?;
    device.flush().map_err(Error::Device)?;
    for ag in 1..growth.groups_before {
        write(device, &layout, AgNumber(ag), &after)?;
    }
    device.flush().map_err(Error::Device).map(|()| growth)
}

/// Writes a superblock, which is less than a sector, so the write is atomic.
fn write(
    device: &dyn BlockDevice,
    layout: &Layout,
    ag: AgNumber,
    raw: &RawSuperblock,
) -> Result<()> {
    const { assert!(SUPERBLOCK_SIZE <= 512, "a sector") };
    device.write_at(layout.start_of(ag), raw.as_bytes()).map_err(Error::Device)
}
