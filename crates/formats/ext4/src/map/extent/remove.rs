//! Unmapping part of a file with an extent tree.

use operations::Outcome;
use smallvec::SmallVec;

use super::ExtentTree;
use super::path::ExtentPath;
use super::provide::ROUNDS_MAX;
use super::replace::Pieces;
use crate::format::address::FileBlock;
use crate::format::extent::Extent;

/// Changes of one leaf that remove a range.
#[derive(Default)]
struct Cut {
    /// Entries to remove.
    window: std::ops::Range<usize>,
    /// Remaining parts of these entries.
    pieces: Pieces,
    /// Removed extents, from the end of the file backwards.
    freed: SmallVec<[Extent; 8]>,
    /// First file block of the removed range.
    from: u64,
}

impl ExtentTree<'_, '_> {
    /// Implements [`Op::remove_blocks`] for a file with an extent tree.
    pub(crate) fn remove(&mut self, start: u64, mut end: u64, budget: &mut u32) -> Outcome<bool> {
        let mut rounds = 0;
        while end > start {
            if *budget == 0 {
                return Ok(false);
            }
            let path = self.path_to(FileBlock((end - 1) as u32))?;
            if let Some(frame) = path.iter().find(|frame| frame.position.is_none()) {
                // All blocks below this node are after the range.
                end = u64::from(frame.start.0);
                continue;
            }
            let Some(cut) = self.cut(&path, start..end, *budget)? else { return Ok(true) };
            if !self.replace(&path, cut.window, cut.pieces)? {
                rounds += 1;
                if rounds > ROUNDS_MAX {
                    return Err(self
                        .file
                        .corrupt("extent tree", "no space after splitting")
                        .into());
                }
                continue;
            }
            *budget = budget.saturating_sub(1);
            *budget = budget.saturating_sub(self.free_extents(&cut.freed)?);
            end = cut.from;
        }
        Ok(true)
    }

    /// Frees the blocks of extents that were removed from the map, given in descending order. Returns the cost in units
    /// of a budget.
    fn free_extents(&mut self, freed: &[Extent]) -> Outcome<u32> {
        if self.op.fs.volume.geometry.cluster_blocks_log > 0 {
            return self.free_in_clusters(freed);
        }
        let mut cost = 0_u32;
        for extent in freed {
            cost = cost.saturating_add(self.op.free_data(self.file, extent.start, extent.len)?);
        }
        Ok(cost)
    }

    /// Plans the removal from the leaf at the end of a path: from the end of `range` backwards, as far as `budget`
    /// allows. Returns `None` if nothing in the range is mapped.
    fn cut(
        &self,
        path: &ExtentPath,
        range: std::ops::Range<u64>,
        mut budget: u32,
    ) -> Outcome<Option<Cut>> {
        let leaf = path[path.len() - 1];
        let node = self.node(&leaf)?;
        let Some(last) = leaf.position else { return Ok(None) };
        let mut cut = Cut { window: last + 1..last + 1, from: range.end, ..Cut::default() };
        let mut right = None;
        for at in (0..=last).rev() {
            let extent = node.extent(at);
            let from = range.start.max(u64::from(extent.block.0));
            let to = range.end.min(extent.end());
            if to <= from || budget == 0 {
                break;
            }
            let len = ((to - from) as u32).min(self.op.freed_at_once(self.file, budget));
            budget = budget.saturating_sub(self.op.cost_of_freeing(self.file, len));
            let from = to - u64::from(len);
            let skip = from - u64::from(extent.block.0);
            cut.freed.push(part(extent, skip, u64::from(len)));
            cut.window.start = at;
            cut.from = from;
            if to < extent.end() {
                right = Some(part(extent, to - u64::from(extent.block.0), extent.end() - to));
            }
            if skip > 0 {
                cut.pieces.push(part(extent, 0, skip));
                break;
            }
        }
        cut.pieces.extend(right);
        Ok((!cut.window.is_empty()).then_some(cut))
    }
}

/// Returns part of an extent.
fn part(extent: Extent, skip: u64, len: u64) -> Extent {
    Extent {
        block: FileBlock(extent.block.0 + skip as u32),
        len: len as u32,
        start: extent.start.plus(skip),
        ..extent
    }
}
