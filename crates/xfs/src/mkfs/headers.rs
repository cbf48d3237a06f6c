//! The headers of a group and the roots of its trees, as bytes.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{AgPlan, INODES_USED, Layout, Run, TREE_HEADER_SIZE};
use crate::alloc::ags::{AG_TREES, AgTree};
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::ag::{
    AG_VERSION, AGF_MAGIC, AGFL_MAGIC, AGI_MAGIC, RawAgf, RawAgfl, RawAgi, UNLINKED_BUCKETS,
};
use crate::format::bytes::{put16, put32, put64};
use crate::format::checksum;
use crate::format::features::{Incompat, RoCompat};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::superblock::{self, RawSuperblock};

/// Magic numbers of version 5 trees, by [`AgTree`].
const TREE_MAGICS: [&[u8; 4]; AG_TREES] = [b"AB3B", b"AB3C", b"RMB3", b"R3FC", b"IAB3", b"FIB3"];
/// Byte of the checksum in the header of a tree's block.
const TREE_CRC_OFFSET: usize = 52;

/// Owners in the reverse map: what is not a file's (`XFS_RMAP_OWN_*`).
const OWN_FS: i64 = -3;
const OWN_LOG: i64 = -4;
const OWN_AG: i64 = -5;
const OWN_INOBT: i64 = -6;
const OWN_INODES: i64 = -7;
const OWN_REFC: i64 = -8;
/// Owners of the trees, by [`AgTree`].
const TREE_OWNERS: [i64; AG_TREES] = [OWN_AG, OWN_AG, OWN_AG, OWN_REFC, OWN_INOBT, OWN_INOBT];

impl Layout {
    /// The sector with the superblock of a group, complete but for `inprogress` in the first.
    pub(super) fn superblock_sector(&self, ag: AgNumber) -> Vec<u8> {
        let mut raw = self.superblock.clone();
        if ag.0 != 0 {
            self.make_copy(&mut raw, ag);
        }
        self.sector(raw.as_bytes(), superblock::CRC_OFFSET)
    }

    /// Copies say what mkfs.xfs knows when it writes them: no inodes yet. Only two of them, for a
    /// repair to find, say where the root is.
    fn make_copy(&self, raw: &mut RawSuperblock, ag: AgNumber) {
        let last = self.geometry.ag_count - 1;
        raw.inprogress = 1;
        raw.fdblocks = (raw.fdblocks.get() + u64::from(self.geometry.chunk_blocks())).into();
        (raw.icount, raw.ifree) = (0.into(), 0.into());
        (raw.rbmino, raw.rsumino) = (u64::MAX.into(), u64::MAX.into());
        if ag.0 != last && ag.0 != last / 2 {
            raw.rootino = u64::MAX.into();
        }
    }

    /// The AGF's sector.
    pub(super) fn agf_sector(&self, ag: AgNumber, plan: &AgPlan) -> Vec<u8> {
        let mut agf = RawAgf::new_zeroed();
        agf.magicnum = AGF_MAGIC.into();
        agf.versionnum = AG_VERSION.into();
        agf.seqno = ag.0.into();
        agf.length = self.geometry.ag_len(ag).into();
        for (at, tree) in [AgTree::Bno, AgTree::Cnt, AgTree::Rmap].into_iter().enumerate() {
            if let Some(root) = self.roots[tree as usize] {
                (agf.roots[at], agf.levels[at]) = (root.0.into(), 1.into());
            }
        }
        agf.rmap_blocks = u32::from(self.roots[AgTree::Rmap as usize].is_some()).into();
        if let Some(root) = self.roots[AgTree::Refcount as usize] {
            (agf.refcount_root, agf.refcount_level) = (root.0.into(), 1.into());
            agf.refcount_blocks = 1.into();
        }
        // mkfs.xfs fills the ring from its second entry on.
        agf.flfirst = 1.into();
        agf.fllast = self.agfl_len.into();
        agf.flcount = self.agfl_len.into();
        agf.freeblks = plan.free.iter().map(|run| run.len).sum::<u32>().into();
        agf.longest = plan.free.iter().map(|run| run.len).max().unwrap_or(0).into();
        agf.uuid = self.geometry.meta_uuid;
        self.sector(agf.as_bytes(), std::mem::offset_of!(RawAgf, crc))
    }

    /// The AGI's sector.
    pub(super) fn agi_sector(&self, ag: AgNumber, plan: &AgPlan) -> Vec<u8> {
        let mut agi = RawAgi::new_zeroed();
        agi.magicnum = AGI_MAGIC.into();
        agi.versionnum = AG_VERSION.into();
        agi.seqno = ag.0.into();
        agi.length = self.geometry.ag_len(ag).into();
        agi.newino = AgIno::NULL.0.into();
        agi.dirino = AgIno::NULL.0.into();
        agi.unlinked = [AgIno::NULL.0.into(); UNLINKED_BUCKETS];
        if plan.inodes.len != 0 {
            agi.count = self.inodes_made().into();
            agi.freecount = (self.inodes_made() - INODES_USED).into();
            agi.newino = self.first_inode().0.into();
        }
        let counts = self.geometry.features.ro_compat(RoCompat::INOBTCOUNT);
        if let Some(root) = self.roots[AgTree::Ino as usize] {
            (agi.root, agi.level) = (root.0.into(), 1.into());
            agi.iblocks = u32::from(counts).into();
        }
        if let Some(root) = self.roots[AgTree::Fino as usize] {
            (agi.free_root, agi.free_level) = (root.0.into(), 1.into());
            agi.fblocks = u32::from(counts).into();
        }
        agi.uuid = self.geometry.meta_uuid;
        self.sector(agi.as_bytes(), std::mem::offset_of!(RawAgi, crc))
    }

    /// The AGFL's sector.
    pub(super) fn agfl_sector(&self, ag: AgNumber, plan: &AgPlan) -> Vec<u8> {
        let mut agfl = RawAgfl::new_zeroed();
        agfl.magicnum = AGFL_MAGIC.into();
        agfl.seqno = ag.0.into();
        agfl.uuid = self.geometry.meta_uuid;
        let mut sector = vec![0xff; self.geometry.sector_size()];
        sector[..size_of::<RawAgfl>()].copy_from_slice(agfl.as_bytes());
        for at in 0..plan.agfl.len {
            put32(&mut sector, size_of::<RawAgfl>() + 4 * (at as usize + 1), plan.agfl.start + at);
        }
        checksum::seal(&mut sector, std::mem::offset_of!(RawAgfl, crc));
        sector
    }

    /// A sector that starts with a header, sealed.
    fn sector(&self, header: &[u8], crc_offset: usize) -> Vec<u8> {
        let mut sector = vec![0; self.geometry.sector_size()];
        sector[..header.len()].copy_from_slice(header);
        checksum::seal(&mut sector, crc_offset);
        sector
    }

    /// The root of a tree: one leaf.
    pub(super) fn tree_root(
        &self,
        ag: AgNumber,
        tree: AgTree,
        root: AgBlock,
        plan: &AgPlan,
    ) -> Vec<u8> {
        let mut leaf = Leaf { bytes: vec![0; self.geometry.block_size()], records: 0 };
        match tree {
            AgTree::Bno => plan.free.iter().for_each(|run| leaf.free_run(*run)),
            AgTree::Cnt => {
                let mut by_len = plan.free;
                by_len.sort_by_key(|run| (run.len, run.start));
                by_len.iter().for_each(|run| leaf.free_run(*run));
            }
            AgTree::Rmap => self.reverse_map(plan, &mut leaf),
            AgTree::Refcount => {}
            AgTree::Ino | AgTree::Fino => self.inode_records(plan, &mut leaf),
        }
        let bytes = &mut leaf.bytes;
        bytes[..4].copy_from_slice(TREE_MAGICS[tree as usize]);
        put16(bytes, 6, leaf.records);
        put32(bytes, 8, AgBlock::NULL.0);
        put32(bytes, 12, AgBlock::NULL.0);
        put64(bytes, 16, self.geometry.daddr(self.geometry.block_of(ag, root)));
        bytes[32..48].copy_from_slice(&self.geometry.meta_uuid);
        put32(bytes, 48, ag.0);
        checksum::seal(bytes, TREE_CRC_OFFSET);
        leaf.bytes
    }

    /// Who owns what, in the order of blocks. Neighbours of one owner are one record.
    fn reverse_map(&self, plan: &AgPlan, leaf: &mut Leaf) {
        let mut runs = vec![(Run { start: 0, len: self.header_blocks() }, OWN_FS)];
        let mut roots: Vec<_> = TREE_OWNERS.iter().zip(self.roots).collect();
        roots.sort_unstable_by_key(|(_, root)| *root);
        let root_run = |root: AgBlock| Run { start: root.0, len: 1 };
        runs.extend(roots.iter().filter_map(|(owner, root)| Some((root_run((*root)?), **owner))));
        runs.extend([(plan.log, OWN_LOG), (plan.agfl, OWN_AG), (plan.inodes, OWN_INODES)]);
        runs.retain(|(run, _)| run.len != 0);
        let adjoin = |a: &(Run, i64), b: &(Run, i64)| a.1 == b.1 && a.0.end() == b.0.start;
        for same in runs.chunk_by(adjoin) {
            let len = same.iter().map(|(run, _)| run.len).sum();
            leaf.owned(Run { start: same[0].0.start, len }, same[0].1);
        }
    }

    /// One record per 64 inodes of the first chunk, of which only the first few inodes are in use.
    fn inode_records(&self, plan: &AgPlan, leaf: &mut Leaf) {
        if plan.inodes.len == 0 {
            return;
        }
        let is_sparse = self.geometry.features.incompat(Incompat::SPINODES);
        for first in (0..self.inodes_made()).step_by(INODES_PER_CHUNK as usize) {
            let used = if first == 0 { INODES_USED } else { 0 };
            let free = INODES_PER_CHUNK - used;
            let at = leaf.next(16);
            put32(&mut leaf.bytes, at, self.first_inode().0 + first);
            // Where chunks may be sparse: no holes, how many inodes, how many of them are free.
            let counts = if is_sparse { INODES_PER_CHUNK << 8 | free } else { free };
            put32(&mut leaf.bytes, at + 4, counts);
            put64(&mut leaf.bytes, at + 8, u64::MAX << used);
        }
    }
}

/// A leaf that records are put into.
struct Leaf {
    bytes: Vec<u8>,
    records: u16,
}

impl Leaf {
    /// The place of one record more.
    fn next(&mut self, record_size: usize) -> usize {
        let at = TREE_HEADER_SIZE as usize + usize::from(self.records) * record_size;
        self.records += 1;
        at
    }

    fn free_run(&mut self, run: Run) {
        if run.len != 0 {
            let at = self.next(8);
            put32(&mut self.bytes, at, run.start);
            put32(&mut self.bytes, at + 4, run.len);
        }
    }

    fn owned(&mut self, run: Run, owner: i64) {
        let at = self.next(24);
        put32(&mut self.bytes, at, run.start);
        put32(&mut self.bytes, at + 4, run.len);
        put64(&mut self.bytes, at + 8, owner as u64);
    }
}
