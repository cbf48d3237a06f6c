//! Blocks that are in use twice: the owner that the reverse map supports keeps them. A file that loses blocks gets a
//! copy of what they hold, as long as there is room; anything else loses them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use ::repair::Action;
use check::Finding;
use vfs::{FileType, Ino, Result};

use super::Job;
use super::map::{self, Room, blocks_of, install};
use crate::btree::records::rmap_offset;
use crate::check::view::{self, Claims, Mapping, View};
use crate::format::address::{Block, FileBlock};
use crate::format::extent::Extent;
use crate::format::inode::{Fork, seal_slot};

/// Most blocks of files that are copied in one round.
const COPIES_MAX: u64 = 1 << 16;

/// What an inode loses.
#[derive(Default)]
struct Loss {
    data: Vec<Range<u64>>,
    attr: Vec<Range<u64>>,
    /// Blocks of the trees of its maps.
    tree: HashSet<u64>,
}

/// Leaves blocks that are in use twice to one of those who claim them.
pub(super) fn mend(job: &Job, findings: &[&Finding]) -> Result<()> {
    let mut blocks: Vec<u64> = findings.iter().filter_map(|f| f.place.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let Ok(claims) = view::claims(job.staging.clone(), HashSet::new(), blocks.clone()) else {
        return Ok(());
    };
    let mut losses: BTreeMap<u64, Loss> = BTreeMap::new();
    for block in blocks {
        lose(&claims, block, &mut losses);
    }
    let steps = view::view(job.staging.clone(), |view| {
        let mut room = Room::new(*view.geometry(), Some(&claims));
        let mut left = COPIES_MAX;
        let give_up = |(ino, loss): (&u64, &Loss)| {
            give_up(view, &mut room, Ino(*ino), loss, &mut left).map(|writes| (*ino, writes))
        };
        losses.iter().filter_map(give_up).collect::<Vec<_>>()
    });
    for (ino, writes) in steps.unwrap_or_default() {
        let writes: Vec<(u64, &[u8])> =
            writes.iter().map(|(byte, data)| (*byte, data.as_slice())).collect();
        let what = format!("Inode {ino} leaves blocks that another owner has to that one.");
        let of_inode = |f: &&&Finding| f.place.inode == Some(ino);
        let finding = findings.iter().find(of_inode).or(findings.first());
        let mut actions: Vec<Action> =
            finding.map(|finding| Action::about(finding, what)).into_iter().collect();
        actions.iter_mut().for_each(|action| action.place.inode = Some(ino));
        job.write_step(&writes, actions);
    }
    Ok(())
}

/// Decides who loses a block.
fn lose(claims: &Claims, block: u64, losses: &mut BTreeMap<u64, Loss>) {
    let who: Vec<&Mapping> = claims.claims.iter().filter(|claim| claim.has(block)).collect();
    let is_supported = |claim: &Mapping| {
        let mapped = claims.mapped.iter().filter(|mapped| mapped.has(block));
        mapped.into_iter().any(|mapped| mapped.agrees(claim, block))
    };
    let has_others = who.iter().any(|claim| !claim.is_of_inode());
    let has_support = who.iter().any(|claim| claim.is_of_inode() && is_supported(claim));
    let mut is_kept = has_others;
    for claim in who.iter().filter(|claim| claim.is_of_inode()) {
        let keeps = if has_support { is_supported(claim) && !has_others } else { !is_kept };
        is_kept |= keeps;
        if keeps {
            continue;
        }
        // Neighbours that the same two claim are told of once.
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

/// What is to be written so that an inode does without what it loses.
fn give_up(
    view: &View<'_>,
    room: &mut Room<'_>,
    ino: Ino,
    loss: &Loss,
    left: &mut u64,
) -> Option<Vec<(u64, Vec<u8>)>> {
    let geometry = *view.geometry();
    let mut inode = view.inode(ino)?;
    let is_file = inode.file_type() == Some(FileType::Regular);
    let (mut writes, mut total) = (Vec::new(), 0);
    for (fork, lost) in [(Fork::Data, &loss.data), (Fork::Attr, &loss.attr)] {
        let map = map::read(view, ino, &inode, fork);
        if lost.is_empty() && loss.tree.is_empty() {
            total += map.blocks();
            continue;
        }
        let mut kept = Vec::new();
        for extent in &map.extents {
            for (part, is_lost) in cut(extent, lost) {
                if !is_lost {
                    kept.push(part);
                } else if is_file && fork == Fork::Data && !part.unwritten && part.len <= *left {
                    *left -= part.len;
                    copy(view, room, &part, &mut kept, &mut writes);
                }
            }
        }
        let is_lost = |block: Block| loss.tree.contains(&block.0);
        let mut old = map.tree.clone();
        old.retain(|block| !is_lost(geometry.device_block(*block)));
        if !matches!(
            inode.fork_format(fork),
            crate::format::inode::Format::Extents | crate::format::inode::Format::Btree
        ) {
            continue;
        }
        let blocks = install(&geometry, (ino, &mut inode, fork), &kept, &old, room)?;
        total += blocks_of(&kept) + blocks.len() as u64;
        let byte = |(block, data): (Block, Vec<u8>)| (geometry.byte_of(block), data);
        writes.extend(blocks.into_iter().map(byte));
        if !inode.set_extents(fork, kept.len() as u64) {
            return None;
        }
    }
    inode.set_nblocks(total);
    seal_slot(inode.as_mut_bytes());
    writes.push((view.slot_byte(ino)?, inode.as_bytes().to_vec()));
    Some(writes)
}

/// An extent in pieces, each with whether it is lost.
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

/// Copies the blocks of an extent, as far as they can be read and there is room.
fn copy(
    view: &View<'_>,
    room: &mut Room<'_>,
    part: &Extent,
    kept: &mut Vec<Extent>,
    writes: &mut Vec<(u64, Vec<u8>)>,
) {
    let geometry = view.geometry();
    for nth in 0..part.len {
        let mut data = vec![0; geometry.block_size()];
        if !view.read(geometry.device_block(part.start.plus(nth)), &mut data) {
            continue;
        }
        let Some(start) = room.take() else { return };
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
}
