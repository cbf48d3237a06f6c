//! Repairs group descriptors: positions of a group's structures, and their initialisation state.

use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{Ino, Result};

use super::RepairJob;
use super::image::{StagedImage, by_group, step, step_groups};
use super::system_files::free_block_in;
use crate::check::codes::GROUP_OVERLAP;
use crate::check::find_in_use;
use crate::format::address::{Block, Group};
use crate::format::features::Incompat;
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::format::inode::{self, Inode};

/// Maximum number of a descriptor's backups to read.
const BACKUPS_MAX: usize = 8;
/// Number of inode table blocks to read to recognise a table.
const TABLE_BLOCKS: u64 = 16;

/// The three structures of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupStructure {
    BlockBitmap,
    InodeBitmap,
    InodeTable,
}

const PARTS: [GroupStructure; 3] =
    [GroupStructure::BlockBitmap, GroupStructure::InodeBitmap, GroupStructure::InodeTable];

impl GroupStructure {
    const fn of(self, desc: &GroupDescriptor) -> Block {
        match self {
            Self::BlockBitmap => desc.block_bitmap,
            Self::InodeBitmap => desc.inode_bitmap,
            Self::InodeTable => desc.inode_table,
        }
    }

    /// Returns its number of blocks.
    const fn len(self, image: &StagedImage<'_>) -> u64 {
        match self {
            Self::InodeTable => image.params.geometry.itable_blocks() as u64,
            Self::BlockBitmap | Self::InodeBitmap => 1,
        }
    }

    const fn set(self, desc: &mut GroupDescriptor, place: Block) {
        match self {
            Self::BlockBitmap => desc.block_bitmap = place,
            Self::InodeBitmap => desc.inode_bitmap = place,
            Self::InodeTable => desc.inode_table = place,
        }
    }
}

/// Checks all descriptors, and replaces positions by better ones from backups or the usual layout.
pub(super) fn settle(staging: &Staging) -> Result<()> {
    let Some(image) = StagedImage::of(staging) else { return Ok(()) };
    let usual = crate::mkfs::usual_places(&image.params.geometry);
    for group in image.params.geometry.groups() {
        let usual = usual.as_ref().and_then(|all| all.get(group.0 as usize));
        settle_group(&image, group, usual, &[], &Taken::default())?;
    }
    Ok(())
}

/// Replaces invalid positions of groups.
pub(super) fn repair_places(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let usual = crate::mkfs::usual_places(&image.params.geometry);
    let before = job.staging.step_count();
    let taken = Taken::of(&image);
    for (group, of_group) in by_group(findings) {
        let usual = usual.as_ref().and_then(|all| all.get(group as usize));
        settle_group(&image, Group(group as u32), usual, &of_group, &taken)?;
    }
    if job.staging.step_count() == before {
        move_bitmaps(job, &image, findings, &taken)?;
    }
    Ok(())
}

/// Moves bitmaps that overlap other structures to free blocks.
fn move_bitmaps(
    job: &RepairJob,
    image: &StagedImage<'_>,
    findings: &[&Finding],
    taken: &Taken,
) -> Result<()> {
    for finding in findings.iter().filter(|f| f.code == GROUP_OVERLAP) {
        let Some(group) = finding.place.group.map(|group| Group(group as u32)) else { continue };
        let free = find_in_use(job.staging.clone(), &job.options, |in_use| {
            free_block_in(image, in_use, group)
        })?;
        let Some(place) = free.flatten() else { continue };
        let Ok(mut desc) = image.descriptor(group) else { continue };
        let is_on = |part: &GroupStructure| taken.is_taken(group, *part, part.of(&desc), 1);
        let Some(part) =
            [GroupStructure::BlockBitmap, GroupStructure::InodeBitmap].into_iter().find(is_on)
        else {
            continue;
        };
        part.set(&mut desc, place);
        return step(&job.staging, || {
            image.write_descriptor(group, &desc)?;
            let what = format!("A bitmap of group {group} is moved to a free block.");
            Ok(vec![Action::about(finding, what)])
        });
    }
    Ok(())
}

/// Positions of all groups' structures according to their descriptors.
#[derive(Default)]
struct Taken {
    /// Start and end of each structure, in ascending order.
    ranges: Vec<(u64, u64, Group, GroupStructure)>,
    /// Length of the longest structure in blocks.
    longest: u64,
}

impl Taken {
    fn of(image: &StagedImage<'_>) -> Self {
        let geometry = &image.params.geometry;
        let mut all = Vec::new();
        for group in geometry.groups() {
            let Ok(desc) = image.descriptor(group) else { continue };
            for part in PARTS {
                let start = part.of(&desc).0;
                let end = start.saturating_add(part.len(image));
                if end <= geometry.blocks_count {
                    all.push((start, end, group, part));
                }
            }
        }
        all.sort_unstable_by_key(|(start, end, group, _)| (*start, *end, *group));
        let longest = all.iter().map(|(start, end, ..)| end - start).max().unwrap_or(0);
        Self { ranges: all, longest }
    }

    /// Returns whether a structure at `place` would overlap another one.
    fn is_taken(&self, group: Group, part: GroupStructure, place: Block, len: u64) -> bool {
        let end = place.0.saturating_add(len);
        let until = self.ranges.partition_point(|(start, ..)| *start < end);
        let near = self.ranges[..until].iter().rev();
        near.take_while(|(start, ..)| start.saturating_add(self.longest) > place.0)
            .any(|(_, other_end, of, its)| *other_end > place.0 && (*of, *its) != (group, part))
    }
}

/// Chooses the positions of one group's structures.
fn settle_group(
    image: &StagedImage<'_>,
    group: Group,
    usual: Option<&GroupDescriptor>,
    findings: &[&Finding],
    taken: &Taken,
) -> Result<()> {
    let Ok(bytes) = image.descriptor_bytes(group) else { return Ok(()) };
    let Some(primary) = GroupDescriptor::read(&bytes) else { return Ok(()) };
    let is_usual = usual.is_none_or(|usual| PARTS.iter().all(|p| p.of(usual) == p.of(&primary)));
    if is_usual && findings.is_empty() {
        return Ok(());
    }
    let backups = backups_of(image, group);
    let is_same = |other: &GroupDescriptor| PARTS.iter().all(|p| p.of(other) == p.of(&primary));
    if findings.is_empty() && !backups.is_empty() && backups.iter().all(is_same) {
        return Ok(());
    }
    let mut desc = primary;
    for part in PARTS {
        let candidates =
            std::iter::once(&primary).chain(&backups).chain(usual).map(|desc| part.of(desc));
        let len = part.len(image);
        let is_free = |place: Block| {
            let lies_on = |other: GroupStructure| {
                let start = other.of(&primary);
                other != part && place < start.plus(other.len(image)) && start < place.plus(len)
            };
            !taken.is_taken(group, part, place, len) && !PARTS.into_iter().any(lies_on)
        };
        if let Some(best) = best_place(image, group, part, &primary, candidates, &is_free) {
            part.set(&mut desc, best);
        }
    }
    if is_same(&desc) {
        return Ok(());
    }
    step(image.staging, || {
        look_through(image, group, &mut desc)?;
        image.write_descriptor(group, &desc)?;
        let source =
            if backups.iter().any(|backup| PARTS.iter().all(|p| p.of(backup) == p.of(&desc))) {
                "a backup descriptor"
            } else {
                "the default layout"
            };
        let what = format!(
            "The locations of the bitmaps and the inode table of group {group} are taken from \
             {source}."
        );
        Ok(match findings {
            [] => vec![Action::new(what)],
            findings => findings.iter().map(|f| Action::about(f, what.clone())).collect(),
        })
    })
}

/// Returns the valid backups of a descriptor.
fn backups_of(image: &StagedImage<'_>, group: Group) -> Vec<GroupDescriptor> {
    let geometry = &image.params.geometry;
    let per_block = geometry.desc_per_block();
    let (index, offset) = (group.0 / per_block, (group.0 % per_block) as usize);
    let size = usize::from(geometry.desc_size);
    let holders = geometry.groups().skip(1).filter(|holder| {
        let (range, start) = geometry.gdt_copy_in(*holder);
        let place = start.plus(u64::from(index.wrapping_sub(range.start)));
        range.contains(&index) && place != geometry.gdt_block(index)
    });
    let read = |holder: Group| {
        let (range, start) = geometry.gdt_copy_in(holder);
        let bytes = image.block(start.plus(u64::from(index - range.start))).ok()?;
        let bytes = bytes.get(offset * size..(offset + 1) * size)?;
        GroupDescriptor::check_sum(bytes, &image.params.sb, group).ok()?;
        let desc = GroupDescriptor::read(bytes)?;
        desc.check_places(&image.params.sb).ok().map(|()| desc)
    };
    holders.take(BACKUPS_MAX).filter_map(read).collect()
}

/// Returns the best position of a structure: the one whose contents look most like it, then the one with the most
/// votes, then the first.
fn best_place(
    image: &StagedImage<'_>,
    group: Group,
    part: GroupStructure,
    desc: &GroupDescriptor,
    candidates: impl Iterator<Item = Block>,
    is_free: &dyn Fn(Block) -> bool,
) -> Option<Block> {
    let mut votes: Vec<(Block, u32)> = Vec::new();
    for place in candidates.filter(|place| is_possible(image, group, part, *place)) {
        match votes.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => votes.push((place, 1)),
        }
    }
    if let [(only, _)] = votes[..] {
        return Some(only);
    }
    let rank = |(place, votes): (Block, u32)| {
        (is_free(place), score(image, group, part, desc, place), votes)
    };
    let mut best: Option<((bool, u64, u32), Block)> = None;
    for vote in votes {
        let rank = rank(vote);
        if best.is_none_or(|(before, _)| rank > before) {
            best = Some((rank, vote.0));
        }
    }
    best.map(|(_, place)| place)
}

/// Returns whether a structure of a group can be at a position.
fn is_possible(image: &StagedImage<'_>, group: Group, part: GroupStructure, place: Block) -> bool {
    let geometry = &image.params.geometry;
    let len = part.len(image);
    if !geometry.contains(place, len) {
        return false;
    }
    let last = place.plus(len - 1);
    let is_base = [place, last].iter().any(|block| {
        let base = geometry.base_metadata(geometry.group_of(*block));
        base.contains(block)
    });
    let is_own = geometry.group_of(place) == group && geometry.group_of(last) == group;
    !is_base && (is_own || image.params.sb.features.incompat(Incompat::FLEX_BG))
}

/// Returns a score for how much the contents at a position look like a structure of a group.
fn score(
    image: &StagedImage<'_>,
    group: Group,
    part: GroupStructure,
    desc: &GroupDescriptor,
    place: Block,
) -> u64 {
    let (geometry, sb) = (&image.params.geometry, &image.params.sb);
    let Ok(block) = image.block(place) else { return 0 };
    let is_set = |bit: u32| block[bit as usize / 8] >> (bit % 8) & 1 == 1;
    let mask = if sb.desc_size >= 64 { u32::MAX } else { 0xffff };
    let bits = block.len() as u32 * 8;
    let sealed = |computed: u32, stored: u32| {
        4 * u64::from(image.params.checksums && computed & mask == stored)
    };
    match part {
        GroupStructure::BlockBitmap => {
            let padded = (geometry.clusters_in(group)..bits).all(is_set) && is_set(0);
            sealed(block_bitmap_checksum(&block, sb), desc.block_bitmap_csum) + u64::from(padded)
        }
        GroupStructure::InodeBitmap => {
            let padded = (geometry.inodes_per_group..bits).all(is_set);
            sealed(inode_bitmap_checksum(&block, sb), desc.inode_bitmap_csum) + u64::from(padded)
        }
        GroupStructure::InodeTable => {
            let blocks = TABLE_BLOCKS.min(u64::from(geometry.itable_blocks()));
            (0..blocks).map(|at| score_of_inodes(image, group, place, at)).sum()
        }
    }
}

/// Returns the number of slots of a table block that contain inodes.
fn score_of_inodes(image: &StagedImage<'_>, group: Group, table: Block, at: u64) -> u64 {
    let geometry = &image.params.geometry;
    let Ok(block) = image.block(table.plus(at)) else { return 0 };
    let first = geometry.ino_of(group, at as u32 * geometry.inodes_per_block());
    let slots = block.chunks_exact(usize::from(geometry.inode_size));
    let inos = (first.0..).map(Ino);
    let is_it = |(ino, slot): &(Ino, &[u8])| {
        let inode = Inode::from_slot(slot);
        // Without checksums, only the root distinguishes one table from a part of another.
        let is_root = ino.0 != u64::from(super::ROOT) || inode.is_dir();
        is_in_use(image, *ino, slot) && is_root
    };
    let bonus = |(ino, slot): (Ino, &[u8])| {
        1 + 8 * u64::from(ino.0 == u64::from(super::ROOT) && Inode::from_slot(slot).is_dir())
    };
    inos.zip(slots).filter(is_it).map(bonus).sum()
}

/// Returns whether a slot looks like an inode in use.
fn is_in_use(image: &StagedImage<'_>, ino: Ino, slot: &[u8]) -> bool {
    let inode = Inode::from_slot(slot);
    let extra = usize::from(inode.extra_isize());
    let fits = inode.file_acl() < image.params.geometry.blocks_count
        && extra.is_multiple_of(4)
        && slot.len() >= inode::GOOD_OLD_INODE_SIZE + extra;
    let is_live =
        fits && inode.file_type().is_some() && inode.links_count() > 0 && inode.dtime() == 0;
    let is_sealed = image.seed(ino.0 as u32, inode.generation()).is_none_or(|seed| {
        let (computed, stored) = inode::slot_checksums(seed, slot);
        computed == stored
    });
    is_live && is_sealed
}

/// Sets the uninitialised flags and counts of a descriptor according to its inode table.
fn look_through(
    image: &StagedImage<'_>,
    group: Group,
    desc: &mut GroupDescriptor,
) -> std::io::Result<()> {
    let geometry = &image.params.geometry;
    let clusters = geometry.clusters_per_group();
    let inodes = geometry.inodes_per_group;
    desc.free_blocks = desc.free_blocks.min(clusters);
    desc.free_inodes = desc.free_inodes.min(inodes);
    desc.used_dirs = desc.used_dirs.min(inodes);
    let known = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_ZEROED;
    desc.flags &= known;
    if !image.params.sb.features.group_csum() {
        desc.itable_unused = 0;
        desc.flags = GroupFlags::empty();
        return Ok(());
    }
    let mut to_last = if group.0 == 0 { image.params.sb.first_ino.min(inodes) } else { 0 };
    let per_block = geometry.inodes_per_block();
    for at in 0..geometry.itable_blocks() {
        let block = image.block(desc.inode_table.plus(at.into()))?;
        let slots = block.chunks_exact(usize::from(geometry.inode_size));
        for (index, slot) in (at * per_block..inodes).zip(slots) {
            if is_in_use(image, geometry.ino_of(group, index), slot) {
                to_last = index + 1;
            }
        }
    }
    if to_last > 0 {
        desc.flags.remove(GroupFlags::INODE_UNINIT);
    }
    if group.0 + 1 == geometry.groups_count {
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
    }
    desc.itable_unused = desc.itable_unused.min(inodes - to_last);
    Ok(())
}

/// Rewrites descriptors with valid checksums, after comparing them with the inode tables.
pub(super) fn repair_descriptors(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    step_groups(&job.staging, findings, &|group, findings| {
        let mut desc = image.descriptor(group)?;
        if desc.check_places(&image.params.sb).is_err() {
            return Ok(Vec::new());
        }
        look_through(&image, group, &mut desc)?;
        image.write_descriptor(group, &desc)?;
        let what = format!(
            "The inode table of group {group} is scanned, and the group descriptor is rewritten."
        );
        Ok(findings.iter().map(|finding| Action::about(finding, what.clone())).collect())
    })
}

/// Rewrites backups of descriptors.
pub(super) fn repair_backups(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let geometry = &image.params.geometry;
    for finding in findings {
        let (Some(holder), Some(place)) = (finding.place.group, finding.place.block) else {
            continue;
        };
        let (range, start) = geometry.gdt_copy_in(Group(holder as u32));
        let Some(index) = place.checked_sub(start.0).map(|at| range.start + at as u32) else {
            continue;
        };
        if !range.contains(&index) {
            continue;
        }
        step(&job.staging, || {
            image.write(Block(place), &image.block(geometry.gdt_block(index))?)?;
            let what = format!("The backup group descriptors in group {holder} are rewritten.");
            Ok(vec![Action::about(finding, what)])
        })?;
    }
    Ok(())
}
