//! Finds inodes whose record was overwritten with the record of another inode.
//!
//! Such an inode claims all blocks of the other one. It must lose all of them: if each inode lost some blocks and the
//! copies did not fit into the image, both files would be incomplete.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use vfs::check::BitSet;

use super::inode_draft::InodeDraft;
use super::map::Map;
use super::repair_context::RepairContext;
use crate::format::address::Block;
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::flags;
use crate::format::{dirent, extent};

/// Names of an inode.
#[derive(Clone, Copy, Default)]
struct NameCounts {
    count: u32,
    /// One bit for each type code in directory entries.
    types: u32,
}

/// Marks clusters below shared map nodes as shared. The check walks each node only once, so a decision about the nodes
/// alone would be made without the blocks below them, and about these later.
pub(super) fn share_beneath(context: &RepairContext<'_>, claimants: &[u32]) {
    let checked = &context.checked;
    let Some(shared) = checked.shared() else { return };
    if checked.params().sb.features.ro_compat(RoCompat::SHARED_BLOCKS) {
        return;
    }
    let cluster_blocks = u64::from(checked.geometry().cluster_blocks());
    let met = BitSet::new(shared.limit());
    let meet_again = |cluster| {
        if !checked.is_system(checked.block_of(cluster), cluster_blocks) {
            shared.insert(cluster);
        }
    };
    for ino in claimants {
        let Some(subject) = context.subject(*ino) else { continue };
        let map = Map::read(checked, &subject);
        for node in &map.nodes {
            met.insert_range(checked.clusters(*node, 1), meet_again);
        }
        let mut last = None;
        for run in &map.runs {
            let mut clusters = checked.clusters(run.start, run.len.into());
            // Neighbouring runs of a file may be in one cluster.
            clusters.start += u64::from(cluster_blocks > 1 && last == Some(clusters.start));
            last = clusters.end.checked_sub(1);
            met.insert_range(clusters, meet_again);
        }
    }
}

/// Returns the inodes whose record is probably a copy: names or the first directory block show another inode, or
/// another inode with the same map has more evidence for it.
pub(super) fn find(context: &RepairContext<'_>, claimants: &[u32]) -> HashSet<u32> {
    let names = names(context, claimants);
    let mut copies = HashSet::new();
    let mut by_map: HashMap<u64, Vec<(u32, i64)>> = HashMap::new();
    for ino in claimants {
        let Some(subject) = context.subject(*ino).filter(|_| !context.checked.is_hidden(*ino))
        else {
            continue;
        };
        let map = Map::read(&context.checked, &subject);
        let names = names.get(ino).copied().unwrap_or_default();
        let first = FirstBlock::of(context, &subject, &map, claimants);
        let is_copy = is_of_other_type(context, &subject, names) || first == FirstBlock::OfOther;
        if is_copy {
            copies.insert(*ino);
        }
        if map.runs.is_empty() {
            continue;
        }
        let mut hasher = DefaultHasher::new();
        for run in &map.runs {
            (run.first, run.start.0, run.len).hash(&mut hasher);
        }
        let nodes = map.nodes.iter().map(|node| node_score(context, &subject, *node));
        let links = u32::from(subject.inode.links_count());
        let evidence = match first {
            FirstBlock::Own => nodes.max().unwrap_or(0) * 2 + 1,
            FirstBlock::NotDirectory => 0,
            FirstBlock::OfOther => -1,
            FirstBlock::OfFile => nodes.max().unwrap_or(0) * 2 + i64::from(links == names.count),
        };
        let evidence = if is_copy { -1 } else { evidence };
        by_map.entry(hasher.finish()).or_default().push((*ino, evidence));
    }
    for twins in by_map.values() {
        // Without evidence, the last one keeps the blocks, as with e2fsck.
        let owner = twins.iter().map(|(ino, evidence)| (*evidence, *ino)).max();
        let others = twins
            .iter()
            .map(|(ino, _)| *ino)
            .filter(|ino| Some(*ino) != owner.map(|owner| owner.1));
        copies.extend(others);
    }
    copies
}

/// Returns the score of the evidence in a map node that it belongs to this inode.
pub(super) fn node_score(context: &RepairContext<'_>, subject: &InodeDraft, node: Block) -> i64 {
    let Some(bytes) = context.checked.block(node) else { return 0 };
    match subject.block_seed() {
        _ if !subject.has(flags::EXTENTS) => 20,
        Some(seed) if extent::verify(&bytes, Some(seed)).is_ok() => 100,
        Some(_) => 0,
        None => 50,
    }
}

/// Returns the names of the inodes.
fn names(context: &RepairContext<'_>, claimants: &[u32]) -> HashMap<u32, NameCounts> {
    let mut names: HashMap<u32, NameCounts> =
        claimants.iter().map(|ino| (*ino, NameCounts::default())).collect();
    context.checked.for_each_entry(&mut |_, entry| {
        if let Some(names) = names.get_mut(&entry.inode) {
            names.count += 1;
            names.types |= 1_u32.checked_shl(entry.file_type.into()).unwrap_or(0);
        }
    });
    names
}

/// Returns whether all names have types, and none the type of the inode.
fn is_of_other_type(context: &RepairContext<'_>, subject: &InodeDraft, names: NameCounts) -> bool {
    let has_types = context.checked.params().sb.features.incompat(Incompat::FILETYPE);
    let Some(known) = context.checked.known(subject.ino) else { return false };
    let is_typed = names.types != 0 && names.types & 1 == 0;
    has_types && is_typed && names.types & 1 << known.type_code == 0
}

/// Contents of an inode's first block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstBlock {
    /// The first block of this directory.
    Own,
    /// The first block of another directory among the claimants.
    OfOther,
    /// Other contents, although the inode is a directory.
    NotDirectory,
    /// Any contents: the inode is not a directory.
    OfFile,
}

impl FirstBlock {
    fn of(context: &RepairContext<'_>, subject: &InodeDraft, map: &Map, claimants: &[u32]) -> Self {
        if !subject.inode.is_dir() {
            return Self::OfFile;
        }
        let bytes = map.place(0).and_then(|place| context.checked.block(place));
        let dot = bytes.as_deref().and_then(|bytes| dirent::record_at(bytes, 0));
        match dot.filter(|dot| dot.name == b".").map(|dot| dot.inode) {
            Some(ino) if ino == subject.ino => Self::Own,
            Some(ino) if claimants.binary_search(&ino).is_ok() => Self::OfOther,
            _ => Self::NotDirectory,
        }
    }
}
