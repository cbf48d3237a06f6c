//! Resolves blocks with several owners: one inode keeps them, the others get copies.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use disk::BlockDevice;
use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::draft::Draft;
use super::inodes::set_blocks;
use super::map::{self, Map};
use super::patient::Patient;
use super::ward::{Ward, by_inode};
use crate::check::codes::{BLOCK_METADATA, EXTENT_CLUSTER};
use crate::format::address::Block;
use crate::format::inode::flags;
use crate::format::xattr::{self, BLOCK_REFCOUNT_RANGE};
use crate::format::{dirent, extent, htree, indirect};
use crate::repair::{Job, system_files};

/// Inode of the bad block list.
const BAD_BLOCKS_INO: u32 = 1;
/// Inode of the blocks reserved for descriptors.
const RESIZE_INO: u32 = 7;

/// Number of other inodes with which an inode must share clusters to be considered the damaged one.
const RIVALS_SUSPECT: usize = 3;
/// Score deducted from such an inode. It exceeds the score for contiguity with other blocks.
const SUSPECT_SCORE: u32 = 20;

/// Use of a cluster by an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// Data, from this file block on.
    Data(u32),
    Node(Block),
    Attributes,
}

/// Owner of a cluster, and the score of its claim.
#[derive(Clone, Copy)]
struct Owner {
    score: u32,
    ino: u32,
    what: Use,
}

/// Resolves blocks with several claims.
pub(super) fn mend(job: &Job, findings: &[&Finding]) -> Result<()> {
    let Some(mut ward) = Ward::surveyed(job)? else { return Ok(()) };
    ward.claim_all();
    let concerned = by_inode(findings);
    let suspects = suspects(&ward, &concerned);
    let mut owners: HashMap<u64, Owner> = HashMap::new();
    let mut hidden: Vec<&Finding> = Vec::new();
    if let Some(cluster) = resize_cluster(&ward) {
        let owner = Owner { score: u32::MAX, ino: RESIZE_INO, what: Use::Attributes };
        owners.insert(cluster, owner);
    }
    for (ino, _) in &concerned {
        let Some(patient) = ward.patient(*ino) else { continue };
        for (cluster, what, score) in claims(&ward, &patient) {
            // An inode with a damaged map shares clusters with many others, which are unlikely to be damaged too.
            let score =
                if suspects.contains(ino) { score.saturating_sub(SUSPECT_SCORE) } else { score };
            let claim = Owner { score, ino: *ino, what };
            let owner = owners.entry(cluster).or_insert(claim);
            if claim.score > owner.score {
                *owner = claim;
            }
        }
    }
    for (ino, findings) in concerned {
        if ward.scene.is_hidden(ino) && ino != RESIZE_INO {
            hidden.extend(findings.iter().filter(|finding| finding.code == BLOCK_METADATA));
        } else if let Some(patient) = ward.patient(ino) {
            part(&mut ward, patient, &owners, &findings)?;
        }
    }
    // A system file that refers to other structures of the file system is recreated.
    drop(ward);
    system_files::mend_special(job, &hidden)
}

/// Returns the inodes that share clusters with at least `RIVALS_SUSPECT` others. The number of stored claims per
/// cluster is limited to what this test needs.
fn suspects<T>(ward: &Ward<'_>, concerned: &[(u32, T)]) -> HashSet<u32> {
    let mut suspects = HashSet::new();
    let mut claimants: HashMap<u64, Vec<u32>> = HashMap::new();
    for (ino, _) in concerned {
        let Some(patient) = ward.patient(*ino) else { continue };
        for (cluster, ..) in claims(ward, &patient) {
            let known = claimants.entry(cluster).or_default();
            if known.contains(ino) {
                continue;
            }
            if known.len() > RIVALS_SUSPECT {
                suspects.insert(*ino);
            } else {
                known.push(*ino);
            }
        }
    }
    let mut rivals: HashMap<u32, BTreeSet<u32>> = HashMap::new();
    for inos in claimants.values() {
        for ino in inos {
            let known = rivals.entry(*ino).or_default();
            if known.len() < RIVALS_SUSPECT {
                known.extend(inos.iter().filter(|other| *other != ino));
            }
        }
    }
    let suspect =
        |(ino, known): (u32, BTreeSet<u32>)| (known.len() >= RIVALS_SUSPECT).then_some(ino);
    suspects.extend(rivals.into_iter().filter_map(suspect));
    suspects
}

/// Returns the cluster of the only block that the resize inode has outside the file system's own structures.
fn resize_cluster(ward: &Ward<'_>) -> Option<u64> {
    let patient = ward.patient(RESIZE_INO)?;
    let double = indirect::pointer(patient.inode.i_block(), 13)?;
    let can_be = ward.scene.can_be_of_file(double, 1);
    can_be.then(|| ward.scene.clusters(double, 1).start)
}

/// Returns the clusters that an inode claims and others too, with the score of each claim.
fn claims(ward: &Ward<'_>, patient: &Patient) -> Vec<(u64, Use, u32)> {
    let scene = &ward.scene;
    let Some(shared) = scene.shared() else { return Vec::new() };
    let is_own = scene.is_hidden(patient.ino) || patient.ino == BAD_BLOCKS_INO;
    let base = if is_own { 10_000 } else { 0 };
    let map = Map::read(scene, patient);
    let mut claims = Vec::new();
    let place = Block(patient.inode.file_acl());
    if place.0 != 0 && scene.can_be_of_file(place, 1) {
        let cluster = scene.clusters(place, 1).start;
        if shared.contains(cluster) {
            let seed = scene.params().checksums.then_some(scene.params().sb.checksum_seed);
            let is_sound = scene
                .block(place)
                .is_some_and(|bytes| xattr::verify_block(&bytes, place, seed).is_ok());
            claims.push((cluster, Use::Attributes, base + if is_sound { 60 } else { 0 }));
        }
    }
    for node in &map.nodes {
        let cluster = scene.clusters(*node, 1).start;
        if shared.contains(cluster) {
            claims.push((cluster, Use::Node(*node), base + node_score(ward, patient, *node)));
        }
    }
    let geometry = scene.geometry();
    let blocks = patient.inode.size() >> geometry.block_size_log;
    for run in &map.runs {
        let clusters = scene.clusters(run.start, run.len.into());
        let count = shared.count(clusters.clone());
        if count == 0 {
            continue;
        }
        // A run that continues in blocks without other claims probably belongs to the file.
        let goes_on = if count < clusters.end - clusters.start { 10 } else { 0 };
        let mut cluster = clusters.start;
        while cluster < clusters.end {
            if shared.contains(cluster) {
                let block = scene.block_of(cluster).max(run.start);
                let first = run.first + (block.0 - run.start.0) as u32;
                let inside = if u64::from(first) < blocks { 5 } else { 0 };
                let score = base + 1 + goes_on + inside + data_score(ward, patient, block, first);
                claims.push((cluster, Use::Data(first), score));
            }
            cluster += 1;
        }
    }
    claims
}

fn node_score(ward: &Ward<'_>, patient: &Patient, node: Block) -> u32 {
    let Some(bytes) = ward.scene.block(node) else { return 0 };
    match patient.block_seed() {
        _ if !patient.has(flags::EXTENTS) => 20,
        Some(seed) if extent::verify(&bytes, Some(seed)).is_ok() => 100,
        Some(_) => 0,
        None => 50,
    }
}

/// Returns the score of the evidence in a directory block that it belongs to this directory.
fn data_score(ward: &Ward<'_>, patient: &Patient, block: Block, first: u32) -> u32 {
    if !patient.inode.is_dir() {
        return 0;
    }
    let Some(bytes) = ward.scene.block(block) else { return 0 };
    if first == 0 && dirent::record_at(&bytes, 0).is_some_and(|dot| dot.inode == patient.ino) {
        return 90;
    }
    if is_sealed_for(&bytes, patient) == Some(true) { 100 } else { 0 }
}

/// Returns whether a directory block has a valid checksum of this directory.
fn is_sealed_for(bytes: &[u8], patient: &Patient) -> Option<bool> {
    let seed = patient.block_seed()?;
    let is_leaf = dirent::verify(bytes, u32::MAX, Some(seed)).is_ok();
    let is_index = |place| htree::verify(bytes, place, Some(seed)).is_ok();
    Some(is_leaf || is_index(htree::Place::Root) || is_index(htree::Place::Node))
}

/// Gives an inode copies of clusters that others keep, and removes clusters of the file system itself.
fn part(
    ward: &mut Ward<'_>,
    mut patient: Patient,
    owners: &HashMap<u64, Owner>,
    findings: &[&Finding],
) -> Result<()> {
    let ino = patient.ino;
    if ward.scene.is_hidden(ino) {
        return Ok(());
    }
    let mut draft = Draft::default();
    let mut lost: HashSet<Block> = HashSet::new();
    let mut moved: HashSet<Block> = HashSet::new();
    let mut data = Vec::new();
    for (cluster, what, _) in claims(ward, &patient) {
        let is_owner =
            owners.get(&cluster).is_none_or(|owner| owner.ino == ino && owner.what == what);
        match what {
            _ if is_owner => {}
            Use::Attributes => copy_attributes(ward, &mut patient, &mut draft),
            Use::Node(node) => {
                let is_foreign =
                    patient.block_seed().is_some() && node_score(ward, &patient, node) == 0;
                let side = if is_foreign { &mut lost } else { &mut moved };
                side.insert(node);
            }
            Use::Data(first) => data.push((first, cluster)),
        }
    }
    let is_kept = lost.is_empty() && moved.is_empty();
    let mut map = Map::read_without(&ward.scene, &patient, lost);
    let mut changes = BTreeMap::new();
    if ward.scene.geometry().cluster_blocks() > 1 {
        // Blocks of a file in one cluster must be moved to a new cluster together.
        let is_askew = findings.iter().any(|finding| finding.code == EXTENT_CLUSTER);
        let mut wrong = if is_askew { askew(ward, &map) } else { BTreeSet::new() };
        let within = ward.scene.geometry().cluster_blocks() - 1;
        wrong.extend(data.iter().map(|(first, _)| first & !within));
        copy_logical(ward, &map, &wrong, &mut changes)?;
    } else {
        for (first, cluster) in data {
            copy_cluster(ward, &patient, &map, (first, cluster), &mut changes)?;
        }
    }
    take_system(ward, &map, &mut changes);
    map.replace(&changes);
    if map.is_unreadable {
        return Ok(());
    }
    // An inode that keeps all its clusters does not change.
    if patient.has_map() && !(is_kept && changes.is_empty() && !map.is_damaged) {
        if !map::write(ward, &mut patient, &mut map, &mut draft) {
            return Ok(());
        }
        let clusters = map.clusters(&ward.scene);
        set_blocks(ward, &mut patient, clusters, true);
    }
    patient.store(&mut draft);
    let is_lost = |block: &Option<Block>| block.is_none();
    let sentence = |finding: &&Finding| match finding.code {
        code if code == BLOCK_METADATA => "Metadata blocks are removed from the inode.",
        code if code == EXTENT_CLUSTER => "The blocks are copied to a separate cluster.",
        _ if changes.is_empty() && moved.is_empty() => "The inode keeps the blocks.",
        _ if changes.values().any(is_lost) => "Blocks of other inodes are removed from the inode.",
        _ => "The inode gets copies of the blocks.",
    };
    let actions = findings.iter().map(|finding| Action::about(finding, sentence(finding)));
    ward.end(draft, actions.collect())?;
    Ok(())
}

/// Removes clusters of the file system itself from a file.
fn take_system(ward: &Ward<'_>, map: &Map, changes: &mut BTreeMap<u32, Option<Block>>) {
    let geometry = ward.scene.geometry();
    let cluster_blocks = u64::from(geometry.cluster_blocks());
    for run in &map.runs {
        let start = geometry.cluster_start(run.start);
        let len = run.start.0 - start.0 + u64::from(run.len);
        if ward.scene.is_system(start, len.next_multiple_of(cluster_blocks)) {
            let is_own = |at: &u32| {
                let cluster = geometry.cluster_start(run.start.plus((*at).into()));
                ward.scene.is_system(cluster, cluster_blocks)
            };
            changes.extend((0..run.len).filter(is_own).map(|at| (run.first + at, None)));
        }
    }
}

/// Gives an inode its own copy of an attribute block.
fn copy_attributes(ward: &mut Ward<'_>, patient: &mut Patient, draft: &mut Draft) {
    let place = Block(patient.inode.file_acl());
    let bytes = ward.scene.block(place);
    let bytes = bytes.filter(|bytes| xattr::verify_block_structure(bytes).is_ok());
    let copy = bytes.and_then(|bytes| Some((bytes, ward.take_cluster()?)));
    let Some((mut bytes, place)) = copy else { return patient.inode.set_file_acl(0) };
    bytes[BLOCK_REFCOUNT_RANGE].copy_from_slice(&1_u32.to_le_bytes());
    let params = ward.scene.params();
    if params.checksums {
        xattr::seal_block(&mut bytes, place, params.sb.checksum_seed);
    }
    draft.write(ward.byte_of(place), bytes);
    patient.inode.set_file_acl(place.0);
}

/// Copies the blocks of a file in a cluster to a new one. A directory block that belongs to another directory is
/// dropped.
fn copy_cluster(
    ward: &mut Ward<'_>,
    patient: &Patient,
    map: &Map,
    (first, cluster): (u32, u64),
    changes: &mut BTreeMap<u32, Option<Block>>,
) -> Result<()> {
    let geometry = *ward.scene.geometry();
    let start = ward.scene.block_of(cluster);
    let end = start.plus(geometry.cluster_blocks().into());
    let in_cluster =
        |number: &u32| map.place(*number).is_some_and(|place| (start..end).contains(&place));
    let last = first.saturating_add(geometry.cluster_blocks());
    let blocks: Vec<u32> = (first..last).take_while(in_cluster).collect();
    let is_foreign = patient.inode.is_dir()
        && ward
            .scene
            .block(start)
            .is_some_and(|bytes| is_sealed_for(&bytes, patient) == Some(false));
    let copy = if is_foreign { None } else { ward.take_cluster() };
    for number in blocks {
        let Some(place) = map.place(number) else { continue };
        let to = copy.map(|copy| copy.plus(place.0 - start.0));
        let to = match to {
            Some(to) => copy_block(ward, place, to)?.then_some(to),
            None => None,
        };
        changes.insert(number, to);
    }
    Ok(())
}

/// Copies a block. Returns whether it could be read and the target is accessible.
fn copy_block(ward: &Ward<'_>, from: Block, to: Block) -> Result<bool> {
    let Some(bytes) = ward.scene.block(from) else { return Ok(false) };
    if ward.scene.block(to).is_none() {
        return Ok(false);
    }
    ward.staging().write_at(ward.byte_of(to), &bytes).map_err(vfs::Error::Device)?;
    Ok(true)
}

/// Returns the first blocks of the file's clusters that are not aligned to a device cluster or are split over several.
fn askew(ward: &Ward<'_>, map: &Map) -> BTreeSet<u32> {
    let geometry = ward.scene.geometry();
    let within = geometry.cluster_blocks() - 1;
    let mut wrong = BTreeSet::new();
    let mut last: Option<(u32, Block)> = None;
    for run in &map.runs {
        let logical = run.first & !within;
        let is_askew = run.start.0 & u64::from(within) != u64::from(run.first & within);
        let physical = geometry.cluster_start(run.start);
        let is_split = last.is_some_and(|last| last.0 == logical && last.1 != physical);
        if is_askew {
            wrong.extend((logical..=(run.end() - 1) as u32).step_by(within as usize + 1));
        } else if is_split {
            wrong.insert(logical);
        }
        let end = run.start.plus(u64::from(run.len) - 1);
        last = Some((((run.end() - 1) as u32) & !within, geometry.cluster_start(end)));
    }
    wrong
}

/// Copies clusters of a file, each to a new one.
fn copy_logical(
    ward: &mut Ward<'_>,
    map: &Map,
    wrong: &BTreeSet<u32>,
    changes: &mut BTreeMap<u32, Option<Block>>,
) -> Result<()> {
    let within = ward.scene.geometry().cluster_blocks() - 1;
    for logical in wrong {
        let cluster = ward.take_cluster();
        for number in *logical..=logical | within {
            let Some(place) = map.place(number) else { continue };
            let to = match cluster.map(|cluster| cluster.plus((number & within).into())) {
                Some(to) if copy_block(ward, place, to)? => Some(to),
                _ => None,
            };
            changes.insert(number, to);
        }
    }
    Ok(())
}
