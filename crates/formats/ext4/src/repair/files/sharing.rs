//! Resolves blocks with several owners: one inode keeps them, the others get copies.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use disk::BlockDevice;
use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::bad_blocks;
use super::copies::{self, node_score};
use super::draft::Draft;
use super::inode_draft::{BAD_BLOCKS_INO, InodeDraft};
use super::inodes::set_blocks;
use super::map::{self, Map};
use super::repair_context::{RepairContext, by_inode};
use crate::check::codes::{BLOCK_METADATA, EXTENT_CLUSTER};
use crate::format::address::Block;
use crate::format::xattr::{self, BLOCK_REFCOUNT_RANGE};
use crate::format::{dirent, htree, indirect};
use crate::repair::{RepairJob, system_files};

/// Inode of the blocks reserved for descriptors.
const RESIZE_INO: u32 = 7;

/// Score deducted from an inode whose record is probably a copy of another one. It exceeds all scores of a cluster, so
/// that the inode loses as a whole.
const COPY_SCORE: i64 = 1000;
/// Number of clusters that copies for such an inode leave free for the repair of directories.
const RESERVE_CLUSTERS: u64 = 16;
/// Number of other inodes with which an inode must share clusters to be considered the damaged one.
const RIVALS_SUSPECT: usize = 3;
/// Score deducted from such an inode. It exceeds the score for contiguity with other blocks.
const SUSPECT_SCORE: i64 = 20;

/// Use of a cluster by an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// Data, from this file block on.
    Data(u32),
    Node(Block),
    Attributes,
    /// Passive translator of the Hurd.
    Translator,
}

/// Owner of a cluster, and the score of its claim.
#[derive(Clone, Copy)]
struct ClusterOwner {
    score: i64,
    ino: u32,
    what: Use,
}

/// Resolves blocks with several claims.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut context) = RepairContext::surveyed(job)? else { return Ok(()) };
    context.claim_all();
    let concerned = by_inode(findings);
    let claimants = claimants(&concerned);
    copies::share_beneath(&context, &claimants);
    let suspects = suspects(&context, &claimants);
    let copies = copies::find(&context, &claimants);
    let mut owners: HashMap<u64, ClusterOwner> = HashMap::new();
    let mut hidden: Vec<&Finding> = Vec::new();
    if let Some(cluster) = resize_cluster(&context) {
        let owner = ClusterOwner { score: i64::MAX, ino: RESIZE_INO, what: Use::Attributes };
        owners.insert(cluster, owner);
    }
    for ino in &claimants {
        let Some(subject) = context.subject(*ino) else { continue };
        // An inode with a damaged map shares clusters with many others, which are unlikely to be damaged too.
        let less = if copies.contains(ino) { COPY_SCORE } else { 0 }
            + if suspects.contains(ino) { SUSPECT_SCORE } else { 0 };
        for (cluster, what, score) in claims(&context, &subject) {
            let claim = ClusterOwner { score: score - less, ino: *ino, what };
            let owner = owners.entry(cluster).or_insert(claim);
            if claim.score > owner.score {
                *owner = claim;
            }
        }
    }
    for (ino, findings) in concerned {
        if ino == BAD_BLOCKS_INO {
            bad_blocks::part(&mut context, &findings)?;
        } else if context.checked.is_hidden(ino) && ino != RESIZE_INO {
            hidden.extend(findings.iter().filter(|finding| finding.code == BLOCK_METADATA));
        } else if let Some(subject) = context.subject(ino) {
            part(&mut context, subject, &owners, copies.contains(&ino), &findings)?;
        }
    }
    // A system file that refers to other structures of the file system is recreated.
    drop(context);
    system_files::repair_special(job, &hidden)
}

/// Returns the inodes that may claim the disputed clusters, in ascending order: those with findings, and the bad block
/// list, whose inode is never in use.
fn claimants<T>(concerned: &[(u32, T)]) -> Vec<u32> {
    let others = concerned.iter().map(|(ino, _)| *ino).filter(|ino| *ino != BAD_BLOCKS_INO);
    std::iter::once(BAD_BLOCKS_INO).chain(others).collect()
}

/// Returns the inodes that share clusters with at least `RIVALS_SUSPECT` others. The number of stored claims per
/// cluster is limited to what this test needs.
fn suspects(context: &RepairContext<'_>, inos: &[u32]) -> HashSet<u32> {
    let mut suspects = HashSet::new();
    let mut claimants: HashMap<u64, Vec<u32>> = HashMap::new();
    for ino in inos {
        let Some(subject) = context.subject(*ino) else { continue };
        for (cluster, ..) in claims(context, &subject) {
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
fn resize_cluster(context: &RepairContext<'_>) -> Option<u64> {
    let subject = context.subject(RESIZE_INO)?;
    let double = indirect::pointer(subject.inode.i_block(), 13)?;
    let can_be = context.checked.can_be_of_file(double, 1);
    can_be.then(|| context.checked.clusters(double, 1).start)
}

/// Returns the clusters that an inode claims and others too, with the score of each claim.
fn claims(context: &RepairContext<'_>, subject: &InodeDraft) -> Vec<(u64, Use, i64)> {
    let checked = &context.checked;
    let Some(shared) = checked.shared() else { return Vec::new() };
    let is_own = checked.is_hidden(subject.ino) || subject.ino == BAD_BLOCKS_INO;
    let base = if is_own { 10_000 } else { 0 };
    let map = Map::read(checked, subject);
    let mut claims = Vec::new();
    let place = Block(subject.inode.file_acl());
    if place.0 != 0 && checked.can_be_of_file(place, 1) {
        let cluster = checked.clusters(place, 1).start;
        if shared.contains(cluster) {
            let seed = checked.params().checksums.then_some(checked.params().sb.checksum_seed);
            let is_sound = checked
                .block(place)
                .is_some_and(|bytes| xattr::verify_block(&bytes, place, seed).is_ok());
            claims.push((cluster, Use::Attributes, base + if is_sound { 60 } else { 0 }));
        }
    }
    // In an image that is not of the Hurd, the field counts changes, so this claim is the weakest.
    if let Some(cluster) = subject.translator(checked).map(|block| checked.clusters(block, 1).start)
        && shared.contains(cluster)
    {
        claims.push((cluster, Use::Translator, base));
    }
    for node in &map.nodes {
        let cluster = checked.clusters(*node, 1).start;
        if shared.contains(cluster) {
            claims.push((cluster, Use::Node(*node), base + node_score(context, subject, *node)));
        }
    }
    let geometry = checked.geometry();
    let blocks = subject.inode.size() >> geometry.block_size_log;
    for run in &map.runs {
        let clusters = checked.clusters(run.start, run.len.into());
        let count = shared.count(clusters.clone());
        if count == 0 {
            continue;
        }
        // A run that continues in blocks without other claims probably belongs to the file.
        let goes_on = if count < clusters.end - clusters.start { 10 } else { 0 };
        let mut cluster = clusters.start;
        while cluster < clusters.end {
            if shared.contains(cluster) {
                let block = checked.block_of(cluster).max(run.start);
                let first = run.first + (block.0 - run.start.0) as u32;
                let inside = if u64::from(first) < blocks { 5 } else { 0 };
                let score =
                    base + 1 + goes_on + inside + data_score(context, subject, block, first);
                claims.push((cluster, Use::Data(first), score));
            }
            cluster += 1;
        }
    }
    claims
}

/// Returns the score of the evidence in a directory block that it belongs to this directory.
fn data_score(context: &RepairContext<'_>, subject: &InodeDraft, block: Block, first: u32) -> i64 {
    if !subject.inode.is_dir() {
        return 0;
    }
    let Some(bytes) = context.checked.block(block) else { return 0 };
    if first == 0 && dirent::record_at(&bytes, 0).is_some_and(|dot| dot.inode == subject.ino) {
        return 90;
    }
    if is_sealed_for(&bytes, subject) == Some(true) { 100 } else { 0 }
}

/// Returns whether a directory block has a valid checksum of this directory.
fn is_sealed_for(bytes: &[u8], subject: &InodeDraft) -> Option<bool> {
    let seed = subject.block_seed()?;
    let is_leaf = dirent::verify(bytes, u32::MAX, Some(seed)).is_ok();
    let is_index = |place| htree::verify(bytes, place, Some(seed)).is_ok();
    Some(is_leaf || is_index(htree::IndexKind::Root) || is_index(htree::IndexKind::Node))
}

/// Clusters of an inode that others keep.
struct Surrendered {
    /// Blocks of the map that never belonged to the inode, or that cannot be copied.
    lost: HashSet<Block>,
    /// True if all blocks of the map belong to the inode.
    keeps_map: bool,
    /// Clusters of contents, with the first block in the file.
    data: Vec<(u32, u64)>,
    /// True if there is room for copies.
    has_room: bool,
}

/// Finds the clusters that others keep. Those of attributes and of the translator are copied at once.
fn surrender(
    context: &mut RepairContext<'_>,
    subject: &mut InodeDraft,
    draft: &mut Draft,
    owners: &HashMap<u64, ClusterOwner>,
    is_copy: bool,
) -> Surrendered {
    let ino = subject.ino;
    let mut claims = claims(context, subject);
    claims.retain(|(cluster, what, _)| {
        owners.get(cluster).is_some_and(|owner| owner.ino != ino || owner.what != *what)
    });
    // Contents that were never this inode's must not take the last free space.
    let has_room = !is_copy || context.has_free(claims.len() as u64 + RESERVE_CLUSTERS);
    let mut found =
        Surrendered { lost: HashSet::new(), keeps_map: true, data: Vec::new(), has_room };
    for (cluster, what, _) in claims {
        match what {
            Use::Attributes => copy_attributes(context, subject, draft),
            Use::Translator => copy_translator(context, subject, draft),
            Use::Node(node) => {
                found.keeps_map = false;
                let is_foreign =
                    subject.block_seed().is_some() && node_score(context, subject, node) == 0;
                if is_foreign || !has_room {
                    found.lost.insert(node);
                }
            }
            Use::Data(first) => found.data.push((first, cluster)),
        }
    }
    found
}

/// Gives an inode copies of clusters that others keep, and removes clusters of the file system itself.
fn part(
    context: &mut RepairContext<'_>,
    mut subject: InodeDraft,
    owners: &HashMap<u64, ClusterOwner>,
    is_copy: bool,
    findings: &[&Finding],
) -> Result<()> {
    if context.checked.is_hidden(subject.ino) {
        return Ok(());
    }
    let mut draft = Draft::default();
    let is_system = |block: Block| context.checked.is_system(block, 1);
    if subject.translator(&context.checked).is_some_and(is_system) {
        subject.inode.set_translator(0);
    }
    let Surrendered { lost, keeps_map, data, has_room } =
        surrender(context, &mut subject, &mut draft, owners, is_copy);
    let mut map = Map::read_without(&context.checked, &subject, lost);
    let mut changes = copy_data(context, &subject, &map, (&data, has_room), findings)?;
    map::take_system(context, &map, &mut changes);
    map.replace(&changes);
    if map.is_unreadable {
        return Ok(());
    }
    let is_kept = keeps_map && changes.is_empty();
    // An inode that keeps all its clusters does not change.
    if subject.has_map() && (!is_kept || map.is_damaged) {
        if !map::write(context, &mut subject, &mut map, &mut draft) {
            return Ok(());
        }
        let clusters = map.clusters(&context.checked);
        set_blocks(context, &mut subject, clusters, true);
    }
    subject.store(&mut draft);
    let is_lossy = !has_room || changes.values().any(Option::is_none);
    let action = |finding: &&Finding| Action::about(finding, parted(finding, is_kept, is_lossy));
    context.end(draft, findings.iter().map(action).collect()).map(drop)
}

/// Returns the description of the result of [`part`] for a finding.
fn parted(finding: &Finding, is_kept: bool, is_lossy: bool) -> &'static str {
    match finding.code {
        code if code == BLOCK_METADATA => "Metadata blocks are removed from the inode.",
        code if code == EXTENT_CLUSTER => "The blocks are copied to a separate cluster.",
        _ if is_kept => "The inode keeps the blocks.",
        _ if is_lossy => "Blocks of other inodes are removed from the inode.",
        _ => "The inode gets copies of the blocks.",
    }
}

/// Copies data clusters of an inode that others keep. Returns the new blocks by file block; `None` for blocks that are
/// lost.
fn copy_data(
    context: &mut RepairContext<'_>,
    subject: &InodeDraft,
    map: &Map,
    (data, has_room): (&[(u32, u64)], bool),
    findings: &[&Finding],
) -> Result<BTreeMap<u32, Option<Block>>> {
    let mut changes = BTreeMap::new();
    if context.checked.geometry().cluster_blocks() > 1 {
        // Blocks of a file in one cluster must be moved to a new cluster together.
        let is_askew = findings.iter().any(|finding| finding.code == EXTENT_CLUSTER);
        let mut wrong = if is_askew { askew(context, map) } else { BTreeSet::new() };
        let within = context.checked.geometry().cluster_blocks() - 1;
        wrong.extend(data.iter().map(|(first, _)| first & !within));
        copy_logical(context, map, &wrong, has_room, &mut changes)?;
    } else if !has_room {
        changes.extend(data.iter().map(|(first, _)| (*first, None)));
    } else {
        for (first, cluster) in data {
            copy_cluster(context, subject, map, (*first, *cluster), &mut changes)?;
        }
    }
    Ok(changes)
}

/// Gives an inode its own copy of an attribute block.
fn copy_attributes(context: &mut RepairContext<'_>, subject: &mut InodeDraft, draft: &mut Draft) {
    let place = Block(subject.inode.file_acl());
    let bytes = context.checked.block(place);
    let bytes = bytes.filter(|bytes| xattr::verify_block_structure(bytes).is_ok());
    let copy = bytes.and_then(|bytes| Some((bytes, context.take_cluster()?)));
    let Some((mut bytes, place)) = copy else { return subject.inode.set_file_acl(0) };
    bytes[BLOCK_REFCOUNT_RANGE].copy_from_slice(&1_u32.to_le_bytes());
    let params = context.checked.params();
    if params.checksums {
        xattr::seal_block(&mut bytes, place, params.sb.checksum_seed);
    }
    draft.write(context.byte_of(place), bytes);
    subject.inode.set_file_acl(place.0);
}

/// Gives an inode its own copy of a translator, if the block contains one: a length in two bytes, and a path.
fn copy_translator(context: &mut RepairContext<'_>, subject: &mut InodeDraft, draft: &mut Draft) {
    let is_one = |bytes: &Vec<u8>| {
        let len = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        (1..=bytes.len() - 2).contains(&len) && bytes[2] == b'/'
    };
    let bytes = subject.translator(&context.checked).and_then(|place| context.checked.block(place));
    let copy = bytes.filter(is_one).and_then(|bytes| Some((bytes, context.take_cluster()?)));
    let copy = copy.and_then(|(bytes, place)| Some((bytes, place, u32::try_from(place.0).ok()?)));
    let Some((bytes, place, number)) = copy else { return subject.inode.set_translator(0) };
    draft.write(context.byte_of(place), bytes);
    subject.inode.set_translator(number);
}

/// Copies the blocks of a file in a cluster to a new one. A directory block that belongs to another directory is
/// dropped.
fn copy_cluster(
    context: &mut RepairContext<'_>,
    subject: &InodeDraft,
    map: &Map,
    (first, cluster): (u32, u64),
    changes: &mut BTreeMap<u32, Option<Block>>,
) -> Result<()> {
    let geometry = *context.checked.geometry();
    let start = context.checked.block_of(cluster);
    let end = start.plus(geometry.cluster_blocks().into());
    let in_cluster =
        |number: &u32| map.place(*number).is_some_and(|place| (start..end).contains(&place));
    let last = first.saturating_add(geometry.cluster_blocks());
    let blocks: Vec<u32> = (first..last).take_while(in_cluster).collect();
    let is_foreign = subject.inode.is_dir()
        && context
            .checked
            .block(start)
            .is_some_and(|bytes| is_sealed_for(&bytes, subject) == Some(false));
    let copy = if is_foreign || blocks.is_empty() { None } else { context.take_cluster() };
    for number in blocks {
        let Some(place) = map.place(number) else { continue };
        let to = copy.map(|copy| copy.plus(place.0 - start.0));
        let to = match to {
            Some(to) => copy_block(context, place, to)?.then_some(to),
            None => None,
        };
        changes.insert(number, to);
    }
    Ok(())
}

/// Copies a block. Returns whether it could be read and the target is accessible.
fn copy_block(context: &RepairContext<'_>, from: Block, to: Block) -> Result<bool> {
    let Some(bytes) = context.checked.block(from) else { return Ok(false) };
    if context.checked.block(to).is_none() {
        return Ok(false);
    }
    context.staging().write_at(context.byte_of(to), &bytes).map_err(vfs::Error::Device)?;
    Ok(true)
}

/// Returns the first blocks of the file's clusters that are not aligned to a device cluster or are split over several.
fn askew(context: &RepairContext<'_>, map: &Map) -> BTreeSet<u32> {
    let geometry = context.checked.geometry();
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

/// Copies clusters of a file, each to a new one, or removes them if they do not fit.
fn copy_logical(
    context: &mut RepairContext<'_>,
    map: &Map,
    wrong: &BTreeSet<u32>,
    has_room: bool,
    changes: &mut BTreeMap<u32, Option<Block>>,
) -> Result<()> {
    let within = context.checked.geometry().cluster_blocks() - 1;
    for logical in wrong {
        let numbers = *logical..=logical | within;
        if numbers.clone().all(|number| map.place(number).is_none()) {
            continue;
        }
        let cluster = if has_room { context.take_cluster() } else { None };
        for number in numbers {
            let Some(place) = map.place(number) else { continue };
            let to = match cluster.map(|cluster| cluster.plus((number & within).into())) {
                Some(to) if copy_block(context, place, to)? => Some(to),
                _ => None,
            };
            changes.insert(number, to);
        }
    }
    Ok(())
}
