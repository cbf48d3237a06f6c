//! Access to single bits of bitmaps, on the device of a closed file system.

use std::ops::Range;

use disk::BlockDevice;
use vfs::{Error, Ino, Result};
use zerocopy::IntoBytes;

use crate::alloc::bitmap::{self, Bits};
use crate::alloc::guard::initial_block_bitmap;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::params::{Params, read_superblock};

/// Bitmaps of a file system that is not open for writing.
pub struct Bitmaps<'d> {
    device: &'d dyn BlockDevice,
    params: Params,
}

/// Selects one of a group's two bitmaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Blocks,
    Inodes,
}

impl<'d> Bitmaps<'d> {
    /// Reads the superblock.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` for a superblock that cannot be used; `Device`.
    pub fn open(device: &'d dyn BlockDevice) -> Result<Self> {
        Ok(Self { device, params: Params::of(read_superblock(device)?) })
    }

    /// Returns the geometry of the file system.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.params.geometry
    }

    /// Returns whether a block is marked in use.
    ///
    /// # Errors
    /// `NotFound` if the block does not exist; `Corrupt` for a damaged descriptor; `Device`.
    pub fn is_block_used(&self, block: Block) -> Result<bool> {
        let (group, bit) = self.place_of_block(block)?;
        self.is_set(group, Which::Blocks, bit)
    }

    /// Returns whether an inode is marked in use.
    ///
    /// # Errors
    /// `NotFound` if the inode does not exist; `Corrupt` for a damaged descriptor; `Device`.
    pub fn is_inode_used(&self, ino: Ino) -> Result<bool> {
        let (group, bit) = self.geometry().place_of(ino).ok_or(Error::NotFound)?;
        self.is_set(group, Which::Inodes, bit)
    }

    /// Marks a block as used or free and updates the counts of free blocks. Returns whether this changed the bitmap.
    ///
    /// # Errors
    /// Like [`Self::is_block_used`].
    pub fn mark_block(&mut self, block: Block, is_used: bool) -> Result<bool> {
        let (group, bit) = self.place_of_block(block)?;
        self.mark(group, Which::Blocks, bit, (is_used, false))
    }

    /// Marks an inode as used or free and updates the counts of free inodes and, with `is_dir`, of directories. Returns
    /// whether this changed the bitmap.
    ///
    /// # Errors
    /// Like [`Self::is_inode_used`].
    pub fn mark_inode(&mut self, ino: Ino, is_used: bool, is_dir: bool) -> Result<bool> {
        let (group, bit) = self.geometry().place_of(ino).ok_or(Error::NotFound)?;
        self.mark(group, Which::Inodes, bit, (is_used, is_dir))
    }

    /// Returns the first free blocks from `goal` on, at most `count`. The search wraps around at the end.
    ///
    /// # Errors
    /// `Corrupt` for a damaged descriptor; `Device`.
    pub fn free_blocks(&self, goal: Block, count: usize) -> Result<Vec<Block>> {
        let geometry = *self.geometry();
        let first = geometry.first_block(Group(0));
        let goal = if geometry.contains(goal, 1) { goal } else { first };
        let home = geometry.group_of(goal);
        let mut found = Vec::new();
        for step in 0..=geometry.groups_count {
            let group = Group((home.0 + step) % geometry.groups_count);
            let bits = self.read(&self.descriptor(group)?, group, Which::Blocks)?;
            let start = if step == 0 { geometry.bit_of(goal) } else { 0 };
            let mut at = start;
            while let Some(bit) =
                bitmap::find_free(Bits::plain(&bits), at, geometry.clusters_in(group))
            {
                let block =
                    geometry.first_block(group).plus(u64::from(bit) << geometry.cluster_blocks_log);
                if found.len() == count || step == geometry.groups_count && block >= goal {
                    return Ok(found);
                }
                found.push(block);
                at = bit + 1;
            }
        }
        Ok(found)
    }

    /// Returns the first free inode from the group of `near` on that is not reserved; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` for a damaged descriptor; `Device`.
    pub fn free_inode(&self, near: Ino) -> Result<Option<Ino>> {
        let geometry = *self.geometry();
        let (home, _) = geometry.place_of(near).ok_or(Error::NotFound)?;
        let reserved = self.params.sb.first_ino.saturating_sub(1);
        for step in 0..geometry.groups_count {
            let group = Group((home.0 + step) % geometry.groups_count);
            let bits = self.read(&self.descriptor(group)?, group, Which::Inodes)?;
            let from = if group.0 == 0 { reserved } else { 0 };
            let free = bitmap::find_free(Bits::plain(&bits), from, geometry.inodes_per_group);
            if let Some(index) = free {
                return Ok(Some(geometry.ino_of(group, index)));
            }
        }
        Ok(None)
    }

    fn place_of_block(&self, block: Block) -> Result<(Group, u32)> {
        let geometry = self.geometry();
        let is_inside =
            block.0 >= geometry.first_block(Group(0)).0 && block.0 < geometry.blocks_count;
        if !is_inside {
            return Err(Error::NotFound);
        }
        Ok((geometry.group_of(block), geometry.bit_of(block)))
    }

    fn descriptor_bytes(&self, group: Group) -> Result<(u64, Vec<u8>)> {
        let (block, offset) = self.geometry().descriptor_position(group);
        let at = self.geometry().byte_of(block) + offset as u64;
        let mut bytes = vec![0; usize::from(self.geometry().desc_size)];
        self.device.read_at(at, &mut bytes).map_err(Error::Device)?;
        Ok((at, bytes))
    }

    fn descriptor(&self, group: Group) -> Result<GroupDescriptor> {
        let (_, bytes) = self.descriptor_bytes(group)?;
        Ok(GroupDescriptor::parse(&bytes, &self.params.sb, group)?)
    }

    /// Returns a bitmap's block. For an uninitialised bitmap, returns the contents that mkfs would write.
    fn read(&self, desc: &GroupDescriptor, group: Group, which: Which) -> Result<Vec<u8>> {
        let params = &self.params;
        let has_uninit = params.sb.features.group_csum();
        let is_uninit = |flag| has_uninit && desc.flags.contains(flag);
        let mut bytes = vec![0; params.block_size()];
        let place = match which {
            Which::Blocks if is_uninit(GroupFlags::BLOCK_UNINIT) => {
                initial_block_bitmap(params, group, desc, &mut bytes);
                return Ok(bytes);
            }
            Which::Inodes if is_uninit(GroupFlags::INODE_UNINIT) => {
                let bits = params.block_size() as u32 * 8;
                bitmap::set(&mut bytes, 0, params.geometry.inodes_per_group..bits);
                return Ok(bytes);
            }
            Which::Blocks => desc.block_bitmap,
            Which::Inodes => desc.inode_bitmap,
        };
        let at = params.geometry.byte_of(place);
        self.device.read_at(at, &mut bytes).map_err(Error::Device)?;
        Ok(bytes)
    }

    fn is_set(&self, group: Group, which: Which, bit: u32) -> Result<bool> {
        let bits = self.read(&self.descriptor(group)?, group, which)?;
        Ok(bitmap::all_set(&bits, bit..bit + 1))
    }

    fn mark(
        &mut self,
        group: Group,
        which: Which,
        bit: u32,
        (is_used, is_dir): (bool, bool),
    ) -> Result<bool> {
        let mut desc = self.descriptor(group)?;
        let mut bits = self.read(&desc, group, which)?;
        let range: Range<u32> = bit..bit + 1;
        if bitmap::all_set(&bits, range.clone()) == is_used {
            return Ok(false);
        }
        let change = if is_used { bitmap::set } else { bitmap::clear };
        change(&mut bits, 0, range);
        let count = |free: u32| if is_used { free.saturating_sub(1) } else { free + 1 };
        let place = match which {
            Which::Blocks => {
                desc.flags.remove(GroupFlags::BLOCK_UNINIT);
                desc.free_blocks = count(desc.free_blocks);
                desc.block_bitmap_csum = block_bitmap_checksum(&bits, &self.params.sb);
                desc.block_bitmap
            }
            Which::Inodes => {
                desc.flags.remove(GroupFlags::INODE_UNINIT);
                desc.free_inodes = count(desc.free_inodes);
                if is_dir {
                    let dirs = desc.used_dirs;
                    desc.used_dirs = if is_used { dirs + 1 } else { dirs.saturating_sub(1) };
                }
                let behind = self.geometry().inodes_per_group - bit - 1;
                desc.itable_unused = desc.itable_unused.min(behind);
                desc.inode_bitmap_csum = inode_bitmap_checksum(&bits, &self.params.sb);
                desc.inode_bitmap
            }
        };
        self.write(self.geometry().byte_of(place), &bits)?;
        let (at, mut bytes) = self.descriptor_bytes(group)?;
        desc.write(&mut bytes, &self.params.sb, group);
        self.write(at, &bytes)?;
        self.count_in_superblock(which, is_used)?;
        Ok(true)
    }

    fn count_in_superblock(&mut self, which: Which, is_used: bool) -> Result<()> {
        let cluster = u64::from(self.geometry().cluster_blocks());
        let raw = &mut self.params.sb.raw;
        match which {
            Which::Blocks => {
                let free = raw.free_blocks();
                let free = if is_used { free.saturating_sub(cluster) } else { free + cluster };
                raw.set_free_blocks(free);
            }
            Which::Inodes => {
                let free = raw.free_inodes_count.get();
                let free = if is_used { free.saturating_sub(1) } else { free.saturating_add(1) };
                raw.free_inodes_count = free.into();
            }
        }
        raw.seal();
        let raw = self.params.sb.raw.clone();
        self.write(SUPERBLOCK_OFFSET, raw.as_bytes())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(at, bytes).map_err(Error::Device)
    }
}
