//! Replaying inode items.

use vfs::{Corruption, Error, Ino, Result};

use super::Replay;
use crate::format::address::{AgIno, Block};
use crate::format::btree::TreeShape;
use crate::format::bytes::{be16, put32};
use crate::format::geometry::DADDR_BYTES_LOG;
use crate::format::inode::{Fork, Inode, MAGIC, seal_slot, verify_slot};
use crate::format::log::Lsn;
use crate::format::log::inode::{InodeItem, fields, slot_flushes, slot_lsn, write_fork};

fn fault(problem: &str) -> Corruption {
    Corruption::new("log inode item", problem)
}

impl Replay<'_> {
    /// Writes a logged inode into its slot, unless the slot is newer.
    pub(super) fn inode(&mut self, lsn: Lsn, item: &InodeItem<'_>) -> Result<()> {
        let damage = |error| match error {
            Error::Corrupt(c) => Error::Corrupt(c.of_inode(item.ino.0)),
            other => other,
        };
        let offset = self.inode_place(item).map_err(damage)?;
        if self.cancels.has(item.daddr, item.blocks) {
            self.report.items_skipped += 1;
            return Ok(());
        }
        let mut slot = self.changes.read(offset, self.geometry.inode_size())?;
        if be16(&slot, 0) != MAGIC {
            let problem = fault("there is no inode at its location").of_inode(item.ino.0);
            let found = format!("{:#06x}", be16(&slot, 0));
            return Err(problem.mismatch(format_args!("{MAGIC:#06x}"), found).into());
        }
        if item.is_v3() != self.geometry.features.crc() {
            let problem = fault("its core has the version of another format of XFS");
            return Err(problem.of_inode(item.ino.0).into());
        }
        if is_newer(&slot, item, lsn) {
            self.report.items_skipped += 1;
            return Ok(());
        }
        write_inode(item, lsn, &mut slot).map_err(|c| c.of_inode(item.ino.0))?;
        self.changes.write(offset, &slot)?;
        self.slots.insert(offset);
        if item.fields & (fields::DATA_OWNER | fields::ATTR_OWNER) != 0 {
            self.owner_changes.insert(offset, (item.fields, lsn));
        }
        self.report.items_replayed += 1;
        Ok(())
    }

    /// Returns the byte offset of an inode's slot, which must match its number.
    fn inode_place(&self, item: &InodeItem<'_>) -> Result<u64> {
        let start = self.check_place(item.daddr, u64::from(item.blocks) << DADDR_BYTES_LOG)?;
        let Some((ag, ino)) = self.geometry.split_ino(item.ino) else {
            return Err(fault("the inode does not exist").into());
        };
        let (block, at) = self.geometry.inode_place(ino);
        let place = self.geometry.byte_of(self.geometry.block_of(ag, block)) + at as u64;
        let found = start.saturating_add(item.offset as u64);
        let end = start + (u64::from(item.blocks) << DADDR_BYTES_LOG);
        if found != place || place + self.geometry.inode_size() as u64 > end {
            return Err(fault("it has another location").mismatch(place, found).into());
        }
        Ok(place)
    }

    /// Checks the replayed inodes. An inode that was already damaged before, and was logged with the others of its
    /// block, is skipped: it must not prevent recovery of the others.
    pub(super) fn check_slots(&self) -> Result<()> {
        let size = self.geometry.inode_size();
        for &offset in &self.slots {
            let slot = self.changes.read(offset, size)?;
            let ino = self.ino_at(offset);
            let checked = if be16(&slot, 2) == 0 {
                verify_slot(&self.geometry, ino, &slot)
            } else {
                Inode::parse(&self.geometry, ino, &slot).map(drop)
            };
            match checked {
                Err(_) if self.changes.leave(offset, size)? => {}
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Returns the inode whose slot starts at a byte of the device.
    pub(super) fn ino_at(&self, offset: u64) -> Ino {
        let geometry = &self.geometry;
        let (ag, block) = geometry.locate(Block(offset >> geometry.block_log));
        let index = (offset & (geometry.block_size() as u64 - 1)) >> geometry.inode_log;
        let first = geometry.first_ino(block);
        geometry.ino(ag, AgIno(first.0 + index as u32))
    }
}

/// Returns whether the slot of an inode is newer than a logged inode. Slots of version 4 of XFS have no LSN, but a count
/// of flushes that wraps around.
fn is_newer(slot: &[u8], item: &InodeItem<'_>, lsn: Lsn) -> bool {
    if item.is_v3() {
        let at = slot_lsn(slot);
        return at != 0 && at != u64::MAX && Lsn::from_raw(at) > lsn;
    }
    let (logged, written) = (item.flushes(), slot_flushes(slot));
    let has_wrapped = written == u16::MAX && logged < u16::MAX >> 1;
    logged < written && !has_wrapped
}

/// Writes the logged parts of an inode into its slot.
fn write_inode(item: &InodeItem<'_>, lsn: Lsn, slot: &mut [u8]) -> Result<(), Corruption> {
    item.write_core(slot, lsn);
    let mut inode = Inode::from_slot(slot);
    if inode.has_attr_fork() && inode.forkoff_bytes() >= inode.literal_size() {
        let room = format!("below {}", inode.literal_size());
        return Err(fault("boundary of its forks").mismatch(room, inode.forkoff_bytes()));
    }
    if item.fields & fields::DEVICE != 0 {
        let core = inode.core_size();
        put32(&mut inode.as_mut_bytes()[core..], 0, item.device);
    }
    for (fork, logged) in [(Fork::Data, item.data), (Fork::Attr, item.attr)] {
        if let Some(logged) = logged {
            let shape = inode.metafile_type().shape().filter(|_| fork == Fork::Data);
            write_fork(logged, &shape.unwrap_or(TreeShape::BMBT), inode.fork_mut(fork))?;
        }
    }
    slot.copy_from_slice(inode.as_bytes());
    seal_slot(slot);
    Ok(())
}
