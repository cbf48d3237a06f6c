//! Recreates system files: the journal, quota files, the orphan file.

use std::io;

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::RepairJob;
use super::image::{StagedImage, step};
use super::journal::{new_file, write_inode};
use super::quota;
use crate::check::codes::JOURNAL_INODE;
use crate::check::{InUse, find_in_use};
use crate::format::address::{Block, Group};
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::jbd2;
use crate::format::orphan;
use crate::log::JOURNAL_INO;
use crate::mkfs::mapping::{self, Mapped};
use crate::mkfs::space::Space;

/// Inode of the bad block list.
const BAD_BLOCKS_INO: u32 = 1;
/// Number of blocks of a new orphan file.
const ORPHAN_BLOCKS: u64 = 32;
/// Journal blocks of small and of other file systems.
const JOURNAL_BLOCKS: [u64; 2] = [1024, 4096];
/// Minimum number of blocks of a file system that is not small.
const SMALL_BLOCKS: u64 = 32 << 10;

/// Returns the free space as runs of blocks.
fn free_space(image: &StagedImage<'_>, in_use: &InUse<'_>) -> Space {
    let geometry = &image.params.geometry;
    let mut space = Space::new(u64::from(geometry.first_data_block)..geometry.blocks_count);
    let used = in_use.clusters();
    let end_of = |cluster: u64| in_use.block_of(cluster).0.min(geometry.blocks_count);
    let mut start = None;
    for cluster in 0..used.limit() {
        match (used.contains(cluster), start) {
            (true, None) => start = Some(cluster),
            (false, Some(first)) => {
                space.take(in_use.block_of(first).0..end_of(cluster));
                start = None;
            }
            _ => {}
        }
    }
    if let Some(first) = start {
        space.take(in_use.block_of(first).0..geometry.blocks_count);
    }
    space
}

/// Returns a free block, in `group` unless groups may share space.
pub(super) fn free_block_in(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    group: Group,
) -> Option<Block> {
    let geometry = &image.params.geometry;
    let goal = geometry.first_block(group);
    let start = free_space(image, in_use).take_run(goal.0, 1).filter(|_| in_use.is_complete());
    let is_possible = |block: &Block| {
        geometry.group_of(*block) == group || image.params.sb.features.incompat(Incompat::FLEX_BG)
    };
    start.map(Block).filter(is_possible)
}

/// Returns a free block.
pub(super) fn free_block(image: &StagedImage<'_>, in_use: &InUse<'_>) -> Option<Block> {
    let start = free_space(image, in_use).take_run(0, 1).filter(|_| in_use.is_complete());
    start.map(Block)
}

/// Allocates and maps `len` blocks for an inode, from `goal` on if it is given and there is room. Returns `None` if there is no room. The bitmaps are updated when the
/// next round compares them.
fn map_new(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    ino: u32,
    (len, goal): (u64, Option<u64>),
) -> Option<Mapped> {
    if !in_use.is_complete() {
        return None;
    }
    let mut space = free_space(image, in_use);
    let block_size = image.block_size();
    // Prefer contiguous blocks, because the root of a tree has few entries.
    let goal = goal.or_else(|| space.clone().take_run(0, len)).unwrap_or(0);
    if image.params.extents {
        mapping::extents(&mut space, goal, len, block_size, image.seed(ino, 0))
    } else {
        mapping::block_map(&mut space, goal, len, block_size)
    }
}

/// Makes an inode a file of `len` new blocks. `block` returns the contents by number and position. Returns `None` if
/// there was no room. The blocks start at `goal` if it is given and free.
pub(super) fn make_file(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    ino: u32,
    (len, goal): (u64, Option<u64>),
    mut block: impl FnMut(u64, Block) -> Option<Vec<u8>>,
) -> io::Result<Option<Mapped>> {
    let Some(mapped) = map_new(image, in_use, ino, (len, goal)) else { return Ok(None) };
    for (place, bytes) in &mapped.index {
        image.write(*place, bytes)?;
    }
    for (number, place) in (0..).zip(mapped.blocks()) {
        if let Some(bytes) = block(number, place) {
            image.write(place, &bytes)?;
        }
    }
    let geometry = &image.params.geometry;
    let size = len << geometry.block_size_log;
    let mut inode = new_file(image, &mapped.i_block, size, image.params.extents);
    // With clusters, whole clusters are counted.
    let cluster = u64::from(geometry.cluster_blocks());
    let total = len.next_multiple_of(cluster) + mapped.index.len() as u64 * cluster;
    inode.set_blocks_512(total * u64::from(geometry.block_size() / 512), geometry.block_size());
    let mut slot = vec![0; usize::from(geometry.inode_size)];
    let count = inode.as_bytes().len().min(slot.len());
    slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
    image.write_slot(ino, slot)?;
    Ok(Some(mapped))
}

fn set_features(image: &StagedImage<'_>, change: impl FnOnce(&mut Features)) -> io::Result<()> {
    image.edit_superblock(|raw| {
        let mut features = raw.features();
        change(&mut features);
        raw.set_features(&features);
    })
}

/// Recreates the special inodes that the superblock names and that are not files in use.
pub(in crate::repair) fn repair_special(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    for finding in findings {
        let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
        let raw = &image.params.sb.raw;
        let Some(ino) = finding.place.inode.map(|ino| ino as u32) else { continue };
        let quotas = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let is_quota = quotas.iter().any(|own| own.get() == ino);
        // Check the number first: a wrong number may be that of any other inode, which must not be changed.
        if is_quota && quota::repair_number(&image, ino, finding)? {
            continue;
        }
        let has_orphans = image.params.sb.features.compat(Compat::ORPHAN_FILE);
        if has_orphans && ino == raw.orphan_file_inum.get() {
            make_orphan_file(job, &image, finding)?;
        } else if ino == BAD_BLOCKS_INO {
            clear(&image, ino, finding, "The bad block list is emptied.")?;
        } else if ino == raw.journal_inum.get() || finding.code == JOURNAL_INODE {
            make_journal(job, &image, finding)?;
        } else if is_quota {
            quota::make(job, &image, ino, &[finding])?;
        } else if ino < image.params.sb.first_ino && ino != super::ROOT {
            let what = "The inode is cleared, because it is reserved and unused.";
            clear(&image, ino, finding, what)?;
        }
    }
    Ok(())
}

/// Clears the slot of an inode.
fn clear(image: &StagedImage<'_>, ino: u32, finding: &Finding, what: &str) -> Result<()> {
    step(image.staging, || {
        image.write_slot(ino, vec![0; usize::from(image.params.geometry.inode_size)])?;
        Ok(vec![Action::about(finding, what)])
    })
}

/// Recreates the journal, empty. Disables the feature if there is no room.
fn make_journal(job: &RepairJob, image: &StagedImage<'_>, finding: &Finding) -> Result<()> {
    let geometry = &image.params.geometry;
    let wanted = JOURNAL_BLOCKS[usize::from(geometry.blocks_count >= SMALL_BLOCKS)];
    let done = find_in_use(job.staging.clone(), &job.options, |in_use| {
        step(&job.staging, || {
            let mut made = None;
            for len in [wanted, u64::from(jbd2::BLOCKS_MIN)] {
                made = make_file(image, in_use, JOURNAL_INO, (len, None), |_, _| {
                    Some(vec![0; image.block_size()])
                })?
                .map(|mapped| (mapped, len));
                if made.is_some() {
                    break;
                }
            }
            let Some((mapped, len)) = made else { return drop_journal(image, finding) };
            let header = jbd2::RawJournalSuperblock::empty(
                geometry.block_size(),
                len as u32,
                image.params.sb.raw.uuid,
            );
            if let Some(first) = mapped.blocks().next() {
                use zerocopy::IntoBytes;
                image.write(first, header.as_bytes())?;
            }
            let slot = image.slot(JOURNAL_INO)?;
            let root = (mapped.i_block, len << geometry.block_size_log, image.params.extents);
            write_inode(image, JOURNAL_INO, root)?;
            // The block count of the created inode includes map blocks.
            if let Some(slot) = slot {
                image.write_slot(JOURNAL_INO, slot)?;
            }
            Ok(vec![Action::about(finding, "A new, empty journal is created.")])
        })
    })?;
    done.unwrap_or(Ok(()))
}

fn drop_journal(image: &StagedImage<'_>, finding: &Finding) -> io::Result<Vec<Action>> {
    image.write_slot(JOURNAL_INO, vec![0; usize::from(image.params.geometry.inode_size)])?;
    image.edit_superblock(|raw| {
        let mut features = raw.features();
        features.compat.remove(Compat::HAS_JOURNAL | Compat::FAST_COMMIT);
        features.incompat.remove(Incompat::RECOVER);
        raw.set_features(&features);
        raw.journal_inum = 0.into();
        raw.journal_dev = 0.into();
        raw.journal_uuid = [0; 16];
        raw.jnl_backup_type = 0;
    })?;
    let what = "The feature has_journal is turned off, because there is no space for a journal.";
    Ok(vec![Action::about(finding, what)])
}

/// Recreates the orphan file, empty. Disables the feature if there is no room or no valid inode.
pub(super) fn make_orphan_file(
    job: &RepairJob,
    image: &StagedImage<'_>,
    finding: &Finding,
) -> Result<()> {
    let ino = image.params.sb.raw.orphan_file_inum.get();
    let range = image.params.sb.first_ino..=image.params.sb.inodes_count;
    let done = find_in_use(job.staging.clone(), &job.options, |in_use| {
        step(&job.staging, || {
            let empty = |_, place: Block| {
                let mut bytes = vec![0; image.block_size()];
                orphan::seal(&mut bytes, place, image.seed(ino, 0));
                Some(bytes)
            };
            let is_there = range.contains(&ino);
            let is_of_use = is_there && image.params.sb.features.compat(Compat::HAS_JOURNAL);
            if is_of_use && make_file(image, in_use, ino, (ORPHAN_BLOCKS, None), empty)?.is_some() {
                set_features(image, |features| {
                    features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
                })?;
                return Ok(vec![Action::about(finding, "A new, empty orphan file is created.")]);
            }
            if is_there {
                image.write_slot(ino, vec![0; usize::from(image.params.geometry.inode_size)])?;
            }
            turn_orphan_file_off(image)?;
            let what = "The feature orphan_file is turned off, because the file cannot be created.";
            Ok(vec![Action::about(finding, what)])
        })
    })?;
    done.unwrap_or(Ok(()))
}

/// Disables the feature. The inode that the superblock named does not change.
pub(super) fn turn_orphan_file_off(image: &StagedImage<'_>) -> io::Result<()> {
    image.edit_superblock(|raw| {
        let mut features = raw.features();
        features.compat.remove(Compat::ORPHAN_FILE);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        raw.set_features(&features);
        raw.orphan_file_inum = 0.into();
    })
}
