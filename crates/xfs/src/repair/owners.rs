//! Whose blocks are that several claim: what the reverse map says.

use vfs::Result;

use super::Job;
use super::group::GroupDevice;
use super::old::Old;
use crate::btree::records::{RmapRecord, rmap_offset, rmap_owner};
use crate::format::address::Block;

/// What the reverse map says of blocks of one group.
pub(super) struct Owners {
    /// `None` if it cannot be relied on.
    records: Option<Vec<RmapRecord>>,
}

impl Owners {
    /// What the reverse map of a block's group says.
    ///
    /// # Errors
    /// If the superblock cannot be read.
    pub(super) fn of(job: &Job, block: Block) -> Result<Self> {
        let survey = job.survey()?;
        let (ag, _) = survey.geometry.locate(block);
        if ag.0 >= survey.geometry.ag_count {
            return Ok(Self { records: None });
        }
        let device = GroupDevice::new(&job.staging, &survey.geometry, ag);
        let old = Old::read(&survey, &device);
        let rmap = old.rmap();
        Ok(Self { records: rmap.is_sound.then(|| rmap.records.clone()) })
    }

    /// Whether there is a reverse map that can be relied on.
    pub(super) const fn are_known(&self) -> bool {
        self.records.is_some()
    }

    /// All owners that a block of the group has, given its number within the group.
    pub(super) fn owners(&self, ag_block: u32) -> Vec<RmapRecord> {
        let records = self.records.iter().flatten();
        let has =
            |record: &&RmapRecord| record.start.0 <= ag_block && u64::from(ag_block) < record.end();
        records.filter(has).copied().collect()
    }

    /// Whether an inode has a block.
    pub(super) fn supports(&self, ag_block: u32, ino: u64) -> bool {
        self.owners(ag_block).iter().any(|record| record.owner == ino)
    }

    /// Whether files share a block as they may: it has several owners, all of them written data of files. Then the tree
    /// of references is to be built anew, and no file is to lose the block.
    pub(super) fn is_shared(&self, ag_block: u32) -> bool {
        let owners = self.owners(ag_block);
        let flags = rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK | rmap_offset::UNWRITTEN;
        let is_data = |record: &RmapRecord| {
            !rmap_owner::is_none_of_inodes(record.owner) && record.offset & flags == 0
        };
        owners.len() > 1 && owners.iter().all(is_data)
    }
}
