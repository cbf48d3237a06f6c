//! The inodes that fast commits change.

use operations::Outcome;
use vfs::{FileType, Ino};

use super::{Replay, damage};
use crate::alloc::bitmap;
use crate::alloc::guard::Bitmaps as _;
use crate::format::checksum::inode_seed;
use crate::format::extent::ExtentNode;
use crate::format::inode::{BlockOwner, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, Inode, ROOT_INO, flags};
use crate::inode;
use crate::inode::Handle;
use crate::orphan::Inactivation;

/// Offset of `i_block` in an inode.
const I_BLOCK_OFFSET: usize = 0x28;
/// Offset of the generation, which follows it.
const GENERATION_OFFSET: usize = I_BLOCK_OFFSET + I_BLOCK_SIZE;
/// An inode after the changes so far.
pub(super) struct InodeUpdate {
    pub(super) handle: Handle,
    /// The inode on the device; `None` for a new one.
    before: Option<Handle>,
    /// New contents after the fixed fields, if they change.
    tail: Option<Vec<u8>>,
}

impl InodeUpdate {
    pub(super) fn is_new(&self) -> bool {
        self.before.is_none()
    }
}

impl Replay<'_, '_> {
    /// Takes out an inode in use. The caller returns it with [`Self::put`].
    pub(super) fn take(&mut self, ino: Ino) -> Outcome<InodeUpdate> {
        if let Some(work) = self.inodes.remove(&ino) {
            return Ok(work);
        }
        let first = u64::from(self.op.fs.volume.sb.first_ino);
        if ino.0 < first && ino != ROOT_INO {
            return Err(damage("it changes a reserved inode", ino).into());
        }
        let handle = inode::load_unlinked(self.op.fs, ino).map_err(|e| {
            if matches!(e, vfs::Error::NotFound) { damage("no such inode", ino) } else { e }
        })?;
        if !self.is_taken(ino)? {
            return Err(damage("it changes an inode that is not in use", ino).into());
        }
        Ok(InodeUpdate { handle, before: Some(handle), tail: None })
    }

    /// Takes out a directory in use.
    pub(super) fn take_dir(&mut self, ino: Ino) -> Outcome<InodeUpdate> {
        let work = self.take(ino)?;
        if work.handle.inode.is_dir() && work.handle.inode.links_count() > 0 {
            return Ok(work);
        }
        Err(damage("it changes entries of an inode that is not a directory", ino).into())
    }

    pub(super) fn put(&mut self, work: InodeUpdate) {
        self.inodes.insert(work.handle.ino(), work);
    }

    fn is_taken(&mut self, ino: Ino) -> Outcome<bool> {
        let outside = || damage("it changes an inode that does not exist", ino);
        let volume = &self.op.fs.volume;
        let (group, index) = volume.geometry.place_of(ino).ok_or_else(outside)?;
        let at = self.op.hold(group)?;
        let id = self.op.group_guards[at].inode_bitmap(volume, &mut self.op.txn)?;
        Ok(bitmap::all_set(self.op.txn.data(id), index..index + 1))
    }

    /// Sets the fields of an inode from a tag, except its block map and block count. Other tags describe the map.
    pub(super) fn set_inode(&mut self, ino: Ino, raw: &[u8]) -> Outcome<()> {
        let mut work = self.inode_for(ino, &Inode::from_slot(raw))?;
        let old = work.handle.inode;
        let volume = &self.op.fs.volume;
        let block_size = volume.geometry.block_size();
        let mut slot = vec![0; usize::from(volume.geometry.inode_size)];
        let fields = old.as_bytes();
        slot[..fields.len()].copy_from_slice(fields);
        slot[..I_BLOCK_OFFSET].copy_from_slice(&raw[..I_BLOCK_OFFSET]);
        slot[GENERATION_OFFSET..raw.len()].copy_from_slice(&raw[GENERATION_OFFSET..]);
        let mut inode = Inode::from_slot(&slot);
        let tail = GOOD_OLD_INODE_SIZE + usize::from(inode.extra_isize());
        if tail > slot.len() || !inode.extra_isize().is_multiple_of(4) {
            return Err(damage("an inode with an invalid extra_isize", ino).into());
        }
        if !work.is_new() && inode.file_type() != old.file_type() {
            return Err(damage("it changes the type of an inode", ino).into());
        }
        inode.set_blocks_512(old.blocks_512(block_size), block_size);
        work.handle.inode = inode;
        work.handle.owner =
            BlockOwner { ino, seed: inode_seed(volume.sb.checksum_seed, ino, inode.generation()) };
        let maps = matches!(work.handle.file_type()?, FileType::Regular | FileType::Directory);
        let is_mapped = maps && !inode.has_flag(flags::INLINE_DATA);
        let raw_block = &raw[I_BLOCK_OFFSET..GENERATION_OFFSET];
        if inode.has_flag(flags::EXTENTS) {
            if ExtentNode::parse(old.i_block(), None).is_err() {
                self.op.fs.init_map(&mut work.handle);
            }
        } else if !is_mapped {
            work.handle.inode.i_block_mut().copy_from_slice(raw_block);
        }
        if inode.has_flag(flags::INLINE_DATA) && raw.len() == slot.len() {
            work.tail = raw.get(tail..).map(<[u8]>::to_vec);
        }
        self.put(work);
        Ok(())
    }

    /// Returns the inode for a tag: the one in use, or a new one. An inode without names and with another generation
    /// was freed in between.
    fn inode_for(&mut self, ino: Ino, new: &Inode) -> Outcome<InodeUpdate> {
        if self.inodes.contains_key(&ino) || self.is_taken(ino)? {
            let work = self.take(ino)?;
            if work.handle.inode.generation() == new.generation() {
                return Ok(work);
            }
            if work.handle.inode.links_count() > 0 {
                return Err(damage("it sets another inode than the tag says", ino).into());
            }
            self.empty(work)?;
        }
        self.new_inode(ino, new)
    }

    /// Frees an inode and its contents at once.
    fn empty(&mut self, mut work: InodeUpdate) -> Outcome<()> {
        let mut budget = u32::MAX;
        self.op.remove_blocks(&mut work.handle, 0..u32::MAX, &mut budget)?;
        self.op.release_attributes(&mut work.handle, None)?;
        self.op.free_noted_blocks()?;
        self.count_inode(&work.handle, false)
    }

    fn new_inode(&mut self, ino: Ino, new: &Inode) -> Outcome<InodeUpdate> {
        let volume = &self.op.fs.volume;
        let outside = || damage("it creates an inode that does not exist", ino);
        let (group, index) = volume.geometry.place_of(ino).ok_or_else(outside)?;
        if ino.0 < u64::from(volume.sb.first_ino) {
            return Err(damage("it creates a reserved inode", ino).into());
        }
        let table = volume.groups.inode_table(group);
        let (block, offset) = volume.geometry.inode_position(table, index);
        let inode = Inode::zeroed(usize::from(volume.geometry.inode_size));
        let seed = inode_seed(volume.sb.checksum_seed, ino, new.generation());
        let mut handle = Handle { owner: BlockOwner { ino, seed }, inode, block, offset };
        handle.inode.set_mode(new.mode());
        self.count_inode(&handle, true)?;
        Ok(InodeUpdate { handle, before: None, tail: None })
    }

    /// Marks an inode as in use or free.
    fn count_inode(&mut self, handle: &Handle, taken: bool) -> Outcome<()> {
        let volume = &self.op.fs.volume;
        let ino = handle.ino();
        let outside = || damage("it creates an inode that does not exist", ino);
        let (group, index) = volume.geometry.place_of(ino).ok_or_else(outside)?;
        let at = self.op.hold(group)?;
        let guard = &mut self.op.group_guards[at];
        let id = guard.inode_bitmap(volume, &mut self.op.txn)?;
        let range = index..index + 1;
        let window = bitmap::bytes_of(&range);
        let base = window.start as u32 * 8;
        let bits = self.op.txn.edit(id, window);
        let desc = &mut guard.desc;
        let is_dir = u32::from(handle.inode.is_dir());
        let wrong = || damage("it contradicts the counts of the group", ino);
        if taken {
            bitmap::set(bits, base, range);
            desc.free_inodes = desc.free_inodes.checked_sub(1).ok_or_else(wrong)?;
            desc.used_dirs += is_dir;
            let unused = volume.geometry.inodes_per_group - index - 1;
            desc.itable_unused = desc.itable_unused.min(unused);
        } else {
            bitmap::clear(bits, base, range);
            desc.free_inodes += 1;
            desc.used_dirs = desc.used_dirs.checked_sub(is_dir).ok_or_else(wrong)?;
        }
        Ok(())
    }

    /// Writes an inode at the commit.
    pub(super) fn stage(&mut self, work: InodeUpdate) -> Outcome<()> {
        match (work.before, work.tail) {
            (None, tail) => self.op.stage_new_with_tail(work.handle, tail),
            (Some(_), Some(tail)) => self.op.stage_with_tail(work.handle, tail),
            (Some(before), None) => self.op.stage_dir(work.handle, &before)?,
        }
        Ok(())
    }

    /// Ends an inode without names.
    pub(super) fn abandon(&mut self, work: InodeUpdate) -> Outcome<Inactivation> {
        if work.is_new() {
            // Nothing of it is on the device, so it needs no orphan record.
            let handle = work.handle;
            self.empty(work)?;
            self.op.stage_gone(handle);
            return Ok(Inactivation::Freed);
        }
        self.op.abandon(work.handle)
    }
}
