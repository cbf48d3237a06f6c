//! Changing the maps of realtime files.
//!
//! INVARIANT: a file maps whole realtime extents, at logical blocks that are multiples of their size. The parts of one
//! realtime extent are contiguous, but may have different states.

use std::ops::Range;

use operations::Outcome;

use super::change::{Extents, one, without};
use super::fork::ForkMap;
use super::{Extent, Piece, Want, Was, is_realtime, realtime_of};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::extent::LEN_MAX;
use crate::format::inode::flags;
use crate::format::realtime::Realtime;

/// Returns the multiple of `unit` at or before a block.
const fn rounded_down(block: u64, unit: u64) -> u64 {
    block / unit * unit
}

/// The blocks that a caller wants, within a hole.
pub(super) struct Wanted {
    pub(super) at: FileBlock,
    pub(super) limit: FileBlock,
    /// The last extent before the hole.
    pub(super) before: Option<Extent>,
    /// Start of the first extent after the hole.
    pub(super) next: FileBlock,
}

impl ForkMap<'_, '_> {
    /// Returns the realtime section if the fork maps blocks of it.
    pub(super) fn realtime(&self) -> Outcome<Option<Realtime>> {
        if is_realtime(self.handle, self.fork) {
            return Ok(Some(realtime_of(&self.op.fs.volume, self.handle)?));
        }
        Ok(None)
    }

    /// Allocates realtime extents for blocks of a hole. Blocks that were not wanted become unwritten.
    pub(super) fn provide_realtime(
        &mut self,
        realtime: &Realtime,
        wanted: &Wanted,
        want: Want,
    ) -> Outcome<Piece> {
        let of_extent = u64::from(realtime.extent_blocks());
        let at = wanted.at.0;
        let first = rounded_down(at, of_extent);
        let hole_start = wanted.before.map_or(0, |before| before.end().0);
        if hole_start > first || wanted.next.0 < first + of_extent {
            let problem = format!("a part of the realtime extent at block {first} is missing");
            return Err(self.handle.corrupt("extent", problem).into());
        }
        let hole = hole_start.next_multiple_of(of_extent)..rounded_down(wanted.next.0, of_extent);
        let (from, to) = self.aligned_range(of_extent, wanted, &hole);
        let last = wanted.before.map(|before| before.start.plus(before.len.saturating_sub(1)));
        let (start, len) = self.op.allocate_realtime(last, (to - from) / of_extent)?;
        // A short run begins with the wanted block.
        let from = if from + len <= at { first } else { from };
        let (end, unwritten) = (from + len, want != Want::Written);
        let limit = wanted.limit.0.clamp(at + 1, end);
        let whole = Extent { offset: FileBlock(from), start, len, unwritten: true };
        let pieces = match unwritten {
            true => one(whole),
            false => with_written(&whole, FileBlock(at), FileBlock(limit)),
        };
        for piece in &pieces {
            let owner = self.owner_of(piece);
            self.op.own_realtime(piece.start, piece.len, owner)?;
        }
        self.change_joined(None, pieces)?;
        let inode = &mut self.handle.inode;
        inode.set_nblocks(inode.nblocks() + len);
        self.note_realtime(len as i64);
        let start = start.plus(at - from);
        let (was, written) = (Was::Hole, !unwritten);
        Ok(Piece { start, len: limit - at, was, written, copied_from: None })
    }

    /// Returns the range of blocks to allocate: the wanted ones, aligned to the extent size hint as far as the hole
    /// permits.
    fn aligned_range(&self, of_extent: u64, wanted: &Wanted, hole: &Range<u64>) -> (u64, u64) {
        let inode = &self.handle.inode;
        let hint = u64::from(inode.extent_size_hint());
        let has_hint = inode.flags() & flags::EXTSIZE != 0;
        let unit = match hint {
            1.. if has_hint && hint.is_multiple_of(of_extent) => hint,
            _ => of_extent,
        };
        let len_max = rounded_down(LEN_MAX, of_extent).max(of_extent);
        let at = wanted.at.0;
        let mut from = rounded_down(at, unit).max(hole.start);
        if at - from >= len_max {
            from = rounded_down(at, of_extent);
        }
        let limit = wanted.limit.0.clamp(at + 1, hole.end);
        let to = limit.next_multiple_of(unit).min(hole.end).min(from + len_max);
        (from, to)
    }

    /// Like [`ForkMap::unmap_some`], for a realtime file. Parts of realtime extents at the ends of the range become
    /// unwritten instead.
    pub(super) fn unmap_realtime(
        &mut self,
        realtime: &Realtime,
        range: Range<FileBlock>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        let of_extent = u64::from(realtime.extent_blocks());
        let end = range.end.min(FileBlock::END);
        let whole_start = range.start.0.next_multiple_of(of_extent);
        let whole_end = rounded_down(end.0, of_extent);
        if whole_start >= whole_end {
            return self.make_unwritten(range.start..end, budget);
        }
        Ok(self.make_unwritten(FileBlock(whole_end)..end, budget)?
            && self.unmap_whole(of_extent, whole_start..whole_end, budget)?
            && self.make_unwritten(range.start..FileBlock(whole_start), budget)?)
    }

    /// Unmaps and frees whole realtime extents, from the end of the range backwards.
    fn unmap_whole(
        &mut self,
        of_extent: u64,
        range: Range<u64>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        let mut end = FileBlock(range.end);
        while range.start < end.0 {
            let (extent, _) = self.lookup(FileBlock(end.0 - 1))?;
            let Some(extent) = extent else { break };
            let Some(part) = extent.part(FileBlock(range.start), end) else { break };
            self.check(&extent)?;
            if *budget == 0 {
                return Ok(false);
            }
            let part_end = part.end();
            if !part_end.0.is_multiple_of(of_extent) {
                let problem = format!("a part of the realtime extent before {part_end} is missing");
                return Err(self.handle.corrupt("extent", problem).into());
            }
            let first = FileBlock(part.offset.0.next_multiple_of(of_extent));
            if let Some(whole) = part.part(first, part_end) {
                // Each change of the reference count is a change of the trees.
                let len = match of_extent {
                    1 => self.within_budget(&whole, budget)?,
                    _ => whole.len,
                };
                let whole = whole.part(FileBlock(part_end.0 - len), part_end).unwrap_or(whole);
                self.unmap_part(&extent, &whole)?;
                end = whole.offset;
                continue;
            }
            *budget -= 1;
            let first = FileBlock(rounded_down(part.offset.0, of_extent));
            if !self.make_unwritten(first..part_end, budget)? {
                return Ok(false);
            }
            self.unmap_split(first, part_end)?;
            end = first;
        }
        Ok(true)
    }

    /// Unmaps and frees one realtime extent, which is unwritten, but part of several extents.
    fn unmap_split(&mut self, first: FileBlock, end: FileBlock) -> Outcome<()> {
        let (mut at, mut start): (FileBlock, Option<FsBlock>) = (end, None);
        while first < at {
            let (extent, _) = self.lookup(FileBlock(at.0 - 1))?;
            let part = extent.and_then(|extent| Some((extent, extent.part(first, at)?)));
            let is_next = |part: &Extent| {
                part.end() == at && start.is_none_or(|start| part.start.plus(part.len) == start)
            };
            let Some((extent, part)) = part.filter(|(_, part)| is_next(part)) else {
                let problem = format!("the realtime extent at block {first} is in pieces");
                return Err(self.handle.corrupt("extent", problem).into());
            };
            self.check(&extent)?;
            self.replace_extents(&[extent], &without(&extent, &part))?;
            self.subtract_mapped(part.len)?;
            (at, start) = (part.offset, Some(part.start));
        }
        if let Some(start) = start {
            let whole = Extent { offset: first, start, len: end.0 - first.0, unwritten: true };
            self.free_part(&whole)?;
        }
        Ok(())
    }

    /// Converts written blocks of a range to unwritten ones, until `budget` is used up. Returns whether that was all.
    fn make_unwritten(&mut self, range: Range<FileBlock>, budget: &mut u32) -> Outcome<bool> {
        let mut at = range.start;
        while at < range.end {
            let (extent, next) = self.lookup(at)?;
            let Some(extent) = extent.filter(|extent| at < extent.end()) else {
                at = next.max(at.plus(1));
                continue;
            };
            self.check(&extent)?;
            if !extent.unwritten {
                if *budget == 0 {
                    return Ok(false);
                }
                *budget -= 1;
                self.bring_to_state(extent, at, range.end, Want::Zeroed)?;
            }
            at = extent.end();
        }
        Ok(true)
    }
}

/// Returns the pieces of an unwritten extent whose blocks from `at` to `limit` are written.
fn with_written(whole: &Extent, at: FileBlock, limit: FileBlock) -> Extents {
    let head = whole.part(whole.offset, at);
    let middle = whole.part(at, limit).map(|part| Extent { unwritten: false, ..part });
    let tail = whole.part(limit, whole.end());
    [head, middle, tail].into_iter().flatten().collect()
}
