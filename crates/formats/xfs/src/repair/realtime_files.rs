//! Repairs files of the realtime section, and realtime extents of files.

use std::collections::BTreeMap;

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Ino, Result, Timestamp};

use super::RepairJob;
use super::engine::Session;
use super::map::{self, Room, blocks_of, install};
use super::rights::Suspects;
use crate::check::view;
use crate::format::address::FileBlock;
use crate::format::extent::Extent;
use crate::format::features::RoCompat;
use crate::format::inode::{Fork, seal_slot};
use crate::format::realtime::Realtime;
use crate::resize::realtime::remake;

/// Makes missing and incomplete bitmaps, summaries and trees again. Their contents are rebuilt later.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let what = "The file is made again, for the extents of files.";
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    session.step(actions, |fs| remake(fs, Timestamp::default()));
    Ok(())
}

/// A run of realtime extents in use.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// First extent, and the one after the last.
    start: u64,
    end: u64,
    ino: Ino,
    extent: Extent,
}

/// Removes extents that another file has a better right to, and parts of realtime extents, from files.
pub(super) fn settle(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let suspects = Suspects::of(&job.staging);
    let changed = view::view(job.staging.clone(), |view| {
        let geometry = *view.geometry();
        let Some(realtime) = geometry.realtime else { return Vec::new() };
        let may_share = realtime.has_groups() && geometry.features.ro_compat(RoCompat::REFLINK);
        let maps: BTreeMap<Ino, Vec<Extent>> = view
            .each_used(|ino, inode| {
                let read = || (ino, map::read(view, ino, inode, Fork::Data).extents);
                inode.is_realtime().then(read)
            })
            .collect();
        let mut kept: BTreeMap<Ino, Vec<Extent>> = BTreeMap::new();
        for (ino, extents) in &maps {
            kept.insert(*ino, aligned(&realtime, extents));
        }
        let mut lost: BTreeMap<Ino, Vec<Use>> = BTreeMap::new();
        for of_one in losses(&realtime, &kept, &suspects, may_share) {
            lost.entry(of_one.ino).or_default().push(of_one);
        }
        for (ino, lost) in &mut lost {
            lost.sort_unstable_by_key(|of_one| of_one.start);
            if let Some(extents) = kept.get_mut(ino) {
                *extents = without(&realtime, extents, lost);
            }
        }
        kept.retain(|ino, extents| maps.get(ino) != Some(extents));
        let mut room = Room::new(geometry, None);
        let install = |(ino, extents): (Ino, Vec<Extent>)| {
            let mut inode = view.inode(ino)?;
            let (data, attr) = (
                map::read(view, ino, &inode, Fork::Data),
                map::read(view, ino, &inode, Fork::Attr),
            );
            let place = (ino, &mut inode, Fork::Data);
            let blocks = install(&geometry, place, &extents, &data.tree, &mut room)?;
            let total = blocks_of(&extents) + blocks.len() as u64 + attr.blocks();
            inode.set_nblocks(total);
            let is_set = inode.set_extents(Fork::Data, extents.len() as u64);
            seal_slot(inode.as_mut_bytes());
            let mut writes: Vec<(u64, Vec<u8>)> =
                blocks.into_iter().map(|(block, data)| (geometry.byte_of(block), data)).collect();
            writes.push((view.slot_byte(ino)?, inode.as_bytes().to_vec()));
            is_set.then_some((ino, writes))
        };
        kept.into_iter().filter_map(install).collect::<Vec<_>>()
    });
    for (ino, writes) in changed.unwrap_or_default() {
        let writes: Vec<(u64, &[u8])> =
            writes.iter().map(|(byte, data)| (*byte, data.as_slice())).collect();
        let what = format!("Inode {ino} gives up realtime extents that it cannot own.");
        let of_inode = |finding: &&&Finding| finding.place.inode == Some(ino.0);
        let finding = findings.iter().find(of_inode).or(findings.first());
        let mut actions: Vec<Action> =
            finding.map(|finding| Action::about(finding, what)).into_iter().collect();
        actions.iter_mut().for_each(|action| action.place.inode = Some(ino.0));
        job.write_step(&writes, actions);
    }
    Ok(())
}

/// Returns the parts of extents that consist of whole realtime extents at aligned offsets.
fn aligned(realtime: &Realtime, extents: &[Extent]) -> Vec<Extent> {
    let of_extent = u64::from(realtime.extent_blocks());
    if of_extent == 1 {
        return extents.to_vec();
    }
    let mut kept: Vec<Extent> = Vec::new();
    let mut from = 0;
    while from < extents.len() {
        // A run of contiguous extents in different states.
        let continues = |pair: &[Extent]| {
            pair[0].end() == pair[1].offset && pair[0].start.plus(pair[0].len) == pair[1].start
        };
        let count = 1 + extents[from..].windows(2).take_while(|pair| continues(pair)).count();
        let run = &extents[from..from + count];
        from += count;
        let (first, last) = (run[0], run[count - 1]);
        let Some(block) = realtime.device_block(first.start, 1) else { continue };
        let len = last.end().0 - first.offset.0;
        let skipped = block.next_multiple_of(of_extent) - block;
        let end = (block + len) / of_extent * of_extent;
        let is_aligned = (first.offset.0 + skipped).is_multiple_of(of_extent);
        if !is_aligned || block + skipped >= end {
            continue;
        }
        let start = FileBlock(first.offset.0 + skipped);
        let end = FileBlock(first.offset.0 + (end - block));
        kept.extend(run.iter().filter_map(|extent| extent.part(start, end)));
    }
    kept
}

/// Returns the uses that files lose, because another one has a better right.
fn losses(
    realtime: &Realtime,
    maps: &BTreeMap<Ino, Vec<Extent>>,
    suspects: &Suspects,
    may_share: bool,
) -> Vec<Use> {
    let mut uses: Vec<Use> = Vec::new();
    for (ino, extents) in maps {
        let of_extent = |extent: &Extent| {
            let range = realtime.extents_of(extent.start, extent.len)?;
            Some(Use { start: range.start, end: range.end, ino: *ino, extent: *extent })
        };
        uses.extend(extents.iter().filter_map(of_extent));
    }
    uses.sort_unstable_by_key(|it| (it.start, it.end, it.ino, it.extent.offset));
    let reserved = u64::from(realtime.has_superblock());
    let mut lost: Vec<Use> = Vec::new();
    let cut = |of: &Use, start: u64, end: u64| Use { start, end, ..*of };
    // Unwritten extents have no contents to lose.
    let rank = |it: &Use| (it.extent.unwritten, suspects.weight(it.ino.0), it.ino);
    // The use that reaches furthest among those that keep their extents.
    let mut holder: Option<Use> = None;
    for new in uses {
        if new.start < reserved {
            lost.push(cut(&new, new.start, reserved.min(new.end)));
        }
        let Some(old) = holder.filter(|old| old.end > new.start) else {
            holder = Some(new);
            continue;
        };
        let is_same_run = old.ino == new.ino
            && old.extent.end() == new.extent.offset
            && old.extent.start.plus(old.extent.len) == new.extent.start;
        let are_written = !old.extent.unwritten && !new.extent.unwritten;
        let is_shared = may_share && old.ino != new.ino && are_written;
        if !is_same_run && !is_shared {
            if rank(&old) > rank(&new) {
                lost.push(cut(&old, new.start, old.end));
                holder = Some(new);
                continue;
            }
            lost.push(cut(&new, new.start, new.end.min(old.end)));
        }
        if new.end > old.end {
            holder = Some(new);
        }
    }
    lost
}

/// Returns extents without the blocks of lost uses, in the order of their starts. Each use is one of the extents, or a
/// part of it.
fn without(realtime: &Realtime, extents: &[Extent], lost: &[Use]) -> Vec<Extent> {
    let mut of_extents: BTreeMap<FileBlock, Vec<&Use>> = BTreeMap::new();
    for of_one in lost {
        of_extents.entry(of_one.extent.offset).or_default().push(of_one);
    }
    let of_extent = u64::from(realtime.extent_blocks());
    let mut kept = Vec::new();
    for extent in extents {
        let lost = of_extents.get(&extent.offset).map_or(&[][..], Vec::as_slice);
        let first = realtime.device_block(extent.start, 1).unwrap_or(u64::MAX);
        let at =
            |block: u64| FileBlock(extent.offset.0 + block.saturating_sub(first).min(extent.len));
        let mut from = extent.offset;
        for of_one in lost {
            kept.extend(extent.part(from, at(of_one.start * of_extent)));
            from = from.max(at(of_one.end * of_extent));
        }
        kept.extend(extent.part(from, extent.end()));
    }
    kept
}
