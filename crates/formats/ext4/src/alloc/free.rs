//! Freeing of blocks and inodes.

use operations::Outcome;
use std::ops::Range;
use vfs::Corruption;

use super::bitmap;
use super::guard::Bitmaps as _;
use crate::format::address::{Block, Group};
use crate::format::inode::Inode;
use crate::inode::Handle;
use crate::op::{FreedRun, Op};

impl Op<'_> {
    /// Frees the noted runs in ascending order, so that groups are locked in order.
    pub(crate) fn free_noted_blocks(&mut self) -> Outcome<()> {
        let mut runs = std::mem::take(&mut self.freed_runs);
        runs.sort_unstable_by_key(|run| run.start);
        for FreedRun { start, len } in runs {
            self.fs.volume.check_blocks(start, u64::from(len))?;
            let geometry = self.fs.volume.geometry;
            let mut at = start;
            let end = start.plus(u64::from(len));
            while at < end {
                let group = geometry.group_of(at);
                let group_end = geometry.first_block(group).plus(geometry.blocks_per_group.into());
                let bits =
                    geometry.bit_of(at)..geometry.bit_of(Block(group_end.min(end).0 - 1)) + 1;
                self.free_in_group(group, bits)?;
                at = group_end;
            }
        }
        Ok(())
    }

    /// Frees blocks of one group.
    pub(crate) fn free_in_group(&mut self, group: Group, bits: Range<u32>) -> Outcome<()> {
        let volume = &self.fs.volume;
        let at = self.hold(group)?;
        let guard = &mut self.group_guards[at];
        let id = guard.block_bitmap(volume, &mut self.txn)?;
        let count = bits.end - bits.start;
        if !bitmap::all_set(self.txn.data(id), bits.clone()) {
            return Err(guard
                .corrupt("block bitmap", "blocks of a file are marked as free")
                .into());
        }
        let window = bitmap::bytes_of(&bits);
        bitmap::clear(self.txn.edit(id, window.clone()), window.start as u32 * 8, bits.clone());
        let state = &mut **guard;
        state.desc.free_blocks += count;
        state.first_free_block = state.first_free_block.min(bits.start);
        if self.fs.engine.has_log() {
            guard.add_busy(bits);
        }
        Ok(())
    }

    /// Frees the noted inodes and clears their slots.
    pub(crate) fn free_noted_inodes(&mut self) -> Outcome<()> {
        let mut handles = std::mem::take(&mut self.freed_inodes);
        handles.sort_unstable_by_key(Handle::ino);
        for handle in handles {
            self.clear_inode_bit(&handle)?;
            self.stage_gone(handle);
        }
        Ok(())
    }

    /// Clears the slot of a freed inode. The generation stays, because the slot's checksum depends on it.
    pub(crate) fn stage_gone(&mut self, handle: Handle) {
        let mut gone = handle;
        gone.inode = Inode::zeroed(usize::from(self.fs.volume.geometry.inode_size));
        gone.inode.set_generation(handle.inode.generation());
        gone.inode.set_dtime(self.fs.clock.deletion());
        self.stage_new(gone);
    }

    fn clear_inode_bit(&mut self, handle: &Handle) -> Outcome<()> {
        let volume = &self.fs.volume;
        let outside = || handle.corrupt("inode", "outside the file system");
        let (group, index) = volume.geometry.place_of(handle.ino()).ok_or_else(outside)?;
        let at = self.hold(group)?;
        let guard = &mut self.group_guards[at];
        let id = guard.inode_bitmap(volume, &mut self.txn)?;
        let range = index..index + 1;
        if !bitmap::all_set(self.txn.data(id), range.clone()) {
            let damage = guard.corrupt("inode bitmap", "an inode in use is marked as free");
            return Err(damage.of_inode(handle.ino().0).into());
        }
        let is_dir = handle.inode.is_dir();
        if is_dir && guard.desc.used_dirs == 0 {
            let damage = Corruption::new("group descriptor", "more directories than counted");
            return Err(damage.in_group(group.0.into()).into());
        }
        let window = bitmap::bytes_of(&range);
        bitmap::clear(self.txn.edit(id, window.clone()), window.start as u32 * 8, range);
        let state = &mut **guard;
        state.desc.free_inodes += 1;
        state.desc.used_dirs -= u32::from(is_dir);
        state.first_free_inode = state.first_free_inode.min(index);
        Ok(())
    }
}
