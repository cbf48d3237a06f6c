//! Rebuilds AGF, AGFL and the trees of space of a group from the blocks of inodes, inode trees, headers and the log.
//! The old ones are not used.

use std::collections::HashSet;

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;
use zerocopy::{FromZeros, IntoBytes};

use super::bulk::{self, Built, Fill};
use super::files;
use super::group::{GroupDevice, Levels};
use super::shared;
use super::{RepairJob, group_of};
use crate::btree::records::{
    BnoTree, CntTree, FreeRun, RefcountRecord, RefcountTree, RmapRecord, RmapTree, rmap_owner,
};
use crate::check::references;
use crate::check::survey::{Claim, Survey};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::ag::{
    self, AG_VERSION, AGF_MAGIC, AGF_SECTOR, AGFL_MAGIC, AGFL_SECTOR, RawAgf, RawAgfl,
};
use crate::format::bytes::put32;
use crate::format::checksum;
use crate::format::features::RoCompat;

/// Maximum number of claims kept for several groups at once. A group with more is processed separately.
const CLAIMS_MAX: usize = 8 << 20;
/// Number of AGFL entries per level of a tree of space: two splits.
const PER_LEVEL: u32 = 2;

/// Rebuilds the trees of space of all groups in the findings.
pub(super) fn rebuild(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let mut groups: Vec<u32> =
        findings.iter().filter_map(|finding| group_of(&survey.geometry, finding)).collect();
    groups.sort_unstable();
    groups.dedup();
    let all = survey.ownership(groups.iter().copied().collect(), None, CLAIMS_MAX);
    if all.has_gaps {
        // Unreadable structures may own any block, so no block may be marked free.
        return files::repair_maps(job, &all.findings);
    }
    let mut claims = all.claims;
    claims.sort_unstable();
    for ag in groups {
        let concerned: Vec<&Finding> = findings
            .iter()
            .filter(|f| group_of(&survey.geometry, f) == Some(ag))
            .copied()
            .collect();
        if all.is_cut {
            let alone = survey.ownership(HashSet::from([ag]), None, usize::MAX);
            claims = alone.claims;
            claims.sort_unstable();
        }
        let from = claims.partition_point(|claim| claim.ag < ag);
        let to = claims.partition_point(|claim| claim.ag <= ag);
        group(job, &survey, AgNumber(ag), &claims[from..to], &concerned)?;
    }
    Ok(())
}

/// Rebuilds the trees of space of groups with a wrong checksum in AGF or AGFL.
pub(super) fn checksums(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let names = [AGF_SECTOR, AGFL_SECTOR].map(|sector| ag::NAMES[sector as usize]);
    let is_own = |finding: &&&Finding| {
        finding.detail.as_deref().is_some_and(|detail| names.contains(&detail))
    };
    let own: Vec<&Finding> = findings.iter().filter(is_own).copied().collect();
    if own.is_empty() { Ok(()) } else { rebuild(job, &own) }
}

/// The planned contents of a group's trees.
struct SpacePlan {
    free: Vec<FreeRun>,
    owners: Vec<RmapRecord>,
    references: Vec<RefcountRecord>,
    fill: Fill,
}

/// Number of blocks of each tree.
struct Sizes {
    space: usize,
    rmap: usize,
    refcount: usize,
}

impl Sizes {
    fn total(&self, agfl: u32) -> usize {
        2 * self.space + self.rmap + self.refcount + agfl as usize
    }
}

fn group(
    job: &RepairJob,
    survey: &Survey,
    ag: AgNumber,
    claims: &[Claim],
    findings: &[&Finding],
) -> Result<()> {
    let geometry = &survey.geometry;
    let device = GroupDevice::new(&job.staging, geometry, ag);
    let has_shared = geometry.features.ro_compat(RoCompat::REFLINK);
    let references = if has_shared { references::counted(claims.iter()) } else { Vec::new() };
    let free = shared::gaps(claims, geometry.ag_len(ag));
    // Full blocks are used only if roomy ones take too much space.
    for fill in [Fill::Roomy, Fill::Full] {
        let owners = shared::joined(claims);
        let plan = SpacePlan { free: free.clone(), owners, references: references.clone(), fill };
        if let Some(made) = place(&device, plan) {
            for (block, bytes) in &made.blocks {
                device.write_block(*block, bytes)?;
            }
            device.write_sector(AGF_SECTOR, &made.agf)?;
            device.write_sector(AGFL_SECTOR, &made.agfl)?;
            let what =
                format!("The space trees of group {ag} are rebuilt from inodes and inode trees.");
            let mut actions: Vec<Action> =
                findings.iter().map(|finding| Action::about(finding, what.clone())).collect();
            if actions.is_empty() {
                actions.push(Action::new(what));
            }
            job.staging.end_step(actions).map_err(vfs::Error::Device)?;
            return Ok(());
        }
    }
    Ok(())
}

/// The data to write for a group.
struct GroupData {
    blocks: Vec<(AgBlock, Vec<u8>)>,
    agf: Vec<u8>,
    agfl: Vec<u8>,
}

fn sizes(device: &GroupDevice<'_>, plan: &SpacePlan, runs: usize) -> Sizes {
    let geometry = device.geometry;
    let has = |feature| geometry.features.ro_compat(feature);
    // Each run of new blocks gives at most one record for each of its two owners.
    let owners = plan.owners.len() + 2 * runs;
    Sizes {
        space: bulk::blocks::<BnoTree>(geometry, plan.free.len(), plan.fill),
        rmap: match has(RoCompat::RMAPBT) {
            true => bulk::blocks::<RmapTree>(geometry, owners, plan.fill),
            false => 0,
        },
        refcount: match has(RoCompat::REFLINK) {
            true => bulk::blocks::<RefcountTree>(geometry, plan.references.len(), plan.fill),
            false => 0,
        },
    }
}

/// Assigns blocks to everything. `None` if there are too few.
fn place(device: &GroupDevice<'_>, mut plan: SpacePlan) -> Option<GroupData> {
    let geometry = device.geometry;
    let capacity = ag::agfl_capacity(geometry);
    let levels = Levels::of(device, plan.free.len(), plan.owners.len() + 8, plan.fill);
    let wanted = (PER_LEVEL * levels.of_space).min(capacity);
    let (mut runs, mut agfl) = (1, wanted);
    let taken = loop {
        let needed = sizes(device, &plan, runs).total(agfl);
        match device.take(&plan.free, needed) {
            Some(taken) if taken.len() <= runs => break taken,
            Some(taken) => runs = taken.len(),
            None if agfl > 0 => agfl -= 1,
            None => return None,
        }
    };
    let sizes = sizes(device, &plan, runs);
    plan.free = remove(&plan.free, &taken);
    let mut blocks = taken.iter().flat_map(|run| run.start.0..run.start.0 + run.len).map(AgBlock);
    let mut next = |count: usize| blocks.by_ref().take(count).collect::<Vec<_>>();
    let refcount = next(sizes.refcount);
    // With fewer free runs than before, trees may need fewer blocks than were taken.
    let space = bulk::blocks::<BnoTree>(geometry, plan.free.len(), plan.fill);
    let (bno, cnt) = (next(space), next(space));
    let mut rest = next(usize::MAX);
    enter(&mut plan.owners, &refcount, rmap_owner::REFC);
    let mut own = [bno.clone(), cnt.clone(), rest.clone()].concat();
    own.sort_unstable();
    enter(&mut plan.owners, &own, rmap_owner::AG);
    plan.owners.sort_unstable_by_key(RmapRecord::key);
    let rmap_blocks = match sizes.rmap {
        0 => 0,
        _ => bulk::blocks::<RmapTree>(geometry, plan.owners.len(), plan.fill),
    };
    if rmap_blocks > rest.len() {
        return None;
    }
    let listed = rest.split_off(rmap_blocks);
    if listed.len() > capacity as usize {
        return None;
    }
    Some(make(device, &plan, Places { bno, cnt, rmap: rest, refcount, listed }))
}

/// The blocks assigned to each structure.
struct Places {
    bno: Vec<AgBlock>,
    cnt: Vec<AgBlock>,
    rmap: Vec<AgBlock>,
    refcount: Vec<AgBlock>,
    /// The blocks of the AGFL.
    listed: Vec<AgBlock>,
}

/// Adds an owner of blocks, which must be sorted.
fn enter(owners: &mut Vec<RmapRecord>, blocks: &[AgBlock], owner: u64) {
    for run in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
        owners.push(RmapRecord { start: run[0], len: run.len() as u32, owner, offset: 0 });
    }
}

/// Returns the free runs without the blocks taken from their starts.
fn remove(free: &[FreeRun], taken: &[FreeRun]) -> Vec<FreeRun> {
    let left = free.iter().map(|run| {
        let gone = taken.iter().find(|t| t.start == run.start).map_or(0, |t| t.len);
        FreeRun { start: AgBlock(run.start.0 + gone), len: run.len - gone }
    });
    left.filter(|run| run.len > 0).collect()
}

fn make(device: &GroupDevice<'_>, plan: &SpacePlan, places: Places) -> GroupData {
    let (geometry, ag, fill) = (device.geometry, device.ag, plan.fill);
    let bno = bulk::build::<BnoTree>(geometry, ag, &plan.free, fill, &places.bno);
    let mut by_len = plan.free.clone();
    by_len.sort_unstable_by_key(|run| (run.len, run.start));
    let cnt = bulk::build::<CntTree>(geometry, ag, &by_len, fill, &places.cnt);
    let has = |feature| geometry.features.ro_compat(feature);
    let rmap = has(RoCompat::RMAPBT)
        .then(|| bulk::build::<RmapTree>(geometry, ag, &plan.owners, fill, &places.rmap));
    let refcount = has(RoCompat::REFLINK).then(|| {
        bulk::build::<RefcountTree>(geometry, ag, &plan.references, fill, &places.refcount)
    });
    let agf =
        agf(device, plan, [Some(&bno), Some(&cnt), rmap.as_ref()], refcount.as_ref(), &places);
    let agfl = agfl(device, &places.listed);
    let built = [Some(bno), Some(cnt), rmap, refcount];
    let blocks = built.into_iter().flatten().flat_map(|built| built.blocks).collect();
    GroupData { blocks, agf, agfl }
}

fn agf(
    device: &GroupDevice<'_>,
    plan: &SpacePlan,
    trees: [Option<&Built>; 3],
    refcount: Option<&Built>,
    places: &Places,
) -> Vec<u8> {
    let geometry = device.geometry;
    let mut agf = RawAgf::new_zeroed();
    agf.magicnum = AGF_MAGIC.into();
    agf.versionnum = AG_VERSION.into();
    agf.seqno = device.ag.0.into();
    agf.length = geometry.ag_len(device.ag).into();
    let mut btree_blocks = 0;
    for (at, tree) in trees.into_iter().enumerate() {
        let Some(tree) = tree else { continue };
        (agf.roots[at], agf.levels[at]) = (tree.root.0.into(), tree.levels.into());
        btree_blocks += tree.blocks.len() as u32 - 1;
    }
    agf.rmap_blocks = (trees[2].map_or(0, |tree| tree.blocks.len()) as u32).into();
    if let Some(tree) = refcount {
        (agf.refcount_root, agf.refcount_level) = (tree.root.0.into(), tree.levels.into());
        agf.refcount_blocks = (tree.blocks.len() as u32).into();
    }
    let (capacity, count) = (ag::agfl_capacity(geometry), places.listed.len() as u32);
    agf.flfirst = 0.into();
    // An empty ring ends before it starts.
    agf.fllast = count.checked_sub(1).unwrap_or(capacity - 1).into();
    agf.flcount = count.into();
    agf.freeblks = plan.free.iter().map(|run| run.len).sum::<u32>().into();
    agf.longest = plan.free.iter().map(|run| run.len).max().unwrap_or(0).into();
    agf.btreeblks = btree_blocks.into();
    let mut sector = vec![0; geometry.sector_size()];
    if geometry.features.crc() {
        agf.uuid = geometry.meta_uuid;
    }
    sector[..agf.as_bytes().len()].copy_from_slice(agf.as_bytes());
    if geometry.features.crc() {
        checksum::seal(&mut sector, std::mem::offset_of!(RawAgf, crc));
    }
    sector
}

fn agfl(device: &GroupDevice<'_>, listed: &[AgBlock]) -> Vec<u8> {
    let geometry = device.geometry;
    let first = ag::agfl_entries(geometry);
    let mut sector = vec![0xff; geometry.sector_size()];
    for (at, block) in listed.iter().enumerate() {
        put32(&mut sector, first + 4 * at, block.0);
    }
    if geometry.features.crc() {
        let mut agfl = RawAgfl::new_zeroed();
        agfl.magicnum = AGFL_MAGIC.into();
        agfl.seqno = device.ag.0.into();
        agfl.uuid = geometry.meta_uuid;
        sector[..first].copy_from_slice(agfl.as_bytes());
        checksum::seal(&mut sector, std::mem::offset_of!(RawAgfl, crc));
    }
    sector
}
