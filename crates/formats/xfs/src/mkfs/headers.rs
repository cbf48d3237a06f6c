//! The headers of a group, as bytes.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{AgPlan, Layout};
use crate::alloc::ags::AgTree;
use crate::format::address::{AgIno, AgNumber};
use crate::format::ag::{
    AG_VERSION, AGF_MAGIC, AGFL_MAGIC, AGI_MAGIC, RawAgf, RawAgfl, RawAgi, UNLINKED_BUCKETS,
    agfl_entries,
};
use crate::format::bytes::put32;
use crate::format::checksum;
use crate::format::features::RoCompat;
use crate::format::superblock::{self, RawSuperblock};

impl Layout {
    /// Returns the sector with the superblock of a group, complete except for `inprogress` in the first group.
    pub(super) fn superblock_sector(&self, ag: AgNumber) -> Vec<u8> {
        let mut raw = self.superblock.clone();
        if ag.0 != 0 {
            self.make_copy(&mut raw, ag);
        }
        self.sector(raw.as_bytes(), superblock::CRC_OFFSET)
    }

    /// Makes the superblock a copy with the contents that mkfs.xfs writes: without inodes. Only two copies contain the
    /// root directory, for repairs.
    fn make_copy(&self, raw: &mut RawSuperblock, ag: AgNumber) {
        let last = self.geometry.ag_count - 1;
        raw.inprogress = 1;
        let chunks = self.geometry.chunk_blocks() * self.chunks();
        raw.fdblocks = (raw.fdblocks.get() + u64::from(chunks)).into();
        (raw.icount, raw.ifree) = (0.into(), 0.into());
        let has_metadir = self.metadir_ag.is_some();
        if !has_metadir {
            (raw.rbmino, raw.rsumino) = (u64::MAX.into(), u64::MAX.into());
        }
        if ag.0 != last && ag.0 != last / 2 {
            raw.rootino = u64::MAX.into();
            if has_metadir {
                raw.metadirino = u64::MAX.into();
            }
        }
    }

    /// Returns the sector of the AGF.
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
        agf.uuid = self.header_uuid();
        self.sector(agf.as_bytes(), std::mem::offset_of!(RawAgf, crc))
    }

    /// Returns the sector of the AGI.
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
            agi.freecount = (self.inodes_made() - self.inodes_used(ag)).into();
            agi.newino = self.first_inode(ag).0.into();
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
        agi.uuid = self.header_uuid();
        self.sector(agi.as_bytes(), std::mem::offset_of!(RawAgi, crc))
    }

    /// Returns the sector of the AGFL.
    pub(super) fn agfl_sector(&self, ag: AgNumber, plan: &AgPlan) -> Vec<u8> {
        let first = agfl_entries(&self.geometry);
        let mut sector = vec![0xff; self.geometry.sector_size()];
        for at in 0..plan.agfl.len {
            put32(&mut sector, first + 4 * (at as usize + 1), plan.agfl.start + at);
        }
        if self.geometry.features.crc() {
            let mut agfl = RawAgfl::new_zeroed();
            agfl.magicnum = AGFL_MAGIC.into();
            agfl.seqno = ag.0.into();
            agfl.uuid = self.geometry.meta_uuid;
            sector[..size_of::<RawAgfl>()].copy_from_slice(agfl.as_bytes());
            checksum::seal(&mut sector, std::mem::offset_of!(RawAgfl, crc));
        }
        sector
    }

    /// Returns the UUID for AGF and AGI; version 4 has none.
    fn header_uuid(&self) -> [u8; 16] {
        if self.geometry.features.crc() { self.geometry.meta_uuid } else { [0; 16] }
    }

    /// Returns a sector that starts with a header, sealed if the file system has checksums.
    pub(super) fn sector(&self, header: &[u8], crc_offset: usize) -> Vec<u8> {
        let mut sector = vec![0; self.geometry.sector_size()];
        sector[..header.len()].copy_from_slice(header);
        if self.geometry.features.crc() {
            checksum::seal(&mut sector, crc_offset);
        }
        sector
    }
}
