//! Repairs the number of blocks reserved for descriptors.

use disk::BlockDevice;
use operations::repair::{Action, Staging};
use vfs::Result;

use super::superblock::write;
use crate::format::address::Group;
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::open::superblock_candidates::{descriptor, score_of_root};
use crate::open::superblock_copy::Copy;
use crate::params::read_superblock;

/// Reduces the reserved blocks so that they end before the first group's inode table, if that table contains the root
/// directory. Otherwise the position of the table would be considered wrong, and all files would be lost.
pub(super) fn settle(staging: &Staging) -> Result<()> {
    let sb = read_superblock(staging)?;
    let Some(room) = room_for_reserve(staging, &sb) else { return Ok(()) };
    let kept = Copy::find(staging)
        .map(|copy| copy.raw().reserved_gdt_blocks.get())
        .filter(|kept| u64::from(*kept) <= room)
        .unwrap_or(room as u16);
    let mut raw = sb.raw.clone();
    raw.reserved_gdt_blocks = kept.into();
    raw.seal();
    let what = "The superblock field reserved_gdt_blocks is set to the value that matches the inode table.";
    write(staging, &raw, Action::new(what))
}

/// Returns the number of blocks between the descriptors and the next structure of the first group, if the reserved
/// blocks extend into a valid inode table.
fn room_for_reserve(device: &dyn BlockDevice, sb: &Superblock) -> Option<u64> {
    let geometry = Geometry::new(sb);
    let desc = descriptor(device, &geometry, sb, Group(0))?;
    let is_inside = geometry.base_metadata(Group(0)).contains(&desc.inode_table);
    if !is_inside || score_of_root(device, sb, &geometry, &desc) == 0 {
        return None;
    }
    let (table, start) = geometry.gdt_copy_in(Group(0));
    let reserve = start.0 + u64::from(table.end - table.start);
    let own = [desc.block_bitmap, desc.inode_bitmap, desc.inode_table];
    let first = own.into_iter().map(|block| block.0).filter(|block| *block >= reserve).min()?;
    Some(first - reserve)
}
