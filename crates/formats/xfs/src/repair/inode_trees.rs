//! Rebuilds AGI and inode trees: from the old tree if that is valid, otherwise from the chunks that are found
//! ([`super::chunks`]).

use std::collections::{HashMap, HashSet};

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use super::RepairJob;
use super::bulk::{self, Built, Fill};
use super::chunks;
use super::group::GroupDevice;
use super::old::Old;
use super::shared;
use crate::btree::Tree;
use crate::btree::records::{FinoTree, FreeRun, InoTree, InodeChunk, rmap_owner};
use crate::check::codes;
use crate::check::survey::{AgChunks, Chunk, Claim};
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::ag::{AG_VERSION, AGI_MAGIC, AGI_SECTOR, NAMES, RawAgi, UNLINKED_BUCKETS};
use crate::format::btree::TreeShape;
use crate::format::bytes::be16;
use crate::format::checksum;
use crate::format::features::RoCompat;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};

/// Rebuilds the inode trees of all groups in the findings.
pub(super) fn rebuild(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let mut concerned: HashMap<u32, Vec<&Finding>> = HashMap::new();
    for finding in findings {
        if let Some(ag) = super::group_of(&survey.geometry, finding) {
            concerned.entry(ag).or_default().push(finding);
        }
    }
    let mut all = survey.chunks();
    let mut groups = Vec::new();
    for (&ag, findings) in &concerned {
        let device = GroupDevice::new(&job.staging, &survey.geometry, AgNumber(ag));
        let old = Old::read(&survey, &device);
        let mut records = chunks::find(job, &survey, &device, &old);
        mark_free(&device, &mut records, findings);
        let chunks = records.iter().map(Chunk::new).collect();
        all[ag as usize] = AgChunks { chunks, is_whole: true };
        groups.push((ag, old, records));
    }
    groups.sort_unstable_by_key(|(ag, ..)| *ag);
    let numbers: HashSet<u32> = concerned.keys().copied().collect();
    let mut owned = survey.ownership(numbers, Some(all), usize::MAX);
    owned.claims.sort_unstable();
    for (ag, old, records) in groups {
        if !survey.geometry.features.crc() && are_too_few(&old, &records) {
            // Inodes of version 4 do not contain their number, so some may be impossible to find.
            continue;
        }
        let device = GroupDevice::new(&job.staging, &survey.geometry, AgNumber(ag));
        let of_group = owned.claims.iter().filter(|claim| {
            let is_old = [rmap_owner::INOBT, rmap_owner::INODES].contains(&claim.owner);
            claim.ag == ag && !is_old
        });
        let mut claims: Vec<Claim> = of_group.copied().collect();
        claims.extend(chunks::claims(&survey.geometry, AgNumber(ag), &records));
        claims.sort_unstable();
        let free = room(&device, &old, &records, &claims, owned.has_gaps);
        group(job, &device, &old, &records, &free, &concerned[&ag])?;
    }
    Ok(())
}

/// Rebuilds the inode trees of groups with blocks claimed twice, if one of these trees is invalid by itself: the check
/// does not read a block that something else claims.
pub(super) fn unsound(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let geometry = &survey.geometry;
    let has_fino = geometry.features.ro_compat(RoCompat::FINOBT);
    let mut seen: HashMap<u32, bool> = HashMap::new();
    let is_unsound = |finding: &&&Finding| {
        let Some(ag) = super::group_of(geometry, finding) else { return false };
        *seen.entry(ag).or_insert_with(|| {
            let device = GroupDevice::new(&job.staging, geometry, AgNumber(ag));
            let old = Old::read(&survey, &device);
            !old.ino.is_sound || has_fino && !old.fino.is_sound
        })
    };
    let concerned: Vec<&Finding> = findings.iter().filter(is_unsound).copied().collect();
    if concerned.is_empty() { Ok(()) } else { rebuild(job, &concerned) }
}

/// Rebuilds the inode trees of groups in which a search finds inode chunks at other locations than the trees record.
/// Only groups with findings about inodes are examined.
pub(super) fn moved(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let geometry = &survey.geometry;
    let mut inodes: HashMap<u32, HashSet<u32>> = HashMap::new();
    for ino in findings.iter().filter_map(|finding| finding.place.inode) {
        if let Some((ag, ag_ino)) = geometry.split_ino(vfs::Ino(ino)) {
            inodes.entry(ag.0).or_default().insert(ag_ino.0);
        }
    }
    inodes.retain(|ag, inodes| {
        let device = GroupDevice::new(&job.staging, geometry, AgNumber(*ag));
        let old = Old::read(&survey, &device);
        let has = |chunk: &InodeChunk| {
            let numbers = chunk.start.0..chunk.start.0.saturating_add(INODES_PER_CHUNK);
            inodes.iter().any(|ino| numbers.contains(ino))
        };
        chunks::have_moved(job, &survey, &device, &old, has)
    });
    // One finding per group.
    let is_first = |finding: &&&Finding| {
        super::group_of(geometry, finding).is_some_and(|ag| inodes.remove(&ag).is_some())
    };
    let concerned: Vec<&Finding> = findings.iter().filter(is_first).copied().collect();
    if concerned.is_empty() { Ok(()) } else { rebuild(job, &concerned) }
}

/// Returns whether there are fewer inodes than the AGI counts, and clearly fewer in use, or no chunks at all. Some may be
/// damaged.
fn are_too_few(old: &Old<'_>, records: &[InodeChunk]) -> bool {
    let used = |record: &InodeChunk| record.inodes().saturating_sub(record.freecount.into());
    let found: u32 = records.iter().map(used).sum();
    let all: u32 = records.iter().map(InodeChunk::inodes).sum();
    let is_short = |agi: &RawAgi| {
        let counted = agi.count.get().saturating_sub(agi.freecount.get());
        agi.count.get() > all && counted > found + found / 8 + 1
    };
    !old.ino.is_sound && old.header().map_or(records.is_empty(), is_short)
}

/// Rebuilds the inode trees of groups with a wrong AGI checksum.
pub(super) fn checksums(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let own: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.detail.as_deref() == Some(NAMES[AGI_SECTOR as usize]))
        .copied()
        .collect();
    if own.is_empty() { Ok(()) } else { rebuild(job, &own) }
}

/// Corrects the free masks of records according to findings: an inode that is not in use becomes free, and an inode
/// in use that the tree calls free becomes used.
fn mark_free(device: &GroupDevice<'_>, records: &mut [InodeChunk], findings: &[&Finding]) {
    let geometry = device.geometry;
    let codes = [codes::INODE_NOT_USED, codes::INODE_FREE];
    for finding in findings.iter().filter(|finding| codes.contains(&finding.code)) {
        let Some(ino) = finding.place.inode else { continue };
        let Some((ag, ag_ino)) = geometry.split_ino(vfs::Ino(ino)) else { continue };
        let (block, at) = geometry.inode_place(ag_ino);
        let is_free = finding.code == codes::INODE_NOT_USED;
        if ag != device.ag
            || device.read_block(block).is_none_or(|b| (be16(&b, at + 2) == 0) != is_free)
        {
            continue;
        }
        for record in records.iter_mut() {
            let Some(nth) = ag_ino.0.checked_sub(record.start.0).filter(|n| *n < 64) else {
                continue;
            };
            if is_free && record.free >> nth & 1 == 0 {
                record.free |= 1 << nth;
                record.freecount += 1;
            } else if !is_free && record.available() >> nth & 1 == 1 {
                record.free &= !(1 << nth);
                record.freecount = record.freecount.saturating_sub(1);
            }
        }
    }
}

/// Returns blocks for the new trees, preferring those of the old trees.
fn room(
    device: &GroupDevice<'_>,
    old: &Old,
    records: &[InodeChunk],
    claims: &[Claim],
    has_gaps: bool,
) -> Vec<AgBlock> {
    let gaps = shared::gaps(claims, device.geometry.ag_len(device.ag));
    let is_unclaimed = |block: u32| {
        let at = gaps.partition_point(|run| run.start.0 <= block);
        at.checked_sub(1).is_some_and(|at| block - gaps[at].start.0 < gaps[at].len)
    };
    let own: Vec<u32> =
        old.blocks_of_inodes().into_iter().filter(|block| is_unclaimed(*block)).collect();
    let met: HashSet<u32> = own.iter().copied().collect();
    let blocks_of = |run: &FreeRun| run.start.0..run.start.0 + run.len;
    let listed = old.free_runs().into_iter().flat_map(|run| blocks_of(&run).collect::<Vec<_>>());
    let listed: Vec<u32> =
        listed.filter(|block| is_unclaimed(*block) && !met.contains(block)).take(1 << 20).collect();
    // If free space is unknown as well, blocks that are neither claimed nor in a tree of space.
    let is_guessed = listed.is_empty() && !has_gaps;
    let of_space = old.blocks_of_space();
    let others = gaps.iter().filter(|_| is_guessed).flat_map(blocks_of);
    let others = others.filter(|block| !met.contains(block) && !of_space.contains(block));
    let is_unknown = listed.is_empty() && has_gaps;
    let mut room: Vec<AgBlock> =
        own.iter().copied().chain(listed).chain(others.take(1 << 16)).map(AgBlock).collect();
    if is_unknown {
        // The contents of the old blocks are the only evidence.
        room.extend(signed(device, records, |block| is_unclaimed(block) && !met.contains(&block)));
    }
    room
}

/// Returns blocks with a header of the inode trees, if there is no other evidence. In version 4, where headers do not
/// contain a location, these are leaves with records of the chunks that were found.
fn signed(
    device: &GroupDevice<'_>,
    records: &[InodeChunk],
    is_unclaimed: impl Fn(u32) -> bool,
) -> Vec<AgBlock> {
    let (geometry, ag) = (device.geometry, device.ag);
    let starts: HashSet<AgIno> = records.iter().map(|record| record.start).collect();
    let is_own_leaf = |bytes: &[u8]| {
        let area = InoTree::SHAPE.leaf_area(geometry);
        let (count, level) = (area.count(bytes), area.level(bytes));
        let mut entries = (0..count.min(area.max)).map(|at| area.entry(bytes, at));
        level == 0
            && count > 0
            && entries.all(|entry| starts.contains(&InoTree::record(entry).start))
    };
    let is_signed = |block: &AgBlock| {
        let place = geometry.block_of(ag, *block);
        device.read_block(*block).is_some_and(|bytes| {
            let shapes = [InoTree::SHAPE, FinoTree::SHAPE];
            let is_right =
                |shape: &TreeShape| shape.verify(geometry, place, ag.0.into(), &bytes).is_ok();
            match geometry.features.crc() {
                true => shapes.iter().any(is_right),
                false => is_right(&shapes[0]) && is_own_leaf(&bytes),
            }
        })
    };
    let blocks = (0..geometry.ag_len(ag)).filter(|block| is_unclaimed(*block)).map(AgBlock);
    blocks.filter(is_signed).collect()
}

/// Takes readable blocks, which can be written.
fn take(device: &GroupDevice<'_>, room: &[AgBlock], count: usize) -> Option<Vec<AgBlock>> {
    let readable = room.iter().copied().filter(|block| device.read_block(*block).is_some());
    let mut taken: Vec<AgBlock> = readable.take(count).collect();
    taken.sort_unstable();
    (taken.len() == count).then_some(taken)
}

fn group(
    job: &RepairJob,
    device: &GroupDevice<'_>,
    old: &Old,
    records: &[InodeChunk],
    room: &[AgBlock],
    findings: &[&Finding],
) -> Result<()> {
    let (geometry, ag) = (device.geometry, device.ag);
    let has_fino = geometry.features.ro_compat(RoCompat::FINOBT);
    let with_free: Vec<InodeChunk> =
        records.iter().filter(|record| record.available() != 0).copied().collect();
    for fill in [Fill::Roomy, Fill::Full] {
        let ino_count = bulk::blocks::<InoTree>(geometry, records.len(), fill);
        let fino_count = match has_fino {
            true => bulk::blocks::<FinoTree>(geometry, with_free.len(), fill),
            false => 0,
        };
        let Some(places) = take(device, room, ino_count + fino_count) else { continue };
        let (of_ino, of_fino) = places.split_at(ino_count);
        let ino = bulk::build::<InoTree>(geometry, ag, records, fill, of_ino);
        let fino =
            has_fino.then(|| bulk::build::<FinoTree>(geometry, ag, &with_free, fill, of_fino));
        let agi = agi(device, old, records, &ino, fino.as_ref());
        let built = [Some(&ino), fino.as_ref()];
        for (block, bytes) in built.into_iter().flatten().flat_map(|built| &built.blocks) {
            device.write_block(*block, bytes)?;
        }
        device.write_sector(AGI_SECTOR, &agi)?;
        let what = match old.ino.is_sound {
            true => format!("The inode trees of group {ag} are rebuilt."),
            false => format!(
                "The inode trees of group {ag} are rebuilt from {} inode chunks.",
                records.len()
            ),
        };
        let actions = findings.iter().map(|f| Action::about(f, what.clone())).collect();
        job.staging.end_step(actions).map_err(Error::Device)?;
        return Ok(());
    }
    Ok(())
}

fn agi(
    device: &GroupDevice<'_>,
    old: &Old,
    records: &[InodeChunk],
    ino: &Built,
    fino: Option<&Built>,
) -> Vec<u8> {
    let geometry = device.geometry;
    let mut agi = RawAgi::new_zeroed();
    agi.magicnum = AGI_MAGIC.into();
    agi.versionnum = AG_VERSION.into();
    agi.seqno = device.ag.0.into();
    agi.length = geometry.ag_len(device.ag).into();
    let count: u32 = records.iter().map(InodeChunk::inodes).sum();
    let free: u32 = records.iter().map(|record| u32::from(record.freecount)).sum();
    (agi.count, agi.freecount) = (count.into(), free.into());
    (agi.root, agi.level) = (ino.root.0.into(), ino.levels.into());
    let newest = records.iter().map(|record| record.start.0).max();
    agi.newino = newest.unwrap_or(AgIno::NULL.0).into();
    agi.dirino = AgIno::NULL.0.into();
    agi.unlinked = unlinked(geometry, device.ag, old).map(Into::into);
    let has_counts = geometry.features.ro_compat(RoCompat::INOBTCOUNT);
    if has_counts {
        agi.iblocks = (ino.blocks.len() as u32).into();
    }
    if let Some(fino) = fino {
        (agi.free_root, agi.free_level) = (fino.root.0.into(), fino.levels.into());
        if has_counts {
            agi.fblocks = (fino.blocks.len() as u32).into();
        }
    }
    let mut sector = vec![0; geometry.sector_size()];
    if geometry.features.crc() {
        agi.uuid = geometry.meta_uuid;
    }
    sector[..agi.as_bytes().len()].copy_from_slice(agi.as_bytes());
    if geometry.features.crc() {
        checksum::seal(&mut sector, std::mem::offset_of!(RawAgi, crc));
    }
    sector
}

/// Returns the valid unlinked lists of the old AGI.
fn unlinked(geometry: &Geometry, ag: AgNumber, old: &Old) -> [u32; UNLINKED_BUCKETS] {
    let mut buckets = [AgIno::NULL.0; UNLINKED_BUCKETS];
    let Some(agi) = old.agi.as_ref().filter(|agi| agi.magicnum.get() == AGI_MAGIC) else {
        return buckets;
    };
    for (bucket, first) in agi.unlinked.iter().enumerate() {
        let ino = geometry.ino(ag, AgIno(first.get()));
        let is_here = geometry.split_ino(ino) == Some((ag, AgIno(first.get())));
        if is_here && first.get() as usize % UNLINKED_BUCKETS == bucket {
            buckets[bucket] = first.get();
        }
    }
    buckets
}
