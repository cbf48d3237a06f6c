//! Allocation of inodes and of their generations.

use operations::Outcome;
use vfs::{Error, Ino};

use super::bitmap;
use super::guard::Bitmaps as _;
use crate::Ext4Core;
use crate::format::address::{Block, Group};
use crate::format::checksum::{crc32c, inode_seed};
use crate::format::inode::{BlockOwner, Inode};
use crate::inode::Handle;
use crate::op::{Op, Patience};

impl<'a> Op<'a> {
    /// Allocates an inode: files near `parent`, directories where there is room for their future contents. All fields
    /// of the new inode are zero except the generation.
    pub(crate) fn allocate_inode(&mut self, parent: &Handle, is_dir: bool) -> Outcome<Handle> {
        let groups = &self.fs.volume.groups;
        let home = self.home_group(parent, is_dir);
        for patience in [Patience::AtHome, Patience::Everywhere] {
            for group in groups.from(groups.inode_spill(home)) {
                if self.free_inodes_in(group) == 0 {
                    continue;
                }
                let Some(at) = self.hold_patiently(group, home, patience)? else { continue };
                // The count was read without the group's lock, so the inodes may be taken by now.
                let guard = &self.group_guards[at];
                if guard.desc.free_inodes > guard.group().reserved.count() {
                    groups.set_inode_spill(home, group);
                    return self.allocate_inode_in(group, is_dir);
                }
            }
        }
        Err(Error::NoInodes.into())
    }

    /// Directories of the root go to the next group with at least average free space; all other inodes go to their
    /// parent's group.
    fn home_group(&self, parent: &Handle, is_dir: bool) -> Group {
        let volume = &self.fs.volume;
        let parent_group = volume.geometry.place_of(parent.ino()).map_or(Group(0), |(g, _)| g);
        if is_dir && parent.ino() == self.fs.root_ino() {
            return self.fs.spread.next_group(&volume.groups, &volume.geometry);
        }
        parent_group
    }

    fn free_inodes_in(&self, group: Group) -> u32 {
        match self.group_guards.find(group) {
            Some(guard) => guard.desc.free_inodes.saturating_sub(guard.group().reserved.count()),
            None => self.fs.volume.groups.free_inodes(group),
        }
    }

    fn allocate_inode_in(&mut self, group: Group, is_dir: bool) -> Outcome<Handle> {
        let volume = &self.fs.volume;
        let geometry = &volume.geometry;
        let at = self.hold(group)?;
        let guard = &mut self.group_guards[at];
        let id = guard.inode_bitmap(volume, &mut self.txn)?;
        let from = guard.first_free_inode;
        let count = geometry.inodes_per_group;
        let reserved = if group.0 == 0 { volume.sb.first_ino.saturating_sub(1) } else { 0 };
        let kept = &guard.group().reserved;
        let from = from.max(reserved);
        let found = kept.over(self.txn.data(id), |bits| bitmap::find_free(bits, from, count));
        let Some(index) = found else {
            return Err(guard
                .corrupt("inode bitmap", "no free inode, but the count is not 0")
                .into());
        };
        let range = index..index + 1;
        let window = bitmap::bytes_of(&range);
        let base = window.start as u32 * 8;
        bitmap::set(self.txn.edit(id, window), base, range);

        let state = &mut **guard;
        if kept.count() == 0 {
            state.first_free_inode = index + 1;
        }
        state.desc.free_inodes -= 1;
        state.desc.used_dirs += u32::from(is_dir);
        state.desc.itable_unused = state.desc.itable_unused.min(count - index - 1);
        let place = geometry.inode_position(state.desc.inode_table, index);
        let ino = geometry.ino_of(group, index);
        Ok(self.fs.blank_inode(ino, self.fs.next_generation(ino), place))
    }
}

impl Ext4Core {
    /// Returns the generation of a new inode. It differs for each use of an inode number, but is reproducible: building
    /// the same image again gives the same generations.
    pub(crate) fn next_generation(&self, ino: Ino) -> u32 {
        let group = self.volume.geometry.place_of(ino).map_or(Group(0), |(group, _)| group);
        let uses = self.generations.wrapping_add(self.volume.groups.count_use(group));
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&ino.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.volume.sb.raw.hash_seed);
        crc32c(uses, &bytes)
    }

    /// Returns a new inode whose slot is at `place`. All of its fields are zero except the generation.
    pub(crate) fn blank_inode(
        &self,
        ino: Ino,
        generation: u32,
        (block, offset): (Block, usize),
    ) -> Handle {
        let volume = &self.volume;
        let mut inode = Inode::zeroed(usize::from(volume.geometry.inode_size));
        inode.set_generation(generation);
        let seed = inode_seed(volume.sb.checksum_seed, ino, generation);
        Handle { owner: BlockOwner { ino, seed }, inode, block, offset }
    }
}
