//! Rebuilds bitmaps and counts from the survey of all inodes.

use operations::repair::Action;
use vfs::Result;
use vfs::check::{Code, Finding};

use super::RepairJob;
use super::image::{StagedImage, step, step_groups};
use crate::check::codes::{
    BLOCK_BITMAP_CHECKSUM, BLOCK_BITMAP_FREE, BLOCK_BITMAP_PADDING, BLOCK_BITMAP_USED,
    INODE_BITMAP_CHECKSUM, INODE_BITMAP_FREE, INODE_BITMAP_PADDING, INODE_BITMAP_USED,
};
use crate::check::{InUse, find_in_use};
use crate::format::address::{Block, Group};
use crate::format::group::{GroupFlags, block_bitmap_checksum, inode_bitmap_checksum};

/// Codes that require a new block bitmap.
const OF_BLOCKS: &[&Code] =
    &[BLOCK_BITMAP_CHECKSUM, BLOCK_BITMAP_FREE, BLOCK_BITMAP_USED, BLOCK_BITMAP_PADDING];
/// Codes that require a new inode bitmap.
const OF_INODES: &[&Code] =
    &[INODE_BITMAP_CHECKSUM, INODE_BITMAP_FREE, INODE_BITMAP_USED, INODE_BITMAP_PADDING];

/// Rebuilds bitmaps and counts of all groups with findings.
pub(super) fn repair_groups(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let repaired = find_in_use(job.staging.clone(), &job.options, |in_use| {
        step_groups(&job.staging, findings, &|group, findings| {
            repair_group(&image, in_use, group, findings)
        })
    })?;
    repaired.unwrap_or(Ok(()))
}

fn repair_group(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    group: Group,
    findings: &[&Finding],
) -> std::io::Result<Vec<Action>> {
    let Some(mut desc) = in_use.descriptor(group) else { return Ok(Vec::new()) };
    let sb = &image.params.sb;
    let has = |codes: &[&Code]| findings.iter().any(|finding| codes.contains(&finding.code));
    if has(OF_BLOCKS) {
        let bitmap = write_bitmap(image, in_use, desc.block_bitmap, in_use.block_bitmap(group))?;
        desc.block_bitmap_csum =
            if image.params.checksums { block_bitmap_checksum(&bitmap, sb) } else { 0 };
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
    }
    if has(OF_INODES) {
        let bitmap = write_bitmap(image, in_use, desc.inode_bitmap, in_use.inode_bitmap(group))?;
        desc.inode_bitmap_csum =
            if image.params.checksums { inode_bitmap_checksum(&bitmap, sb) } else { 0 };
    }
    let counts = in_use.counts(group);
    desc.free_blocks = counts.free_clusters;
    desc.free_inodes = counts.free_inodes;
    desc.used_dirs = counts.directories;
    if desc.flags.contains(GroupFlags::INODE_UNINIT) && counts.inodes_to_last > 0 {
        desc.flags.remove(GroupFlags::INODE_UNINIT);
    }
    if desc.itable_unused > 0 {
        let unused = image.params.geometry.inodes_per_group - counts.inodes_to_last;
        desc.itable_unused = desc.itable_unused.min(unused);
    }
    image.write_descriptor(group, &desc)?;
    let what = |finding: &Finding| {
        if OF_BLOCKS.contains(&finding.code) {
            format!("The block bitmap of group {group} is rebuilt.")
        } else if OF_INODES.contains(&finding.code) {
            format!("The inode bitmap of group {group} is rebuilt.")
        } else {
            format!("The counts of group {group} are recomputed.")
        }
    };
    Ok(findings.iter().map(|finding| Action::about(finding, what(finding))).collect())
}

/// Writes a bitmap. If not everything could be read, bits that were set stay set.
fn write_bitmap(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    place: Block,
    mut bitmap: Vec<u8>,
) -> std::io::Result<Vec<u8>> {
    if !in_use.is_complete() {
        for (byte, before) in bitmap.iter_mut().zip(image.block(place)?) {
            *byte |= before;
        }
    }
    image.write(place, &bitmap)?;
    Ok(bitmap)
}

/// Recomputes the free blocks and inodes in the superblock.
pub(super) fn repair_totals(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let totals = find_in_use(job.staging.clone(), &job.options, |in_use| {
        image.params.geometry.groups().map(|group| in_use.counts(group)).fold(
            (0, 0),
            |(clusters, inodes), counts| {
                (clusters + u64::from(counts.free_clusters), inodes + u64::from(counts.free_inodes))
            },
        )
    })?;
    let Some((clusters, inodes)) = totals else { return Ok(()) };
    step(&job.staging, || {
        image.edit_superblock(|raw| image.params.set_counts(raw, clusters, inodes))?;
        let what = |finding: &&Finding| {
            let what = if finding.code == crate::check::codes::SUPERBLOCK_FREE_INODES {
                "The free inode count is recomputed."
            } else {
                "The free block count is recomputed."
            };
            Action::about(finding, what)
        };
        Ok(findings.iter().map(what).collect())
    })
}
