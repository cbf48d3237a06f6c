//! The new groups, which must be durable before a superblock includes them.

use disk::BlockDevice;
use vfs::{Error, Result};

use super::growth::Growth;
use crate::format::superblock::Superblock;
use crate::mkfs::Layout;

/// Returns the layout of the new groups, with the future superblock.
pub(super) fn layout(before: &Superblock, growth: &Growth) -> Layout {
    let mut after = before.clone();
    after.raw.dblocks = growth.blocks_after.into();
    after.raw.agcount = growth.groups_after.into();
    let layout = Layout::of_grown(&after);
    let added: u64 = growth.new_groups().map(|ag| layout.free_in(ag)).sum();
    let added = added + u64::from(growth.last_group_gets());
    let free = before.raw.fdblocks.get().saturating_add(added);
    after.raw.fdblocks = free.into();
    Layout::of_grown(&after)
}

/// Writes the new groups durably.
pub(super) fn write_groups(
    device: &dyn BlockDevice,
    layout: &Layout,
    growth: &Growth,
) -> Result<()> {
    for ag in growth.new_groups() {
        let (offset, bytes) = layout.group_start(ag);
        device.write_at(offset, &bytes).map_err(Error::Device)?;
    }
    device.flush().map_err(Error::Device)
}
