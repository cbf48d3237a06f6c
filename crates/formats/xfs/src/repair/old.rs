//! Reads the old trees of a group.

use std::cell::OnceCell;
use std::collections::HashSet;

use zerocopy::FromBytes;

use super::group::GroupDevice;
use crate::btree::Tree;
use crate::btree::records::{
    BnoTree, CntTree, FinoTree, FreeRun, InoTree, InodeChunk, RefcountTree, RmapRecord, RmapTree,
    rmap_owner,
};
use crate::check::codes;
use crate::check::survey::{Survey, TreeContents};
use crate::format::address::AgNumber;
use crate::format::ag::{
    self, AGF_MAGIC, AGF_SECTOR, AGFL_SECTOR, AGI_MAGIC, AGI_SECTOR, RawAgf, RawAgi, sector_place,
};
use crate::format::features::RoCompat;

/// Maximum number of levels of a tree of a group.
const LEVELS_MAX: u32 = 9;

/// The headers of a group as on disk, and the readable parts of its trees.
pub(super) struct Old<'o> {
    survey: &'o Survey,
    ag: AgNumber,
    pub(super) agi: Option<RawAgi>,
    agf: Option<RawAgf>,
    pub(super) ino: TreeContents<InodeChunk>,
    pub(super) fino: TreeContents<InodeChunk>,
    rmap: OnceCell<TreeContents<RmapRecord>>,
    bno: OnceCell<TreeContents<FreeRun>>,
    cnt: OnceCell<TreeContents<FreeRun>>,
}

impl<'o> Old<'o> {
    pub(super) fn read(survey: &'o Survey, device: &GroupDevice<'_>) -> Self {
        let read = |sector| device.read_sector(sector);
        let agi = read(AGI_SECTOR).and_then(|s| Some(RawAgi::read_from_prefix(&s).ok()?.0));
        let agf = read(AGF_SECTOR).and_then(|s| Some(RawAgf::read_from_prefix(&s).ok()?.0));
        let mut old = Self {
            survey,
            ag: device.ag,
            agi,
            agf: agf.filter(|agf| agf.magicnum.get() == AGF_MAGIC),
            ino: TreeContents::default(),
            fino: TreeContents::default(),
            rmap: OnceCell::new(),
            bno: OnceCell::new(),
            cnt: OnceCell::new(),
        };
        if let Some(agi) = old.agi.clone() {
            old.ino = old.tree::<InoTree>(codes::INOBT, (agi.root.get(), agi.level.get()));
            if survey.geometry.features.ro_compat(RoCompat::FINOBT) {
                let root = (agi.free_root.get(), agi.free_level.get());
                old.fino = old.tree::<FinoTree>(codes::FINOBT, root);
            }
        }
        old
    }

    /// Returns the header of inodes if it has its magic number and possible counts.
    pub(super) fn header(&self) -> Option<&RawAgi> {
        let geometry = &self.survey.geometry;
        let most = u64::from(geometry.ag_len(self.ag)) << geometry.inodes_per_block_log();
        let is_possible = |agi: &&RawAgi| {
            let (count, free) = (agi.count.get(), agi.freecount.get());
            agi.magicnum.get() == AGI_MAGIC && u64::from(count) <= most && free <= count
        };
        self.agi.as_ref().filter(is_possible)
    }

    fn tree<T: Tree>(
        &self,
        codes: codes::TreeCodes,
        (root, levels): (u32, u32),
    ) -> TreeContents<T::Record> {
        let (headers_end, _) = sector_place(&self.survey.geometry, AGFL_SECTOR);
        let is_there = root > headers_end && root < self.survey.geometry.ag_len(self.ag);
        if !is_there || !(1..=LEVELS_MAX).contains(&levels) {
            return TreeContents::default();
        }
        self.survey.tree::<T>(self.ag, codes, (root, levels))
    }

    fn of_agf<T: Tree>(
        &self,
        codes: codes::TreeCodes,
        root: impl Fn(&RawAgf) -> (u32, u32),
    ) -> TreeContents<T::Record> {
        self.agf.as_ref().map(|agf| self.tree::<T>(codes, root(agf))).unwrap_or_default()
    }

    /// Returns the reverse map.
    pub(super) fn rmap(&self) -> &TreeContents<RmapRecord> {
        self.rmap.get_or_init(|| {
            if !self.survey.geometry.features.ro_compat(RoCompat::RMAPBT) {
                return TreeContents::default();
            }
            self.of_agf::<RmapTree>(codes::RMAPBT, |agf| (agf.roots[2].get(), agf.levels[2].get()))
        })
    }

    fn bno(&self) -> &TreeContents<FreeRun> {
        self.bno.get_or_init(|| {
            self.of_agf::<BnoTree>(codes::BNOBT, |agf| (agf.roots[0].get(), agf.levels[0].get()))
        })
    }

    fn cnt(&self) -> &TreeContents<FreeRun> {
        self.cnt.get_or_init(|| {
            self.of_agf::<CntTree>(codes::CNTBT, |agf| (agf.roots[1].get(), agf.levels[1].get()))
        })
    }

    /// Returns whether the free-space tree is valid.
    pub(super) fn is_free_known(&self) -> bool {
        self.bno().is_sound
    }

    /// Returns the contents of the free-space tree, if it is valid. In version 4, where free blocks have no other
    /// evidence, those of the tree by length replace it.
    pub(super) fn free_runs(&self) -> Vec<FreeRun> {
        if self.bno().is_sound {
            return self.bno().records.clone();
        }
        let has_crc = self.survey.geometry.features.crc();
        if has_crc || !self.cnt().is_sound { Vec::new() } else { self.cnt().records.clone() }
    }

    /// Returns the current or former blocks of the inode trees.
    pub(super) fn blocks_of_inodes(&self) -> Vec<u32> {
        let rmap = self.rmap();
        if rmap.is_sound {
            let own = rmap.records.iter().filter(|record| record.owner == rmap_owner::INOBT);
            let length = u64::from(self.survey.geometry.ag_len(self.ag));
            let ends = own.map(|record| record.start.0..record.end().min(length) as u32);
            return ends.flatten().collect();
        }
        let of_space = self.blocks_of_space();
        let mut own: Vec<u32> = self.ino.blocks.iter().chain(&self.fino.blocks).copied().collect();
        if !self.survey.geometry.features.crc() {
            own.extend(self.root_of_inodes());
        }
        own.sort_unstable();
        own.dedup();
        own.retain(|block| !of_space.contains(block));
        own
    }

    /// Returns the root of the tree of chunks according to a valid AGI, whatever that block contains.
    fn root_of_inodes(&self) -> Option<u32> {
        let agi = self.agi.as_ref()?;
        let length = self.survey.geometry.ag_len(self.ag);
        ag::check_agi(&self.survey.geometry, length, agi).ok().map(|()| agi.root.get())
    }

    /// Returns the blocks of the trees of space and the AGFL, as far as they are readable.
    pub(super) fn blocks_of_space(&self) -> HashSet<u32> {
        let mut blocks: HashSet<u32> = self.bno().blocks.iter().copied().collect();
        blocks.extend(&self.rmap().blocks);
        blocks.extend(&self.cnt().blocks);
        if self.survey.geometry.features.ro_compat(RoCompat::REFLINK) {
            let refcount = self.of_agf::<RefcountTree>(codes::REFCOUNTBT, |agf| {
                (agf.refcount_root.get(), agf.refcount_level.get())
            });
            blocks.extend(&refcount.blocks);
        }
        blocks
    }
}
