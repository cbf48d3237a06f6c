//! Files with clusters of several blocks (`bigalloc`).
//!
//! Clusters are the unit of allocation. A cluster of a file begins at a multiple of the cluster size and has at most
//! one device cluster, in which its blocks have the same offsets. So the position of a block is fixed once another
//! block of its cluster is mapped, and a cluster is freed only when none of its blocks is mapped. Source: kernel
//! Documentation/filesystems/ext4/bigalloc.rst and images made by mke2fs and the kernel.
//!
//! Only the map records which clusters a file uses, so it is searched at the edges of each change. Without `bigalloc`
//! nothing here is called.

use operations::Outcome;

use super::ExtentTree;
use super::provide::Goal;
use super::step::{FILE_BLOCKS_MAX, check_blocks};
use crate::format::address::{Block, FileBlock};
use crate::format::extent::Extent;
use crate::map::Mapping;

impl ExtentTree<'_, '_> {
    /// Allocates up to `len` blocks for the hole from `block` on: the rest of its cluster if that is partly mapped
    /// already, else new clusters.
    pub(super) fn take_in_clusters(
        &mut self,
        goal: Goal,
        block: FileBlock,
        len: u32,
    ) -> Outcome<(Block, u32)> {
        let ratio = self.op.fs.volume.geometry.cluster_blocks();
        let within = block.0 % ratio;
        if let Some(cluster) = self.find_cluster(u64::from(block.0))? {
            let (start, len) = (cluster.plus(within.into()), len.min(ratio - within));
            check_blocks(&self.op.fs.volume, self.file, start, len.into())?;
            return Ok((start, len));
        }
        let wanted = within + len;
        let mut clusters = wanted.div_ceil(ratio);
        // Part of the last cluster may be mapped after the hole.
        let is_cut = clusters > 1 && !wanted.is_multiple_of(ratio);
        let last = u64::from(block.0) + u64::from(len) - 1;
        if is_cut && self.find_cluster(last)?.is_some() {
            clusters -= 1;
        }
        // The cluster at the end of the extent before the hole is allocated already.
        let free_from = (block.0 - goal.free).div_ceil(ratio);
        let free = (block.0 / ratio).saturating_sub(free_from);
        let (start, clusters) = self.op.allocate_behind(goal.start, free, clusters)?;
        self.op.add_clusters(self.file, clusters)?;
        Ok((start.plus(within.into()), len.min(clusters * ratio - within)))
    }

    /// Frees the clusters of extents that were removed from the map, given in descending order, except clusters with
    /// mapped blocks. Returns the cost in units of a budget.
    pub(super) fn free_in_clusters(&mut self, freed: &[Extent]) -> Outcome<u32> {
        let log = self.op.fs.volume.geometry.cluster_blocks_log;
        let mut cost = 0_u32;
        // First cluster of the previous extent: two extents may share a cluster.
        let mut decided = u64::MAX;
        for extent in freed {
            cost = cost.saturating_add(self.op.forget_data(self.file, extent.start, extent.len));
            let (start, end) = (u64::from(extent.block.0), extent.end());
            let first_block = self.cluster_behind(extent.start, start)?;
            let first = start >> log;
            let mut clusters = first..end.div_ceil(1 << log).min(decided);
            decided = first;
            let is_cut_behind = end < clusters.end << log;
            if is_cut_behind && self.find_cluster((clusters.end - 1) << log)?.is_some() {
                clusters.end -= 1;
            }
            let is_cut_before = !clusters.is_empty() && start > first << log;
            if is_cut_before && self.find_cluster(first << log)?.is_some() {
                clusters.start += 1;
            }
            if !clusters.is_empty() {
                let skipped = (clusters.start - first) << log;
                let len = (clusters.end - clusters.start) << log;
                self.op.free_blocks(self.file, first_block.plus(skipped), len as u32)?;
            }
        }
        Ok(cost)
    }

    /// Returns the first device block of the cluster that contains the file's `block`, if any block of that cluster
    /// is mapped.
    fn find_cluster(&mut self, block: u64) -> Outcome<Option<Block>> {
        let ratio = u64::from(self.op.fs.volume.geometry.cluster_blocks());
        let mut at = block - block % ratio;
        let end = (at + ratio).min(FILE_BLOCKS_MAX);
        while at < end {
            let run = self.op.run_at(self.file, FileBlock(at as u32))?;
            if let Mapping::Written(found) | Mapping::Unwritten(found) = run.place {
                return self.cluster_behind(found, at).map(Some);
            }
            at += run.len;
        }
        Ok(None)
    }

    /// Returns the first block of the cluster that contains `block`, which is the file's block `at`.
    fn cluster_behind(&self, block: Block, at: u64) -> Outcome<Block> {
        let ratio = u64::from(self.op.fs.volume.geometry.cluster_blocks());
        if block.0 % ratio != at % ratio {
            return Err(self
                .file
                .corrupt("extent tree", "a block with another offset in its cluster")
                .into());
        }
        Ok(self.op.fs.volume.geometry.cluster_start(block))
    }
}
