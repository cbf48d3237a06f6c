//! Reserving inodes for deferred files, and allocating them when the files are applied.

use operations::Outcome;
use operations::deferred_create::InodeRun;
use vfs::{Error, Ino};

use super::bitmap::{self, Bits};
use super::guard::Bitmaps as _;
use super::reserved::RUN;
use crate::format::address::Group;
use crate::format::group::GroupFlags;
use crate::inode::Handle;
use crate::op::{Op, Patience};

/// Maximum size of an inode bitmap in bytes: a block of 64 KiB.
const BITMAP_BYTES_MAX: usize = 64 << 10;

/// Empty inode bitmap of the maximum size.
static NOTHING_USED: [u8; BITMAP_BYTES_MAX] = [0; BITMAP_BYTES_MAX];

impl Op<'_> {
    /// Reserves a run of adjacent free inodes near `parent`, at least one. Returns `NoInodes` also if the only free
    /// inodes have slots with stale contents, in the part of an inode table that was never zeroed.
    pub(crate) fn reserve_inodes(&mut self, parent: &Handle) -> Outcome<InodeRun> {
        let groups = &self.fs.volume.groups;
        let home = self.fs.volume.geometry.place_of(parent.ino()).map_or(Group(0), |(g, _)| g);
        for patience in [Patience::AtHome, Patience::Everywhere] {
            for group in groups.from(groups.inode_spill(home)) {
                if groups.free_inodes(group) == 0 {
                    continue;
                }
                let Some(at) = self.hold_patiently(group, home, patience)? else { continue };
                if let Some(run) = self.reserve_in(at)? {
                    groups.set_inode_spill(home, group);
                    return Ok(run);
                }
            }
        }
        Err(Error::NoInodes.into())
    }

    /// Reserves free inodes in a held group.
    fn reserve_in(&mut self, at: usize) -> Outcome<Option<InodeRun>> {
        let volume = &self.fs.volume;
        let guard = &mut self.group_guards[at];
        let group = guard.group();
        if guard.desc.free_inodes <= group.reserved.count() {
            return Ok(None);
        }
        let count = volume.geometry.inodes_per_group;
        let reserved =
            if guard.number().0 == 0 { volume.sb.first_ino.saturating_sub(1) } else { 0 };
        let from = guard.first_free_inode.max(reserved);
        // An uninitialised bitmap is not created for a reservation that may never be used.
        let bitmap = if guard.desc.flags.contains(GroupFlags::INODE_UNINIT) {
            &NOTHING_USED[..count as usize / 8]
        } else {
            let id = guard.inode_bitmap(volume, &mut self.txn)?;
            self.txn.data(id)
        };
        let found = group.reserved.over(bitmap, |bits| {
            let index = bitmap::find_free(bits, from, count)?;
            let first = index / RUN * RUN;
            let is_free = |&index: &u32| bitmap::find_free(bits, index, index + 1).is_some();
            let free = (index..(first + RUN).min(count)).filter(is_free);
            Some((first, free.fold(0, |mask, index| mask | 1 << (index - first))))
        });
        let Some((first, mask)) = found else {
            let damage = guard.corrupt("inode bitmap", "no free inode, but the count is not 0");
            return Err(damage.into());
        };
        // All slots before a used inode count as initialised. Some inodes of this run may never be written, so their
        // slots must be zero.
        let is_zeroed = guard.desc.flags.contains(GroupFlags::INODE_ZEROED);
        if !is_zeroed && first + RUN > count.saturating_sub(guard.desc.itable_unused) {
            return Ok(None);
        }
        group.reserved.keep(first, mask, volume.block_size());
        Ok(Some(InodeRun::new(volume.geometry.ino_of(guard.number(), first), mask)))
    }

    /// Allocates an inode that was reserved for a file.
    pub(crate) fn take_reserved(&mut self, ino: Ino) -> Outcome<()> {
        let volume = &self.fs.volume;
        let (group, index) = volume.geometry.place_of(ino).ok_or(Error::NoInodes)?;
        let at = self.hold(group)?;
        let guard = &mut self.group_guards[at];
        let id = guard.inode_bitmap(volume, &mut self.txn)?;
        let range = index..index + 1;
        if bitmap::find_free(Bits::plain(self.txn.data(id)), index, index + 1).is_none() {
            let damage = guard.corrupt("inode bitmap", "a reserved inode is in use");
            return Err(damage.of_inode(ino.0).into());
        }
        let window = bitmap::bytes_of(&range);
        let base = window.start as u32 * 8;
        bitmap::set(self.txn.edit(id, window), base, range);
        let state = &mut **guard;
        state.desc.free_inodes -= 1;
        let count = volume.geometry.inodes_per_group;
        state.desc.itable_unused = state.desc.itable_unused.min(count - index - 1);
        Ok(())
    }
}
