//! Resolves blocks with several owners. The owner in the reverse map keeps a block; otherwise the owner of the metadata
//! in it; otherwise an owner without damage. The others get the blocks that the reverse map has for them instead.
//! Otherwise a file gets a copy of the contents, if there is room.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{FileType, Ino, Result};

use super::RepairJob;
use super::forms::empty_tree;
use super::group::GroupDevice;
use super::map::{self, Map, Room, blocks_of, install};
use super::old::Old;
use super::rights::{Sign, Suspects, sign};
use crate::btree::records::{rmap_offset, rmap_owner};
use crate::check::view::{self, Claims, Mapping, View};
use crate::format::address::{Block, FileBlock};
use crate::format::extent::Extent;
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode, seal_slot};

/// Maximum number of file blocks copied in one round.
const COPIES_MAX: u64 = 1 << 16;

/// Maximum number of blocks of losing owners that are examined.
const OWN_MAX: usize = 1 << 18;

/// The blocks that an inode loses.
#[derive(Default)]
struct Loss {
    data: Vec<Range<u64>>,
    attr: Vec<Range<u64>>,
    /// Blocks of its extent map trees.
    tree: HashSet<u64>,
}

/// Assigns blocks with several owners to one of them.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let mut blocks: Vec<u64> = findings.iter().filter_map(|f| f.place.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let Ok(claims) = view::claims(job.staging.clone(), HashSet::new(), blocks.clone()) else {
        return Ok(());
    };
    let geometry = job.survey()?.geometry;
    let mut losses: BTreeMap<u64, Loss> = BTreeMap::new();
    Judge::new(job, geometry, &claims).lose_all(&blocks, &mut losses);
    // A second pass, for the reverse-map records of losing owners and all their other shared claims: a check does not
    // report all of them.
    let losers: HashSet<u64> = losses.keys().copied().collect();
    let Ok(claims) = view::claims(job.staging.clone(), losers.clone(), Vec::new()) else {
        return Ok(());
    };
    let own = claims.claims.iter().filter(|claim| losers.contains(&claim.owner));
    let own = own.flat_map(|claim| claim.block.0..claim.block.0 + claim.len);
    let mut own: Vec<u64> = own.take(OWN_MAX).filter(|b| *b < geometry.blocks).collect();
    own.sort_unstable();
    own.dedup();
    let Ok(claims) = view::claims(job.staging.clone(), losers, own.clone()) else { return Ok(()) };
    own.retain(|block| blocks.binary_search(block).is_err());
    let twice = claimed_twice(&claims, &own);
    Judge::new(job, geometry, &claims).lose_all(&twice, &mut losses);
    let is_free_known = is_free_known(job)?;
    let steps = view::view(job.staging.clone(), |view| {
        let room = Room::new(*view.geometry(), Some(&claims));
        let (left, lacks_room) = (COPIES_MAX, false);
        let mut losers = Losers { view, claims: &claims, room, left, is_free_known, lacks_room };
        let give_up = |(ino, loss): (&u64, &Loss)| {
            losers.give_up(Ino(*ino), loss).map(|writes| (*ino, writes))
        };
        losses.iter().filter_map(give_up).collect::<Vec<_>>()
    });
    for (ino, writes) in steps.unwrap_or_default() {
        let writes: Vec<(u64, &[u8])> =
            writes.iter().map(|(byte, data)| (*byte, data.as_slice())).collect();
        let what = format!("Inode {ino} gives up blocks that belong to another owner.");
        let of_inode = |f: &&&Finding| f.place.inode == Some(ino);
        let finding = findings.iter().find(of_inode).or(findings.first());
        let mut actions: Vec<Action> =
            finding.map(|finding| Action::about(finding, what)).into_iter().collect();
        actions.iter_mut().for_each(|action| action.place.inode = Some(ino));
        job.write_step(&writes, actions);
    }
    Ok(())
}

/// Returns whether the free-space trees of all groups are valid.
fn is_free_known(job: &RepairJob) -> Result<bool> {
    let survey = job.survey()?;
    let geometry = &survey.geometry;
    let is_sound =
        |ag| Old::read(&survey, &GroupDevice::new(&job.staging, geometry, ag)).is_free_known();
    Ok(geometry.ags().all(is_sound))
}

/// The data to decide who keeps a block.
struct Judge<'j> {
    staging: &'j Staging,
    geometry: Geometry,
    claims: &'j Claims,
    suspects: Suspects,
    /// Owners of claims that are regular files.
    files: HashSet<u64>,
}

/// Returns those of some blocks, which must be sorted, that are claimed more than once.
fn claimed_twice(claims: &Claims, blocks: &[u64]) -> Vec<u64> {
    let mut counts = vec![0_u32; blocks.len()];
    for claim in &claims.claims {
        let from = blocks.partition_point(|block| *block < claim.block.0);
        let to = blocks.partition_point(|block| *block < claim.block.0 + claim.len);
        counts[from..to].iter_mut().for_each(|count| *count += 1);
    }
    blocks.iter().zip(counts).filter(|(_, count)| *count > 1).map(|(block, _)| *block).collect()
}

impl<'j> Judge<'j> {
    fn new(job: &'j RepairJob, geometry: Geometry, claims: &'j Claims) -> Self {
        let files = view::view(job.staging.clone(), |view| {
            let owners: HashSet<u64> = claims.claims.iter().map(|claim| claim.owner).collect();
            let is_file = |ino: &u64| {
                let inode = view.inode(Ino(*ino));
                inode.and_then(|inode| inode.file_type()) == Some(FileType::Regular)
            };
            owners.into_iter().filter(is_file).collect()
        });
        let (suspects, files) = (Suspects::of(&job.staging), files.unwrap_or_default());
        Self { staging: &job.staging, geometry, claims, suspects, files }
    }

    fn lose_all(&self, blocks: &[u64], losses: &mut BTreeMap<u64, Loss>) {
        blocks.iter().for_each(|block| self.lose(*block, losses));
    }

    /// Returns the claims that keep a block.
    fn keepers<'w>(&self, block: u64, who: &[&'w Mapping]) -> Vec<&'w Mapping> {
        let is_supported = |claim: &Mapping| {
            let mapped = self.claims.mapped.iter().filter(|mapped| mapped.has(block));
            mapped.into_iter().any(|mapped| mapped.agrees(claim, block))
        };
        let has_support = who.iter().any(|claim| claim.is_of_inode() && is_supported(claim));
        let features = self.geometry.features;
        let sign = sign(self.staging, &self.geometry, Block(block));
        // The trees of space are rebuilt elsewhere. So they yield to an inode with a right to the block, or if the
        // block is not one of theirs.
        let is_of_space = !has_support && (!features.crc() || sign == Some(Sign::Space));
        let yields = |claim: &Mapping| {
            claim.is_of_inode()
                || !is_of_space && [rmap_owner::AG, rmap_owner::REFC].contains(&claim.owner)
        };
        if !who.iter().all(|claim| yields(claim)) {
            return Vec::new();
        }
        let mut keepers: Vec<&Mapping> = (who.iter().copied())
            .filter(|claim| claim.is_of_inode() && (!has_support || is_supported(claim)))
            .collect();
        // A rebuilt reverse map contains all claims, but unwritten blocks cannot be shared. If a block is legitimately
        // shared, the reference counts are wrong, and those are rebuilt.
        let is_written = |claim: &&Mapping| claim.offset & rmap_offset::UNWRITTEN == 0;
        // Attributes and extent map trees cannot be shared either.
        let can_share = |claim: &&Mapping| {
            let is_data = claim.offset & (rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK) == 0;
            is_data && is_written(claim)
        };
        let has_sharing = features.ro_compat(RoCompat::REFLINK);
        let are_files = || keepers.iter().all(|claim| self.files.contains(&claim.owner));
        if has_support && has_sharing && keepers.iter().all(can_share) && are_files() {
            return keepers;
        }
        if keepers.iter().any(|claim| sign == Some(Sign::Inode(claim.owner))) {
            keepers.retain(|claim| sign == Some(Sign::Inode(claim.owner)));
        }
        let weight = |claim: &&Mapping| self.suspects.weight(claim.owner);
        let least = keepers.iter().map(weight).min();
        keepers.retain(|claim| Some(weight(claim)) == least);
        match keepers.iter().filter(|claim| is_written(claim)).count() {
            written if (1..keepers.len()).contains(&written) => keepers.retain(is_written),
            _ => keepers.truncate(1),
        }
        keepers
    }

    /// Decides which claims lose a block.
    fn lose(&self, block: u64, losses: &mut BTreeMap<u64, Loss>) {
        let who: Vec<&Mapping> =
            self.claims.claims.iter().filter(|claim| claim.has(block)).collect();
        let keepers = self.keepers(block, &who);
        for claim in who.iter().filter(|claim| claim.is_of_inode()) {
            if keepers.iter().any(|keeper| std::ptr::eq(*keeper, *claim)) {
                continue;
            }
            // Adjacent blocks with the same two claims are reported once.
            let others = who.iter().filter(|other| !std::ptr::eq(**other, *claim));
            let range = others.fold(block..block + 1, |range, other| {
                let start = claim.block.0.max(other.block.0).min(range.start);
                let end = (claim.block.0 + claim.len).min(other.block.0 + other.len).max(range.end);
                start..end
            });
            let loss = losses.entry(claim.owner).or_default();
            if claim.is_of_tree() {
                loss.tree.extend(range);
                continue;
            }
            let logical = claim.offset & rmap_offset::MASK;
            let start = logical + (range.start - claim.block.0);
            let range = start..start + (range.end - range.start);
            match claim.offset & rmap_offset::ATTR_FORK {
                0 => loss.data.push(range),
                _ => loss.attr.push(range),
            }
        }
    }
}

/// The inodes that lose blocks.
struct Losers<'l, 's> {
    view: &'l View<'s>,
    claims: &'l Claims,
    room: Room<'l>,
    /// Number of blocks that may still be copied.
    left: u64,
    is_free_known: bool,
    /// True if there was no room for a copy.
    lacks_room: bool,
}

/// Bytes to write at a byte offset of the device.
type Write = (u64, Vec<u8>);

impl Losers<'_, '_> {
    /// Returns the writes that remove the lost blocks from an inode.
    fn give_up(&mut self, ino: Ino, loss: &Loss) -> Option<Vec<Write>> {
        let geometry = *self.view.geometry();
        let mut inode = self.view.inode(ino)?;
        let (mut writes, mut total) = (Vec::new(), 0);
        if inode.format() == ForkFormat::MetaBtree && !loss.tree.is_empty() {
            // The tree of a realtime group is rebuilt from the extents of files.
            empty_tree(&mut inode);
        }
        for (fork, lost) in [(Fork::Data, &loss.data), (Fork::Attr, &loss.attr)] {
            let map = map::read(self.view, ino, &inode, fork);
            let is_mapped =
                matches!(inode.fork_format(fork), ForkFormat::Extents | ForkFormat::Btree);
            if !is_mapped || lost.is_empty() && loss.tree.is_empty() {
                total += map.blocks();
                continue;
            }
            let kept = self.kept(ino, &inode, (fork, lost), &map, &mut writes);
            // There will be room after the trees of space are rebuilt.
            if std::mem::take(&mut self.lacks_room) && !self.is_free_known {
                return None;
            }
            let mut old = map.tree.clone();
            old.retain(|block| !loss.tree.contains(&geometry.device_block(*block).0));
            let place = (ino, &mut inode, fork);
            let blocks = install(&geometry, place, &kept, &old, &mut self.room)?;
            total += blocks_of(&kept) + blocks.len() as u64;
            let byte = |(block, data): (Block, Vec<u8>)| (geometry.byte_of(block), data);
            writes.extend(blocks.into_iter().map(byte));
            if !inode.set_extents(fork, kept.len() as u64) {
                return None;
            }
        }
        inode.set_nblocks(total);
        seal_slot(inode.as_mut_bytes());
        writes.push((self.view.slot_byte(ino)?, inode.as_bytes().to_vec()));
        Some(writes)
    }

    /// Returns the extents that a fork keeps or gets.
    fn kept(
        &mut self,
        ino: Ino,
        inode: &Inode,
        (fork, lost): (Fork, &[Range<u64>]),
        map: &Map,
        writes: &mut Vec<Write>,
    ) -> Vec<Extent> {
        let is_file = fork == Fork::Data && inode.file_type() == Some(FileType::Regular);
        let mut kept = Vec::new();
        let mut missing = Vec::new();
        for extent in &map.extents {
            for (part, is_lost) in cut(extent, lost) {
                if is_lost { missing.push(part) } else { kept.push(part) }
            }
        }
        let own = self.of_reverse_map(ino, fork, &missing);
        let covered: Vec<Range<u64>> =
            own.iter().map(|extent| extent.offset.0..extent.end().0).collect();
        kept.extend(own);
        for (part, is_covered) in missing.iter().flat_map(|part| cut(part, &covered)) {
            if !is_covered && is_file && !part.unwritten && part.len <= self.left {
                self.left -= part.len;
                self.lacks_room |= !copy(self.view, &mut self.room, &part, &mut kept, writes);
            }
        }
        kept.sort_by_key(|extent| extent.offset);
        let mut joined: Vec<Extent> = Vec::new();
        for extent in kept {
            match (joined.last().and_then(|last| last.joined(&extent)), joined.last_mut()) {
                (Some(whole), Some(last)) => *last = whole,
                _ => joined.push(extent),
            }
        }
        joined
    }

    /// Returns the reverse-map extents of an inode in place of its lost ones, as far as no one else uses them.
    fn of_reverse_map(&self, ino: Ino, fork: Fork, missing: &[Extent]) -> Vec<Extent> {
        let geometry = self.view.geometry();
        let of_inode = self.claims.mapped.iter().filter(|mapping| mapping.owner == ino.0);
        let mapped: Vec<Mapping> = of_inode.copied().collect();
        let mut found = Vec::new();
        for extent in map::of_reverse_map(geometry, &mapped, fork) {
            for part in missing.iter().filter_map(|lost| extent.part(lost.offset, lost.end())) {
                let first = geometry.device_block(part.start).0;
                let range = first..first + part.len;
                if part.check(geometry).is_ok() && self.claims.taken.count(range.clone()) == 0 {
                    self.claims.taken.insert_range(range, |_| {});
                    found.push(part);
                }
            }
        }
        found
    }
}

/// Splits an extent into pieces, each with a flag for lost ones.
fn cut(extent: &Extent, lost: &[Range<u64>]) -> Vec<(Extent, bool)> {
    let end = extent.end().0;
    let mut cuts = vec![extent.offset.0, end];
    for range in lost {
        cuts.extend(
            [range.start, range.end].iter().filter(|at| extent.offset.0 < **at && **at < end),
        );
    }
    cuts.sort_unstable();
    cuts.dedup();
    let piece = |two: &[u64]| {
        let part = extent.part(FileBlock(two[0]), FileBlock(two[1]))?;
        Some((part, lost.iter().any(|range| range.contains(&two[0]))))
    };
    cuts.windows(2).filter_map(piece).collect()
}

/// Copies the readable blocks of an extent, as far as there is room. Returns whether there was.
fn copy(
    view: &View<'_>,
    room: &mut Room<'_>,
    part: &Extent,
    kept: &mut Vec<Extent>,
    writes: &mut Vec<Write>,
) -> bool {
    let geometry = view.geometry();
    for nth in 0..part.len {
        let mut data = vec![0; geometry.block_size()];
        if !view.read(geometry.device_block(part.start.plus(nth)), &mut data) {
            continue;
        }
        let Some(start) = room.take() else { return false };
        writes.push((geometry.byte_of(geometry.device_block(start)), data));
        let new = Extent { offset: part.offset.plus(nth), start, len: 1, unwritten: false };
        match kept.last().and_then(|last| last.joined(&new)) {
            Some(whole) => {
                if let Some(last) = kept.last_mut() {
                    *last = whole;
                }
            }
            None => kept.push(new),
        }
    }
    true
}
