//! Layout of a new file system.

use std::ops::Range;

use vfs::{Error, Result};

use super::numbers;
use super::options::Options;
use super::space::Space;
use super::system_files::{self, SystemFiles};
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::{GroupDescriptor, GroupFlags};
use crate::format::superblock::Superblock;

/// Number of directories of a new file system: the root and `lost+found`.
const DIRECTORIES: u32 = 2;

/// Planned file system that can be written.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) sb: Superblock,
    pub(super) geometry: Geometry,
    pub(super) space: Space,
    pub(super) groups: Vec<GroupDescriptor>,
    pub(super) files: SystemFiles,
}

impl Layout {
    /// Returns the superblock to write.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Returns the number of blocks that will be free, including those reserved for privileged users.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.sb.raw.free_blocks() << self.geometry.cluster_blocks_log
    }

    /// Returns the number of inodes that will be free.
    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        self.sb.raw.free_inodes_count.get()
    }

    /// Returns the blocks of a group.
    pub(super) fn blocks_of(&self, group: Group) -> Range<u64> {
        let start = self.geometry.first_block(group).0;
        start..start + u64::from(self.geometry.blocks_in(group))
    }
}

pub(super) fn plan(options: &Options) -> Result<Layout> {
    let mut sb = numbers::superblock(options)?;
    let geometry = Geometry::new(&sb);
    let mut space = Space::new(u64::from(geometry.first_data_block)..geometry.blocks_count);
    for group in geometry.groups() {
        let base = geometry.base_metadata(group);
        space.take(base.start.0..base.end.0);
    }
    let groups = place_tables(&placed_together(options, &geometry), &mut space)?;
    // Metadata at fixed positions may share clusters. Files have separate ones.
    space.use_clusters(geometry.cluster_blocks().into());
    let fixed = space.taken_in(0..geometry.blocks_count);
    let first_table = groups.first().map_or(Block(0), |group| group.inode_table);
    let itable_end = first_table.plus(u64::from(geometry.itable_blocks()));
    let files = system_files::make(options, &mut sb, &geometry, &mut space, itable_end)?;
    // Blocks that statfs excludes from the total: fixed metadata, the journal, blocks before the first.
    let overhead = fixed + files.journal_blocks + u64::from(geometry.first_data_block);
    sb.raw.overhead_clusters = ((overhead >> geometry.cluster_blocks_log) as u32).into();
    let mut layout = Layout { sb, geometry, space, groups, files };
    layout.fill_in_counts();
    Ok(layout)
}

/// Returns the geometry for placing tables. Packed tables are placed as if all groups were one flex group.
fn placed_together(options: &Options, geometry: &Geometry) -> Geometry {
    let is_packed = options.tuning.is_packed && geometry.flex_groups > 1;
    let mut geometry = *geometry;
    if is_packed {
        geometry.flex_groups = geometry.groups_count.next_power_of_two();
    }
    geometry
}

/// Returns the usual positions of the bitmaps and inode tables for a geometry. Returns `None` if there is no room, or
/// if there are more and smaller groups than any program creates, because the search would take too long.
pub(crate) fn usual_places(geometry: &Geometry) -> Option<Vec<GroupDescriptor>> {
    const GROUPS_MAX: u32 = 4096;
    const BLOCKS_MIN: u32 = 2048;
    if geometry.groups_count > GROUPS_MAX && geometry.blocks_per_group < BLOCKS_MIN {
        return None;
    }
    let mut space = Space::new(u64::from(geometry.first_data_block)..geometry.blocks_count);
    for group in geometry.groups() {
        let base = geometry.base_metadata(group);
        if space.taken_in(base.start.0..base.end.0) == 0 {
            space.take(base.start.0..base.end.0);
        }
    }
    place_tables(geometry, &mut space).ok()
}

/// Places the bitmaps and inode tables. With `flex_bg`, those of several groups are contiguous: first all block
/// bitmaps, then all inode bitmaps, then all tables.
fn place_tables(geometry: &Geometry, space: &mut Space) -> Result<Vec<GroupDescriptor>> {
    place_groups(geometry, space, 0)
}

/// Places the bitmaps and inode tables of the groups from `first` on. If `first` is inside a flex group, only the new
/// ones of that flex group are contiguous.
pub(crate) fn place_groups(
    geometry: &Geometry,
    space: &mut Space,
    first: u32,
) -> Result<Vec<GroupDescriptor>> {
    let mut groups = vec![GroupDescriptor::default(); (geometry.groups_count - first) as usize];
    let flex_groups = geometry.flex_groups.min(geometry.groups_count.next_power_of_two());
    let itable_blocks = u64::from(geometry.itable_blocks());
    let mut take = |goal: u64, len: u64| space.take_run(goal, len).ok_or(Error::NoSpace);
    // Number of remaining groups in the flex group of `first`.
    let begun = ((flex_groups - first % flex_groups) as usize).min(groups.len());
    let (begun, whole) = groups.split_at_mut(begun);
    let mut number = first;
    for flex in std::iter::once(begun).chain(whole.chunks_mut(flex_groups as usize)) {
        let first = geometry.first_block(Group(number));
        number += flex.len() as u32;
        let Some((lead, others)) = flex.split_first_mut() else { continue };
        // A flex group with one group leaves room for the bitmaps of groups that may be added.
        let slots = if others.is_empty() {
            u64::from(geometry.flex_groups)
        } else {
            1 + others.len() as u64
        };
        let start = take(first.0, 1)?;
        lead.block_bitmap = Block(start);
        for group in others.iter_mut() {
            group.block_bitmap = Block(take(start, 1)?);
        }
        for group in flex.iter_mut() {
            group.inode_bitmap = Block(take(start + slots, 1)?);
        }
        let mut goal = start + 2 * slots;
        for group in flex.iter_mut() {
            group.inode_table = Block(take(goal, itable_blocks)?);
            goal = group.inode_table.0 + itable_blocks;
        }
    }
    Ok(groups)
}

impl Layout {
    /// Sets the free counts of all groups and of the superblock, and the uninitialised flags.
    fn fill_in_counts(&mut self) {
        let has_csum = self.sb.features.group_csum();
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for group in self.geometry.groups() {
            let blocks = self.blocks_of(group);
            let taken = self.space.taken_in(blocks.clone());
            let is_first = group.0 == 0;
            let is_last = group.0 + 1 == self.geometry.groups_count;
            let taken_by_own = self.taken_by_own(group, &blocks);
            let cluster_log = self.geometry.cluster_blocks_log;
            let inodes_used = if is_first { self.files.inodes_used } else { 0 };
            let descriptor = &mut self.groups[group.0 as usize];
            descriptor.free_blocks = ((blocks.end - blocks.start - taken) >> cluster_log) as u32;
            descriptor.free_inodes = self.geometry.inodes_per_group - inodes_used;
            descriptor.used_dirs = if is_first { DIRECTORIES } else { 0 };
            if has_csum {
                descriptor.itable_unused = descriptor.free_inodes;
                // The tables read as zeros, so the kernel need not clear them in the background.
                descriptor.flags = GroupFlags::INODE_ZEROED;
                descriptor.flags.set(GroupFlags::INODE_UNINIT, !is_first);
                let untouched = !is_first && !is_last && taken == taken_by_own;
                descriptor.flags.set(GroupFlags::BLOCK_UNINIT, untouched);
            }
            free_blocks += u64::from(descriptor.free_blocks);
            free_inodes += descriptor.free_inodes;
        }
        self.sb.raw.set_free_blocks(free_blocks);
        self.sb.raw.free_inodes_count = free_inodes.into();
        self.sb.raw.kbytes_written = (self.bytes_to_write() >> 10).into();
        self.sb.raw.seal();
    }

    /// Returns the number of blocks for a group's own metadata, as implied by an uninitialised bitmap.
    fn taken_by_own(&self, group: Group, blocks: &Range<u64>) -> u64 {
        let base = self.geometry.base_metadata(group);
        let descriptor = &self.groups[group.0 as usize];
        let table = descriptor.inode_table;
        let table_end = table.plus(u64::from(self.geometry.itable_blocks())).0;
        let in_group =
            |run: Range<u64>| run.end.min(blocks.end).saturating_sub(run.start.max(blocks.start));
        let bitmaps = [descriptor.block_bitmap.0, descriptor.inode_bitmap.0];
        // A cluster that the superblock's copy shares with other blocks counts once; such groups have bitmaps.
        (base.end.0 - base.start.0).next_multiple_of(self.geometry.cluster_blocks().into())
            + bitmaps.into_iter().map(|b| in_group(b..b + 1)).sum::<u64>()
            + in_group(table.0..table_end)
    }

    /// Returns the number of metadata bytes to write.
    fn bytes_to_write(&self) -> u64 {
        let geometry = &self.geometry;
        let initialised = |flag: GroupFlags| {
            self.groups.iter().filter(|group| !group.flags.contains(flag)).count()
        };
        let bitmaps = initialised(GroupFlags::BLOCK_UNINIT) + initialised(GroupFlags::INODE_UNINIT);
        let copies: u64 = geometry
            .groups()
            .map(|group| {
                let table = geometry.gdt_copy_in(group).0;
                u64::from(table.end - table.start) + u64::from(geometry.has_superblock(group))
            })
            .sum();
        let inodes = self.files.inodes_used.div_ceil(geometry.inodes_per_block());
        let blocks = bitmaps as u64 + copies + self.files.blocks.len() as u64 + u64::from(inodes);
        blocks << geometry.block_size_log
    }
}
