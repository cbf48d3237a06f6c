//! The roots of a group's trees: one leaf each.

use super::layout::{AgPlan, GroupRun, Layout};
use crate::alloc::ags::{AG_TREES, AgTree};
use crate::btree::Tree;
use crate::btree::records::{
    BnoTree, CntTree, FinoTree, FreeRun, InoTree, InodeChunk, RefcountTree, RmapRecord, RmapTree,
    rmap_owner,
};
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::bytes::put16;
use crate::format::features::Incompat;
use crate::format::geometry::INODES_PER_CHUNK;

/// Owners of the trees, indexed by [`AgTree`].
const TREE_OWNERS: [u64; AG_TREES] = [
    rmap_owner::AG,
    rmap_owner::AG,
    rmap_owner::AG,
    rmap_owner::REFC,
    rmap_owner::INOBT,
    rmap_owner::INOBT,
];

impl Layout {
    /// Returns the root of a tree of a group, for block `root`.
    pub(super) fn tree_root(
        &self,
        ag: AgNumber,
        tree: AgTree,
        root: AgBlock,
        plan: &AgPlan,
    ) -> Vec<u8> {
        match tree {
            AgTree::Bno => self.leaf::<BnoTree>(ag, root, &free_runs(plan)),
            AgTree::Cnt => {
                let mut by_len = free_runs(plan);
                by_len.sort_by_key(|run| (run.len, run.start));
                self.leaf::<CntTree>(ag, root, &by_len)
            }
            AgTree::Rmap => self.leaf::<RmapTree>(ag, root, &self.reverse_map(plan)),
            AgTree::Refcount => self.leaf::<RefcountTree>(ag, root, &[]),
            AgTree::Ino => self.leaf::<InoTree>(ag, root, &self.inode_chunks(ag, plan)),
            AgTree::Fino => self.leaf::<FinoTree>(ag, root, &self.inode_chunks(ag, plan)),
        }
    }

    fn leaf<T: Tree>(&self, ag: AgNumber, root: AgBlock, records: &[T::Record]) -> Vec<u8> {
        let area = T::SHAPE.leaf_area(&self.geometry);
        let mut bytes = vec![0; self.geometry.block_size()];
        let block = self.geometry.block_of(ag, root);
        T::SHAPE.init(&self.geometry, block, ag.0.into(), 0, &mut bytes);
        for (at, record) in records.iter().enumerate() {
            T::put_record(record, &mut bytes[area.entry_range(at, at + 1)]);
        }
        put16(&mut bytes, area.count_range().start, records.len() as u16);
        T::SHAPE.seal(&self.geometry, &mut bytes);
        bytes
    }

    /// Returns the reverse map in the order of blocks. Adjacent runs of one owner are one record.
    fn reverse_map(&self, plan: &AgPlan) -> Vec<RmapRecord> {
        let headers = GroupRun { start: 0, len: self.header_blocks() };
        let mut runs = vec![(headers, rmap_owner::FS)];
        let roots = TREE_OWNERS.into_iter().zip(self.roots);
        let root_run = |(owner, root): (_, Option<AgBlock>)| {
            Some((GroupRun { start: root?.0, len: 1 }, owner))
        };
        runs.extend(roots.filter_map(root_run));
        runs.extend([
            (plan.log, rmap_owner::LOG),
            (plan.agfl, rmap_owner::AG),
            (plan.inodes, rmap_owner::INODES),
        ]);
        runs.retain(|(run, _)| run.len != 0);
        runs.sort_unstable_by_key(|(run, _)| run.start);
        let adjoin =
            |a: &(GroupRun, u64), b: &(GroupRun, u64)| a.1 == b.1 && a.0.end() == b.0.start;
        let joined = |same: &[(GroupRun, u64)]| RmapRecord {
            start: AgBlock(same[0].0.start),
            len: same.iter().map(|(run, _)| run.len).sum(),
            owner: same[0].1,
            offset: 0,
        };
        runs.chunk_by(adjoin).map(joined).collect()
    }

    /// Returns one record per 64 inodes of the chunk of a group. Only its first few inodes are in use.
    fn inode_chunks(&self, ag: AgNumber, plan: &AgPlan) -> Vec<InodeChunk> {
        if plan.inodes.len == 0 {
            return Vec::new();
        }
        let may_have_holes = self.geometry.features.incompat(Incompat::SPINODES);
        let record = |first| {
            let used = if first == 0 { self.inodes_used(ag) } else { 0 };
            InodeChunk {
                start: AgIno(self.first_inode(ag).0 + first),
                holemask: 0,
                count: if may_have_holes { INODES_PER_CHUNK as u8 } else { 0 },
                freecount: (INODES_PER_CHUNK - used) as u8,
                free: u64::MAX << used,
            }
        };
        (0..self.inodes_made()).step_by(INODES_PER_CHUNK as usize).map(record).collect()
    }
}

/// Returns the free runs in the order of blocks.
fn free_runs(plan: &AgPlan) -> Vec<FreeRun> {
    let runs = plan.free.iter().filter(|run| run.len != 0);
    runs.map(|run| FreeRun { start: AgBlock(run.start), len: run.len }).collect()
}
