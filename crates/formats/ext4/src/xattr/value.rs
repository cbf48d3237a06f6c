//! Attribute values in separate inodes (`ea_inode`): creation, reference counts and freeing.
//!
//! Such an inode is a regular file with the flag `EA_INODE`, one link and no name. Its reference count is stored in
//! `i_ctime` (high half) and `i_version` (low half), the hash of the value in the seconds of `i_atime`. Each inode that
//! has the attribute also counts the space of the value. New values are never shared; references to values that a
//! kernel shared are maintained.

use engine::locks::MutexGuard;
use operations::Outcome;
use vfs::{Error, FileType, Ino, Result};

use super::plan::{ValueRef, value_refs};
use crate::Ext4Core;
use crate::format::address::FileBlock;
use crate::format::features::Incompat;
use crate::format::inode::{Time, flags};
use crate::format::xattr::{Area, value_hash};
use crate::inode::Handle;
use crate::op::{Op, ValueReferences};
use crate::xattr;

/// Permissions that the kernel gives such inodes.
const PERMISSIONS: u16 = 0o600;

/// Guard that allows changing the reference counts of value inodes.
pub(crate) struct ValueInodes<'a>(
    #[expect(dead_code, reason = "held until dropped")] MutexGuard<'a, ()>,
);

impl Ext4Core {
    /// Locks the reference counts of value inodes if attributes of one of `handles` refer to any. The caller holds the
    /// locks of these inodes and has not started the operation. One call must name all inodes whose attributes the
    /// operation may change or release. Returns `None` if no guard is needed.
    pub(crate) fn attributes_guard(&self, handles: &[&Handle]) -> Result<Option<ValueInodes<'_>>> {
        if !self.volume.sb.features.incompat(Incompat::EA_INODE) {
            return Ok(None);
        }
        for handle in handles {
            if self.refers_to_values(handle)? {
                return Ok(Some(ValueInodes(self.value_inodes.lock())));
            }
        }
        Ok(None)
    }

    /// Returns the number of attribute values of an inode that are in separate inodes.
    ///
    /// # Errors
    /// `Corrupt` for damaged attributes; read errors.
    pub(crate) fn count_values(&self, handle: &Handle) -> Result<usize> {
        if !self.volume.sb.features.incompat(Incompat::EA_INODE) {
            return Ok(0);
        }
        let tail = xattr::slot_tail(self, handle)?;
        let slot = xattr::parse_slot_area(handle, &tail)?;
        let block = xattr::block(self, handle)?;
        let in_slot = slot.map_or(0, |area| value_refs(area).count());
        Ok(in_slot + block.map_or(0, |block| value_refs(Area::in_block(&block)).count()))
    }

    pub(crate) fn refers_to_values(&self, handle: &Handle) -> Result<bool> {
        let tail = xattr::slot_tail(self, handle)?;
        let slot = xattr::parse_slot_area(handle, &tail)?;
        if slot.is_some_and(|area| value_refs(area).next().is_some()) {
            return Ok(true);
        }
        let block = xattr::block(self, handle)?;
        Ok(block.is_some_and(|block| value_refs(Area::in_block(&block)).next().is_some()))
    }

    /// Reads a value inode that may be changed, and its reference count.
    fn load_counted(&self, referrer: &Handle, value: ValueRef) -> Result<ValueReferences> {
        let handle = xattr::load_value_inode(self, value.ino, value.size)?;
        let bad = |problem| Err(handle.corrupt("extended attribute inode", problem));
        if handle.inode.file_type() != Some(FileType::Regular) {
            return bad("it is not a regular file");
        }
        if handle.inode.file_acl() != 0 {
            return bad("it has extended attributes itself");
        }
        let lustre = xattr::refers_back(&handle, referrer);
        let count = if lustre { 1 } else { handle.inode.value_refcount() };
        if count == 0 {
            return bad("an attribute refers to it, but its reference count is 0");
        }
        Ok(ValueReferences { handle, count })
    }
}

impl Op<'_> {
    /// Notes for the quotas how many attribute values in separate inodes move to new owners, together with `handle`.
    pub(crate) fn note_values(&mut self, handle: &Handle) -> Outcome<()> {
        let counts = self.usage.quota().is_some();
        if counts && self.fs.volume.sb.features.incompat(Incompat::EA_INODE) {
            self.usage.count_values(handle.ino(), self.fs.count_values(handle)?);
        }
        Ok(())
    }

    /// Returns the number of clusters that a value of `size` bytes adds to each inode that has it.
    pub(super) fn value_clusters(&self, size: u32) -> u32 {
        self.value_blocks(size).div_ceil(self.fs.volume.geometry.cluster_blocks())
    }

    /// Returns the number of blocks of a value of `size` bytes in a separate inode.
    fn value_blocks(&self, size: u32) -> u32 {
        size.div_ceil(self.fs.volume.geometry.block_size())
    }

    /// Stores a value in a new inode near `referrer`, with one reference, and adds its space to `referrer`. Returns the
    /// inode number.
    pub(super) fn create_value(&mut self, referrer: &mut Handle, value: &[u8]) -> Outcome<u32> {
        let mut handle = self.allocate_inode(referrer, false)?;
        let number = u32::try_from(handle.ino().0).map_err(|_| Error::NoInodes)?;
        let time = referrer.inode.time(Time::Change);
        let inode = &mut handle.inode;
        inode.set_mode(FileType::Regular.mode_bits() | PERMISSIONS);
        inode.set_uid(referrer.inode.uid());
        inode.set_gid(referrer.inode.gid());
        inode.set_links_count(1);
        inode.set_flag(flags::EA_INODE, true);
        inode.set_time(Time::Modify, time);
        inode.set_crtime(time);
        inode.set_size(value.len() as u64);
        inode.set_value_refcount(1);
        inode.set_value_hash(value_hash(self.fs.volume.sb.checksum_seed, value));
        self.fs.init_map(&mut handle);
        let blocks = self.value_blocks(value.len() as u32);
        self.fill_hole(&mut handle, FileBlock(0), blocks, false)?;
        self.write_value(&handle, value)?;
        self.add_clusters(referrer, self.value_clusters(value.len() as u32))?;
        self.stage_new(handle);
        Ok(number)
    }

    /// Writes a value to the blocks of its inode, directly to the device. No reader sees it before the operation is
    /// durable.
    fn write_value(&mut self, handle: &Handle, value: &[u8]) -> Outcome<()> {
        let block_size = self.fs.volume.block_size();
        let mut bytes = vec![0; block_size];
        for (number, part) in (0..).zip(value.chunks(block_size)) {
            let missing = || handle.corrupt("block map", "a new block is missing from the map");
            let block = self.find_block(handle, FileBlock(number))?.ok_or_else(missing)?;
            bytes[..part.len()].copy_from_slice(part);
            bytes[part.len()..].fill(0);
            let at = self.fs.volume.geometry.byte_of(block);
            self.fs.engine.device().write_at(at, &bytes).map_err(Error::Device)?;
        }
        Ok(())
    }

    /// Notes that each of `values` loses a reference from `referrer`.
    pub(super) fn subtract_references(
        &mut self,
        _held: &ValueInodes<'_>,
        referrer: &Handle,
        values: &[ValueRef],
    ) -> Outcome<()> {
        for &value in values {
            let counted = self.counted(referrer, value)?;
            let Some(left) = counted.count.checked_sub(1) else {
                let problem = "it has more references than counted";
                return Err(counted.handle.corrupt("extended attribute inode", problem).into());
            };
            counted.count = left;
        }
        Ok(())
    }

    /// Notes that each of `values` gains a reference.
    pub(super) fn add_references(
        &mut self,
        _held: &ValueInodes<'_>,
        referrer: &Handle,
        values: &[ValueRef],
    ) -> Outcome<()> {
        for &value in values {
            let counted = self.counted(referrer, value)?;
            counted.count = counted.count.checked_add(1).ok_or(Error::TooManyLinks)?;
        }
        Ok(())
    }

    /// Returns the noted count of a value inode, initially its current count.
    fn counted(&mut self, referrer: &Handle, value: ValueRef) -> Outcome<&mut ValueReferences> {
        let ino = Ino(value.ino.into());
        let at = match self.counted_values.iter().position(|c| c.handle.ino() == ino) {
            Some(at) => at,
            None => {
                self.counted_values.push(self.fs.load_counted(referrer, value)?);
                self.counted_values.len() - 1
            }
        };
        Ok(&mut self.counted_values[at])
    }

    /// Stages the noted counts and frees value inodes without references.
    pub(crate) fn store_counted_values(&mut self) -> Outcome<()> {
        for ValueReferences { mut handle, count } in std::mem::take(&mut self.counted_values) {
            if count > 0 {
                handle.inode.set_value_refcount(count);
                self.stage(handle);
            } else {
                self.free_value(&mut handle)?;
                self.free_inode(handle);
            }
        }
        Ok(())
    }

    /// Frees all blocks of a value inode.
    fn free_value(&mut self, value: &mut Handle) -> Outcome<()> {
        // Twice the number of data blocks: an extent tree has no more nodes than one per data block.
        let mut budget = 2 * self.value_blocks(value.inode.size() as u32) + 16;
        if self.remove_blocks(value, 0..u32::MAX, &mut budget)? {
            return Ok(());
        }
        Err(value.corrupt("extended attribute inode", "more blocks than its value needs").into())
    }
}
