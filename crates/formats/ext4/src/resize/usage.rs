//! Updating quotas: map blocks count, and a move may change their number.

use vfs::{Corruption, Result};
use zerocopy::IntoBytes;

use super::mover::Mover;
use crate::format::features::RoCompat;
use crate::format::inode::{Inode, ROOT_INO, flags};
use crate::format::quota;

impl Mover {
    /// Updates the quotas of an inode that had `before` units of 512 bytes.
    ///
    /// # Errors
    /// `Corrupt` if a quota file has no entry for its owner; if the device fails.
    pub(super) fn count_space(&mut self, ino: u32, inode: &Inode, before: u64) -> Result<()> {
        let now = inode.blocks_512(self.params.geometry.block_size());
        let sb = &self.params.sb;
        if now == before || !sb.features.ro_compat(RoCompat::QUOTA) {
            return Ok(());
        }
        let raw = &sb.raw;
        let files =
            [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum].map(|ino| ino.get());
        let is_own = files.contains(&ino)
            || ino == raw.orphan_file_inum.get()
            || ino < sb.first_ino && u64::from(ino) != ROOT_INO.0;
        if is_own || inode.has_flag(flags::EA_INODE) {
            return Ok(());
        }
        let ids = [inode.uid(), inode.gid(), inode.projid()];
        for (file, id) in files.into_iter().zip(ids).filter(|(file, _)| *file != 0) {
            self.count_for(file, id, (before * 512, now * 512))?;
        }
        Ok(())
    }

    fn count_for(&mut self, file: u32, id: u32, (before, now): (u64, u64)) -> Result<()> {
        let damage = |problem| Corruption::new("quota file", problem).of_inode(file.into());
        let inode = Inode::from_slot(&self.slot(file)?);
        let log = self.params.geometry.block_size_log - quota::BLOCK_SIZE_LOG;
        let mut number = quota::ROOT_BLOCK;
        for level in 0..=quota::TREE_DEPTH {
            let place = self.place(&inode, number >> log)?;
            let place = place.ok_or_else(|| damage("a block is a hole"))?;
            let start = (number & ((1 << log) - 1)) as usize * quota::BLOCK_SIZE;
            let block = self.read(place)?[start..start + quota::BLOCK_SIZE].to_vec();
            if level < quota::TREE_DEPTH {
                let at = quota::reference_range(level, id);
                let mut next = [0; 4];
                next.copy_from_slice(&block[at]);
                number = u32::from_le_bytes(next);
                continue;
            }
            let mut entries = (0..quota::ENTRIES_PER_BLOCK)
                .filter_map(|index| quota::entry_at(&block, index).map(|entry| (index, entry)));
            let found = entries.find(|(_, entry)| entry.id == id && !entry.is_none());
            let (index, mut entry) = found.ok_or_else(|| damage("an owner has no entry"))?;
            entry.space = entry.space.get().saturating_sub(before).saturating_add(now).into();
            let at = start + quota::entry_range(index).start;
            self.draft.edit(place, at, entry.as_bytes())?;
        }
        Ok(())
    }
}
