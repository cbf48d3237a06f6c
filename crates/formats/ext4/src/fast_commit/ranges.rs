//! The ranges of files that fast commits add and delete.

use operations::Outcome;
use std::collections::BTreeMap;
use std::ops::Range;

use vfs::{FileType, Ino};

use super::inodes::InodeUpdate;
use super::{Replay, damage};
use crate::alloc::bitmap;
use crate::alloc::guard::Bitmaps as _;
use crate::format::address::Block;
use crate::format::extent::Extent;
use crate::format::inode::flags;
use crate::format::jbd2::FastCommitTag;
use crate::map::Mapping;
use crate::map::Want;
use crate::map::extent::ExtentTree;

/// Disjoint runs of blocks: first block and end.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn insert(&mut self, range: Range<u64>) {
        self.0.insert(range.start, range.end);
    }

    /// Removes the blocks of `range`. Returns `false` if some were missing; those before the first missing one are
    /// removed then.
    fn remove(&mut self, range: Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let Some((&start, &end)) = self.0.range(..=at).next_back() else { return false };
            if end <= at {
                return false;
            }
            self.0.remove(&start);
            if start < at {
                self.insert(start..at);
            }
            if range.end < end {
                self.insert(range.end..end);
            }
            at = end;
        }
        true
    }
}

impl Replay<'_, '_> {
    /// Reserves the blocks of all ranges that are free now.
    pub(super) fn reserve_ranges(&mut self, tags: &[FastCommitTag]) -> Outcome<()> {
        for tag in tags {
            let FastCommitTag::AddRange { ino, extent } = tag else { continue };
            let range = extent.start.0..extent.start.0 + u64::from(extent.len);
            self.op
                .fs
                .volume
                .check_blocks(extent.start, extent.len.into())
                .map_err(|c| c.of_inode(ino.0))?;
            self.for_each_group(range, |replay, first, bits| replay.reserve(first, bits))?;
        }
        Ok(())
    }

    /// Calls `each` with the part of a run in each group: the group's first block, and bits of its bitmap.
    fn for_each_group(
        &mut self,
        range: Range<u64>,
        mut each: impl FnMut(&mut Self, Block, Range<u32>) -> Outcome<()>,
    ) -> Outcome<()> {
        let geometry = self.op.fs.volume.geometry;
        let mut at = range.start;
        while at < range.end {
            let first = geometry.first_block(geometry.group_of(Block(at)));
            let end = range.end.min(first.0 + u64::from(geometry.blocks_per_group));
            let bit = |block: u64| (block - first.0) as u32;
            each(self, first, bit(at)..bit(end))?;
            at = end;
        }
        Ok(())
    }

    /// Reserves the free blocks among the bits of one group.
    fn reserve(&mut self, first: Block, bits: Range<u32>) -> Outcome<()> {
        let volume = &self.op.fs.volume;
        let at = self.op.hold(volume.geometry.group_of(first))?;
        let guard = &mut self.op.group_guards[at];
        let id = guard.block_bitmap(volume, &mut self.op.txn)?;
        let mut from = bits.start;
        while from < bits.end {
            let is_set = |bit: u32| bitmap::all_set(self.op.txn.data(id), bit..bit + 1);
            if is_set(from) {
                from += 1;
                continue;
            }
            let end = (from..bits.end).find(|&bit| is_set(bit)).unwrap_or(bits.end);
            let window = bitmap::bytes_of(&(from..end));
            let base = window.start as u32 * 8;
            bitmap::set(self.op.txn.edit(id, window), base, from..end);
            let Some(left) = guard.desc.free_blocks.checked_sub(end - from) else {
                let problem = "more free blocks than counted";
                return Err(guard.corrupt("block bitmap", problem).into());
            };
            guard.desc.free_blocks = left;
            self.reserved.insert(first.0 + u64::from(from)..first.0 + u64::from(end));
            from = end;
        }
        Ok(())
    }

    /// Frees reserved blocks that no file uses.
    pub(super) fn release_reserved(&mut self) -> Outcome<()> {
        for (start, end) in std::mem::take(&mut self.reserved.0) {
            self.for_each_group(start..end, |replay, first, bits| {
                let group = replay.op.fs.volume.geometry.group_of(first);
                replay.op.free_in_group(group, bits)
            })?;
        }
        Ok(())
    }

    /// Takes out a file whose ranges may be changed, which must be regular. The blocks of other types contain metadata,
    /// which fast commits do not cover.
    fn take_file(&mut self, ino: Ino) -> Outcome<InodeUpdate> {
        let work = self.take(ino)?;
        let is_regular = work.handle.file_type()? == FileType::Regular;
        if !is_regular || !work.handle.has_flag(flags::EXTENTS) {
            return Err(damage("it changes ranges of an inode without extents", ino).into());
        }
        Ok(work)
    }

    /// Maps the extent in the file.
    pub(super) fn add_range(&mut self, ino: Ino, extent: Extent) -> Outcome<()> {
        let mut work = self.take_file(ino)?;
        let file = &mut work.handle;
        let mut done = 0;
        while done < extent.len {
            let block = extent.block.checked_plus(done);
            let block = block.ok_or_else(|| damage("a range past the last block", ino))?;
            let start = extent.start.plus(done.into());
            let run = self.op.run_at(file, block)?;
            let len = run.len.min(u64::from(extent.len - done)) as u32;
            let limit = (u64::from(block.0) + u64::from(len)).min(u32::MAX.into()) as u32;
            match run.place {
                Mapping::Hole => {
                    let blocks = start.0..start.0 + u64::from(len);
                    if !self.reserved.remove(blocks) {
                        return Err(damage("it adds blocks that are in use", ino).into());
                    }
                    let given = Extent { block, len, start, ..extent };
                    ExtentTree::new(self.op, file).map_given(given)?;
                    done += len;
                }
                Mapping::Written(found) | Mapping::Unwritten(found) if found == start => {
                    let want = if extent.unwritten { Want::Zeroed } else { Want::Written };
                    done += self.op.provide(file, block, limit, want)?.len as u32;
                }
                Mapping::Written(_) | Mapping::Unwritten(_) => {
                    self.op.remove_blocks(file, block.0..limit, &mut { u32::MAX })?;
                    self.op.free_noted_blocks()?;
                }
            }
        }
        self.put(work);
        Ok(())
    }

    /// Unmaps the range of the file.
    pub(super) fn delete_range(&mut self, ino: Ino, blocks: Range<u32>) -> Outcome<()> {
        let mut work = self.take_file(ino)?;
        self.op.remove_blocks(&mut work.handle, blocks, &mut { u32::MAX })?;
        self.op.free_noted_blocks()?;
        self.put(work);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_out_of_the_middle_and_across() {
        let mut ranges = Ranges::default();
        ranges.insert(10..20);
        ranges.insert(20..30);
        assert!(ranges.remove(15..25));
        assert!(!ranges.remove(15..16));
        assert!(ranges.remove(10..15));
        assert!(ranges.remove(25..30));
        assert!(ranges.0.is_empty());
        assert!(!ranges.remove(0..1));
    }
}
