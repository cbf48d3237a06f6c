//! Version 4: new groups, and a superblock that is written in place.
//!
//! The copies follow it. A crash before they are written leaves an image that kernels take as it is; but xfs_repair
//! goes by what most superblocks say, and may give it its old size, which takes nothing from it but what was added.

use blockdev::BlockDevice;
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
    "mount it and let xfs_growfs do it, or make an image of version 5: diskwright convert IN OUT";

/// Refuses what cannot be done without writing the log.
pub(super) fn check(device: &dyn BlockDevice, sb: &Superblock, growth: &Growth) -> Result<()> {
    if sb.raw.rblocks.get() != 0 {
        return Err(Error::unsupported("growing an image with a realtime device", ADVICE));
    }
    if !log_is_clean(device, sb)? {
        let what = "growing an image of version 4 whose log was not replayed";
        return Err(Error::unsupported(what, "mount and unmount it once"));
    }
    if growth.last_group_gets() != 0 {
        let what = format!(
            "growing an image of version 4 whose last group is short (it lacks {} blocks of {})",
            growth.last_group_gets(),
            growth.group_blocks
        );
        return Err(Error::unsupported(what, ADVICE));
    }
    Ok(())
}

/// Grows by new groups alone.
pub(super) fn grow(device: &dyn BlockDevice, sb: &Superblock, growth: Growth) -> Result<Growth> {
    // All that it says of itself agrees.
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

/// Writes a superblock, which is less than a sector: it is there, or it is not.
fn write(
    device: &dyn BlockDevice,
    layout: &Layout,
    ag: AgNumber,
    raw: &RawSuperblock,
) -> Result<()> {
    const { assert!(SUPERBLOCK_SIZE <= 512, "what devices write at once") };
    device.write_at(layout.start_of(ag), raw.as_bytes()).map_err(Error::Device)
}
