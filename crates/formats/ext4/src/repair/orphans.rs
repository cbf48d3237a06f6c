//! Repairs the orphan list and the orphan file.

use std::collections::HashSet;

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;
use zerocopy::IntoBytes;

use super::RepairJob;
use super::image::{StagedImage, step};
use super::system_files::{make_orphan_file, turn_orphan_file_off};
use crate::check::find_in_use;
use crate::format::address::Block;
use crate::format::features::{Compat, RoCompat};
use crate::format::inode::Inode;
use crate::format::orphan;
use crate::open::superblock_copy::Copy;

/// Cuts the list before the first inode that cannot be an orphan.
pub(super) fn repair_list(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    step(&job.staging, || {
        let sb = &image.params.sb;
        let mut seen = HashSet::new();
        let (mut before, mut ino) = (None, sb.raw.last_orphan.get());
        while ino != 0 {
            let can_be = (sb.first_ino..=sb.inodes_count).contains(&ino);
            let slot = if can_be { image.slot(ino)? } else { None };
            let inode = slot.map(|slot| Inode::from_slot(&slot));
            let in_use = inode.filter(|inode| inode.file_type().is_some());
            match in_use.filter(|_| seen.insert(ino)) {
                Some(inode) => (before, ino) = (Some(ino), inode.dtime()),
                None => break,
            }
        }
        if ino == 0 {
            return Ok(Vec::new());
        }
        match before {
            None => image.edit_superblock(|raw| raw.last_orphan = 0.into())?,
            Some(last) => {
                let Some(mut slot) = image.slot(last)? else { return Ok(Vec::new()) };
                let at = crate::format::inode::DTIME_BYTES;
                slot[at].fill(0);
                image.write_slot(last, slot)?;
            }
        }
        let what = |f: &&Finding| Action::about(f, "The orphan list is cut at this inode.");
        Ok(findings.iter().map(what).collect())
    })
}

/// Recreates blocks of the orphan file, or all of it.
pub(super) fn repair_file(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    for finding in findings {
        let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
        let raw = &image.params.sb.raw;
        let ino = raw.orphan_file_inum.get();
        let copied = Copy::find(&*job.staging).map(|copy| copy.raw().orphan_file_inum.get());
        if let Some(other) = copied.filter(|other| *other != ino && *other != 0) {
            step(&job.staging, || {
                image.edit_superblock(|raw| raw.orphan_file_inum = other.into())?;
                let what = "The inode number of the orphan file is restored from a superblock \
                            backup.";
                Ok(vec![Action::about(finding, what)])
            })?;
            return Ok(());
        }
        let Some(place) = finding.place.block.map(Block) else {
            return make_orphan_file(job, &image, finding);
        };
        if !holds_orphan_blocks(job, &image, ino)? {
            return leave_file(job, &image, finding);
        }
        step(&job.staging, || {
            let generation = image.inode(ino)?.map_or(0, |inode| inode.generation());
            let mut bytes = image.block(place)?;
            let kept = keep_orphans(&image, &mut bytes)?;
            orphan::seal(&mut bytes, place, image.seed(ino, generation));
            image.write(place, &bytes)?;
            let what = format!("The block of the orphan file is rewritten with {kept} orphans.");
            Ok(vec![Action::about(finding, what)])
        })?;
    }
    Ok(())
}

/// Clears the slots of a damaged block, except those of inodes without links that were never freed. Returns the number
/// of slots kept.
fn keep_orphans(image: &StagedImage<'_>, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut seen = HashSet::new();
    let slots = orphan::slots_per_block(bytes.len());
    for slot in bytes.chunks_exact_mut(4).take(slots) {
        let ino = slot.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let sb = &image.params.sb;
        let can_be = (sb.first_ino..=sb.inodes_count).contains(&ino);
        let inode = if can_be { image.inode(ino)? } else { None };
        let is_orphan = inode.is_some_and(|inode| {
            inode.file_type().is_some() && inode.links_count() == 0 && inode.dtime() == 0
        });
        if !is_orphan || !seen.insert(ino) {
            slot.fill(0);
        }
    }
    Ok(seen.len())
}

/// Returns whether any of the first blocks of an inode is an orphan file block. Otherwise the inode number is wrong,
/// and the contents belong to another file.
fn holds_orphan_blocks(job: &RepairJob, image: &StagedImage<'_>, ino: u32) -> Result<bool> {
    const BLOCKS_MAX: usize = 32;
    let found = find_in_use(job.staging.clone(), &job.options, |in_use| {
        in_use.places(ino, BLOCKS_MAX).into_iter().any(|place| {
            image.block(place).is_ok_and(|bytes| orphan::parse(&bytes, place, None).is_ok())
        })
    })?;
    Ok(found.unwrap_or(false))
}

/// Disables the feature, and does not change the inode that the superblock names as the orphan file.
fn leave_file(job: &RepairJob, image: &StagedImage<'_>, finding: &Finding) -> Result<()> {
    step(&job.staging, || {
        turn_orphan_file_off(image)?;
        let what =
            "The feature orphan_file is turned off, because the inode is not an orphan file.";
        Ok(vec![Action::about(finding, what)])
    })
}

/// Clears slots of the orphan file with inodes that cannot be orphans.
pub(super) fn repair_entries(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let file = image.params.sb.raw.orphan_file_inum.get();
    for finding in findings {
        let Some(place) = finding.place.block.map(Block) else { continue };
        let Some(ino) = finding.found.as_ref().and_then(|ino| ino.parse::<u32>().ok()) else {
            continue;
        };
        step(&job.staging, || {
            let generation = image.inode(file)?.map_or(0, |inode| inode.generation());
            let mut bytes = image.block(place)?;
            let slots = orphan::slots_per_block(bytes.len());
            let is_it = |slot: &usize| bytes[slot * 4..slot * 4 + 4] == *ino.as_bytes();
            // The last of several equal slots: the others may be right.
            let Some(slot) = (0..slots).rev().find(is_it) else { return Ok(Vec::new()) };
            bytes[slot * 4..slot * 4 + 4].fill(0);
            orphan::seal(&mut bytes, place, image.seed(file, generation));
            image.write(place, &bytes)?;
            Ok(vec![Action::about(finding, "The slot of the orphan file is cleared.")])
        })?;
    }
    Ok(())
}

/// Sets or clears the flag that the orphan file contains orphans.
pub(super) fn repair_present(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let has_file = image.params.sb.features.compat(Compat::ORPHAN_FILE);
    step(&job.staging, || {
        image.edit_superblock(|raw| {
            let mut features = raw.features();
            features.ro_compat.set(RoCompat::ORPHAN_PRESENT, has_file);
            raw.set_features(&features);
        })?;
        let what = if has_file {
            "The orphan_present flag is set, so that the orphans are processed."
        } else {
            "The orphan_present flag is cleared, because there is no orphan file."
        };
        Ok(findings.iter().map(|f| Action::about(f, what)).collect())
    })
}
