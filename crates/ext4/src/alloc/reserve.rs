//! Keeping inodes for files that wait, and taking them when the files are applied.

use operation::Outcome;
use operation::waiting::InodeRun;
use vfs::{Error, Ino};

use super::bitmap::{self, Bits};
use super::guard::Bitmaps as _;
use super::reserved::RUN;
use crate::format::address::Group;
use crate::format::group::GroupFlags;
use crate::inode::Handle;
use crate::op::{Op, Patience};

/// Bytes of a bitmap of inodes, at most: a block of 64 KiB.
const BITMAP_BYTES_MAX: usize = 64 << 10;

/// The bitmap of a group of as many inodes as one can have, none of them used.
static NOTHING_USED: [u8; BITMAP_BYTES_MAX] = [0; BITMAP_BYTES_MAX];

impl Op<'_> {
    /// Keeps free inodes near `parent` that lie beside each other: one at least. `NoInodes` also if there are some, but
    /// with what was on the device before in the part of the inode table that is not in use.
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

    /// Keeps free inodes of a group that is held.
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
        // A group without a bitmap has none made for what may come to nothing.
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
            let damage = guard.corrupt("inode bitmap", "no free inode though the count says so");
            return Err(damage.into());
        };
        // Inodes before a used one count as written, and of a run some may never be.
        let is_zeroed = guard.desc.flags.contains(GroupFlags::INODE_ZEROED);
        if !is_zeroed && first + RUN > count.saturating_sub(guard.desc.itable_unused) {
            return Ok(None);
        }
        group.reserved.keep(first, mask, volume.block_size());
        Ok(Some(InodeRun::new(volume.geometry.ino_of(guard.number(), first), mask)))
    }

    /// Marks an inode used that was kept for a file.
    pub(crate) fn take_reserved(&mut self, ino: Ino) -> Outcome<()> {
        let volume = &self.fs.volume;
        let (group, index) = volume.geometry.place_of(ino).ok_or(Error::NoInodes)?;
        let at = self.hold(group)?;
        let guard = &mut self.group_guards[at];
        let id = guard.inode_bitmap(volume, &mut self.txn)?;
        let range = index..index + 1;
        if bitmap::find_free(Bits::plain(self.txn.data(id)), index, index + 1).is_none() {
            let damage = guard.corrupt("inode bitmap", "an inode that was kept is in use");
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
