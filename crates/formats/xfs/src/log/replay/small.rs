//! Replaying quota and inode creation items.

use vfs::{Corruption, Result};

use super::Replay;
use crate::format::address::AgIno;
use crate::format::bytes::{be64, put32};
use crate::format::checksum;
use crate::format::geometry::DADDR_BYTES_LOG;
use crate::format::inode::{GENERATION_OFFSET, init_free_slot, seal_slot};
use crate::format::log::Lsn;
use crate::format::log::dquot::{
    CRC_OFFSET, DQUOT_BLOCK_SIZE, DQUOT_SIZE, DquotItem, LSN_OFFSET, MAGIC,
};
use crate::format::log::icreate::Icreate;

impl Replay<'_> {
    /// Writes a logged quota into its block, unless the block is newer.
    pub(super) fn dquot(&mut self, lsn: Lsn, item: &DquotItem<'_>) -> Result<()> {
        let fault = |problem: &str| Corruption::new("log quota item", problem);
        let len = u64::from(item.blocks) << self.geometry.block_log;
        let start = self.check_place(item.daddr, len)?;
        let end = u64::from(item.offset) + DQUOT_BLOCK_SIZE as u64;
        if end > len {
            let damage = fault("past the end of its buffer");
            return Err(damage.mismatch(format_args!("at most {len}"), end).into());
        }
        let magic = u16::from_be_bytes([item.dquot[0], item.dquot[1]]);
        if magic != MAGIC {
            let expected = format!("{MAGIC:#06x}");
            let damage = fault("wrong magic number");
            return Err(damage.mismatch(expected, format_args!("{magic:#06x}")).into());
        }
        let blocks = u32::try_from(len >> DADDR_BYTES_LOG);
        let is_cancelled = blocks.is_ok_and(|blocks| self.cancels.has(item.daddr, blocks));
        if is_cancelled || self.quota_off.iter().any(|q| q.ends(item)) {
            self.report.items_skipped += 1;
            return Ok(());
        }
        let offset = start + u64::from(item.offset);
        let mut bytes = self.changes.read(offset, DQUOT_BLOCK_SIZE)?;
        let has_lsn = self.geometry.features.crc();
        let at = be64(&bytes, LSN_OFFSET);
        if has_lsn && at != 0 && at != u64::MAX && Lsn::from_raw(at) >= lsn {
            self.report.items_skipped += 1;
            return Ok(());
        }
        bytes[..DQUOT_SIZE].copy_from_slice(item.dquot);
        if has_lsn {
            checksum::seal(&mut bytes, CRC_OFFSET);
        }
        self.changes.write(offset, &bytes)?;
        self.report.items_replayed += 1;
        Ok(())
    }

    /// Fills a run of blocks with free inodes.
    pub(super) fn icreate(&mut self, item: &Icreate) -> Result<()> {
        let fault = |problem: &str| Corruption::new("log item of new inodes", problem);
        let geometry = self.geometry;
        if item.ag.0 >= geometry.ag_count
            || !geometry.contains(geometry.fs_block(item.ag, item.block), item.blocks.into())
        {
            let damage = fault("blocks outside the group").in_group(item.ag.0.into());
            let found = format_args!("{} from {}", item.blocks, item.block).to_string();
            return Err(damage.mismatch("blocks of the group", found).into());
        }
        if item.inode_size as usize != geometry.inode_size() {
            let damage = fault("inode size");
            return Err(damage.mismatch(geometry.inode_size(), item.inode_size).into());
        }
        let inodes = u64::from(item.blocks) << geometry.inodes_per_block_log();
        if inodes != u64::from(item.inodes) || item.blocks > geometry.chunk_blocks() || inodes == 0
        {
            let expected = format!("inodes that fill at most {} blocks", geometry.chunk_blocks());
            let found = format!("{} in {} blocks", item.inodes, item.blocks);
            return Err(fault("number of inodes").mismatch(expected, found).into());
        }
        let first = geometry.block_of(item.ag, item.block);
        let len = u64::from(item.blocks) << geometry.block_log;
        let offset = self.check_place(geometry.daddr(first), len)?;
        if self.is_given_up(geometry.daddr(first), len) {
            self.report.items_skipped += 1;
            return Ok(());
        }
        let mut bytes = vec![0; len as usize];
        let start = geometry.first_ino(item.block);
        for (at, slot) in bytes.chunks_exact_mut(geometry.inode_size()).enumerate() {
            let ino = geometry.ino(item.ag, AgIno(start.0 + at as u32));
            init_free_slot(&geometry, ino, slot);
            put32(slot, GENERATION_OFFSET, item.generation);
            seal_slot(slot);
        }
        self.changes.write(offset, &bytes)?;
        self.report.items_replayed += 1;
        Ok(())
    }

    /// Returns whether `len` bytes of inodes at `daddr` are cancelled later: in clusters, but then all of them. A
    /// cancelled buffer of another size belongs to the previous contents.
    fn is_given_up(&self, daddr: u64, len: u64) -> bool {
        let cluster = u64::from(self.geometry.kernel_cluster_blocks()) << self.geometry.block_log;
        let blocks = (cluster.min(len) >> DADDR_BYTES_LOG) as u32;
        self.cancels.has(daddr, blocks)
    }
}
