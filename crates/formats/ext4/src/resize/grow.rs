//! Growing in place.

use std::sync::Arc;

use disk::BlockDevice;
use vfs::{Error, Result};

use super::draft::Draft;
use super::finish::{adjust_kept, write_size};
use super::groups::{DescriptorTable, empty_inode_bitmap, own_bitmap, padded, set_blocks};
use super::target::target;
use super::{Size, open_and_close};
use crate::format::address::{Block, Group};
use crate::format::group::{GroupDescriptor, GroupFlags};
use crate::mkfs::place_groups;
use crate::mkfs::space::Space;
use crate::params::{Params, read_superblock};

/// Size of a file system before and after growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Size before.
    pub before: Size,
    /// Size after. It is less than requested if a last group would be too short to be useful.
    pub after: Size,
}

/// Returns the result that [`grow`] would have, according to the superblock.
///
/// # Errors
/// Like [`grow`].
pub fn plan_growth(device: &dyn BlockDevice, blocks: u64) -> Result<Grown> {
    let old = Params::of(read_superblock(device)?);
    let new = target(&old, blocks, u64::MAX)?;
    Ok(Grown { before: Size::of(&old), after: Size::of(&new) })
}

/// Grows a file system to at most `blocks` blocks. The device must be long enough. `zeros_from` is the byte offset from
/// which the device is known to read as zeros, so that nothing needs clearing there.
///
/// The size changes in one transaction of the journal; new metadata past the old end is durable before. Without a
/// journal, the image is marked as not clean while blocks of the old part change.
///
/// # Errors
/// `Invalid` if the file system is already larger; `Unsupported` for file systems that cannot be resized, and for sizes
/// that the format does not allow; `Corrupt` for damage; or if the device fails.
pub fn grow(device: Arc<dyn BlockDevice>, blocks: u64, zeros_from: u64) -> Result<Grown> {
    let before = read_superblock(&*device)?.blocks_count;
    if blocks < before {
        return Err(Error::Invalid("the file system is already larger"));
    }
    // A rejected request must leave no trace, not even a new modification time.
    target(&Params::of(read_superblock(&*device)?), blocks, device.len())?;
    open_and_close(&device)?;
    let old = Params::of(read_superblock(&*device)?);
    let new = target(&old, blocks, device.len())?;
    let grown = Grown { before: Size::of(&old), after: Size::of(&new) };
    if new.geometry.blocks_count <= old.geometry.blocks_count {
        return Ok(Grown { after: grown.before, ..grown });
    }
    let mut draft = Draft::new(device.clone(), old.block_size());
    let mut groups = DescriptorTable::read(&draft, &old)?;
    adjust_kept(&mut draft, &old, &new, &mut groups)?;
    let mut new = new;
    add_groups(&mut draft, &old, &mut new, &mut groups, zeros_from)?;
    write_size(&device, draft, &new, &mut groups, Block(old.geometry.blocks_count))?;
    Ok(grown)
}

/// Adds the new groups: their positions, free counts, and the bitmaps that must be initialised.
fn add_groups(
    draft: &mut Draft,
    old: &Params,
    new: &mut Params,
    groups: &mut DescriptorTable,
    zeros_from: u64,
) -> Result<()> {
    let first = old.geometry.groups_count;
    let geometry = new.geometry;
    let start = geometry.first_block(Group(first)).0.min(geometry.blocks_count);
    let mut space = Space::new(start..geometry.blocks_count);
    for group in (first..geometry.groups_count).map(Group) {
        let base = geometry.base_metadata(group);
        space.take(base.start.0..base.end.0);
    }
    let placed = place_groups(&geometry, &mut space, first)?;
    check_places(new, &placed, first)?;
    groups.resize(new, &placed);
    add_overhead(new, space.taken_in(start..geometry.blocks_count));
    for group in (first..geometry.groups_count).map(Group) {
        fill_in(draft, new, groups, &space, group)?;
    }
    clear_tables(draft, new, &placed, zeros_from)
}

/// Without `flex_bg`, a group's metadata is inside the group.
fn check_places(new: &Params, placed: &[GroupDescriptor], first: u32) -> Result<()> {
    let geometry = &new.geometry;
    if geometry.flex_groups > 1 {
        return Ok(());
    }
    let table_end = u64::from(geometry.itable_blocks()) - 1;
    for (number, desc) in (first..).zip(placed) {
        let ends = [desc.block_bitmap, desc.inode_bitmap, desc.inode_table.plus(table_end)];
        if ends.iter().any(|block| geometry.group_of(*block) != Group(number)) {
            return Err(Error::NoSpace);
        }
    }
    Ok(())
}

/// Adds new metadata to the overhead in the superblock. Resets it if that is not simple; the next mount then computes
/// it.
fn add_overhead(new: &mut Params, blocks: u64) {
    let raw = &mut new.sb.raw;
    let known = u64::from(raw.overhead_clusters.get());
    let sum = u32::try_from(known + blocks).unwrap_or(0);
    let is_plain = known > 0 && new.sb.cluster_blocks_log == 0;
    raw.overhead_clusters = if is_plain { sum } else { 0 }.into();
}

/// Sets counts and flags of a new group, and writes its bitmaps to the draft.
fn fill_in(
    draft: &mut Draft,
    new: &Params,
    groups: &mut DescriptorTable,
    space: &Space,
    group: Group,
) -> Result<()> {
    let geometry = &new.geometry;
    let has_csum = new.sb.features.group_csum();
    let start = geometry.first_block(group).0;
    let mut bits = padded(new, group);
    for run in space.taken_runs(start..start + u64::from(geometry.blocks_in(group))) {
        set_blocks(&mut bits, new, group, run);
    }
    let is_last = group.0 + 1 == geometry.groups_count;
    let desc = groups.get_mut(group);
    let is_untouched = has_csum && !is_last && bits == own_bitmap(new, desc, group);
    desc.free_inodes = geometry.inodes_per_group;
    if has_csum {
        desc.itable_unused = geometry.inodes_per_group;
        // The tables are cleared.
        desc.flags = GroupFlags::INODE_ZEROED | GroupFlags::INODE_UNINIT;
    } else {
        groups.put_inode_bitmap(draft, new, group, empty_inode_bitmap(new))?;
    }
    if is_untouched {
        let desc = groups.get_mut(group);
        desc.free_blocks = super::groups::count_free(&bits, geometry.clusters_in(group));
        desc.flags.insert(GroupFlags::BLOCK_UNINIT);
        return Ok(());
    }
    groups.put_block_bitmap(draft, new, group, bits)
}

/// Clears the inode tables that are not known to be zero. Adjacent ones are cleared together.
fn clear_tables(
    draft: &Draft,
    new: &Params,
    placed: &[GroupDescriptor],
    zeros_from: u64,
) -> Result<()> {
    let geometry = &new.geometry;
    let len = u64::from(geometry.itable_blocks());
    let mut run: Option<(u64, u64)> = None;
    for desc in placed {
        let start = geometry.byte_of(desc.inode_table);
        let end = geometry.byte_of(desc.inode_table.plus(len)).min(zeros_from);
        if start >= end {
            continue;
        }
        match &mut run {
            Some((_, run_end)) if *run_end == start => *run_end = end,
            _ => {
                clear(draft, run)?;
                run = Some((start, end));
            }
        }
    }
    clear(draft, run)
}

fn clear(draft: &Draft, run: Option<(u64, u64)>) -> Result<()> {
    let Some((start, end)) = run else { return Ok(()) };
    draft.device().zero_range(start, end - start).map_err(Error::Device)
}
