//! Reports metadata at fixed positions and free blocks.

use std::ops::ControlFlow;

use vfs::survey::BlockUse;

use super::Teller;
use crate::alloc::bitmap::{Bits, next_free_run};
use crate::alloc::guard::initial_block_bitmap;
use crate::format::address::{Block, Group};
use crate::format::features::Incompat;
use crate::format::group::{GroupDescriptor, GroupFlags};
use crate::kind;

/// A range of metadata blocks; the end is exclusive.
struct Range {
    start: u64,
    end: u64,
    kind: BlockUse,
}

impl Teller<'_> {
    /// Reports superblocks, descriptors, bitmaps, inode tables and free blocks.
    pub(super) fn system(&mut self) -> ControlFlow<()> {
        self.fixed();
        let mut free = 0;
        for group in self.fs.geometry().groups() {
            free += self.free(group);
            self.progress(0, group)?;
        }
        self.budget = self.fs.geometry().blocks_count.saturating_sub(free);
        ControlFlow::Continue(())
    }

    fn fixed(&mut self) {
        let geometry = *self.fs.geometry();
        let boot = u64::from(geometry.first_data_block);
        let mut ranges = vec![Range { start: 0, end: boot, kind: BlockUse::Headers }];
        let mut add = |start: Block, len: u64, kind| {
            ranges.push(Range { start: start.0, end: start.plus(len).0, kind });
        };
        let sb = self.fs.superblock();
        if sb.features.incompat(Incompat::MMP) && sb.raw.mmp_block.get() != 0 {
            add(Block(sb.raw.mmp_block.get()), 1, BlockUse::Headers);
        }
        for group in geometry.groups() {
            let base = geometry.base_metadata(group);
            add(base.start, base.end.0.saturating_sub(base.start.0), BlockUse::Headers);
            let desc = self.fs.volume.groups.places(group);
            add(desc.block_bitmap, 1, BlockUse::Allocation);
            add(desc.inode_bitmap, 1, BlockUse::Allocation);
            add(desc.inode_table, geometry.itable_blocks().into(), BlockUse::Inodes);
        }
        ranges.retain(|range| range.start < range.end && range.end <= geometry.blocks_count);
        ranges.sort_unstable_by_key(|range| range.start);
        let mut told = 0;
        for (at, range) in ranges.iter().enumerate() {
            // The rest of a cluster counts for the range that starts in it.
            let next = ranges.get(at + 1).map_or(u64::MAX, |next| next.start);
            let (from, to) = self.clusters(Block(range.start), range.end - range.start);
            let (from, to) = (from.max(told), to.min(next.max(range.end)));
            self.tell(from, to.saturating_sub(from), range.kind);
            told = told.max(to);
        }
    }

    /// Reports the free blocks of a group. Returns their number.
    fn free(&mut self, group: Group) -> u64 {
        let fs = self.fs;
        let geometry = fs.geometry();
        let desc = fs.volume.groups.places(group);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let tag = kind::BlockKind::BlockBitmap.of_group(group.0);
            return match fs.block(desc.block_bitmap, tag) {
                Ok(bytes) => self.free_in(group, &bytes),
                Err(error) => {
                    self.remark(format_args!("the block bitmap of group {group}"), &error);
                    0
                }
            };
        }
        if desc.free_blocks == geometry.clusters_in(group) {
            return self.free_run(group, 0..geometry.clusters_in(group));
        }
        self.free_in(group, &self.initial(group, &desc))
    }

    fn initial(&self, group: Group, desc: &GroupDescriptor) -> Vec<u8> {
        let mut bytes = vec![0; self.fs.geometry().block_size() as usize];
        initial_block_bitmap(&self.fs.volume, group, desc, &mut bytes);
        bytes
    }

    fn free_in(&mut self, group: Group, bitmap: &[u8]) -> u64 {
        let clusters = self.fs.geometry().clusters_in(group);
        let (mut free, mut bit) = (0, 0);
        while let Some(run) = next_free_run(Bits::plain(bitmap), bit, clusters) {
            bit = run.end;
            free += self.free_run(group, run);
        }
        free
    }

    fn free_run(&mut self, group: Group, clusters: std::ops::Range<u32>) -> u64 {
        let geometry = self.fs.geometry();
        let first = geometry.first_block(group);
        let block = |bit: u32| first.plus(u64::from(bit) << geometry.cluster_blocks_log).0;
        let start = block(clusters.start);
        let len = block(clusters.end).min(geometry.blocks_count).saturating_sub(start);
        self.tell(start, len, BlockUse::Free);
        len
    }
}
