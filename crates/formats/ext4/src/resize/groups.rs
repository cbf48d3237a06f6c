//! Groups of a file system during a resize: descriptors, bitmaps, and all copies of the table.

use std::collections::BTreeMap;

use vfs::{Error, Result};

use super::draft::Draft;
use crate::alloc::bitmap;
use crate::alloc::system::SystemZone;
use crate::format::address::{Block, Group};
use crate::format::group::{
    GroupDescriptor, GroupFlags, block_bitmap_checksum, inode_bitmap_checksum,
};
use crate::params::Params;

/// Descriptors of all groups.
pub(super) struct DescriptorTable {
    descriptors: Vec<GroupDescriptor>,
    /// The table as it was read, to keep unknown fields of descriptors.
    table: Vec<u8>,
}

impl DescriptorTable {
    /// Reads the table.
    ///
    /// # Errors
    /// If the device fails or a descriptor is damaged.
    pub(super) fn read(draft: &Draft, params: &Params) -> Result<Self> {
        let geometry = &params.geometry;
        let mut table = Vec::new();
        for index in 0..geometry.gdt_blocks() {
            table.extend(draft.read(geometry.gdt_block(index))?);
        }
        let size = usize::from(geometry.desc_size);
        let slots = geometry.groups().zip(table.chunks_exact(size));
        let descriptors = slots
            .map(|(group, bytes)| GroupDescriptor::parse(bytes, &params.sb, group))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { descriptors, table })
    }

    pub(super) fn get(&self, group: Group) -> &GroupDescriptor {
        &self.descriptors[group.0 as usize]
    }

    pub(super) fn get_mut(&mut self, group: Group) -> &mut GroupDescriptor {
        &mut self.descriptors[group.0 as usize]
    }

    /// Adds groups at the end, or drops removed ones.
    pub(super) fn resize(&mut self, params: &Params, added: &[GroupDescriptor]) {
        let geometry = &params.geometry;
        let kept = self.descriptors.len().min(geometry.groups_count as usize);
        // Bytes after the last descriptor of a block may belong to former groups.
        self.table.truncate(kept * usize::from(geometry.desc_size));
        self.table.resize(geometry.gdt_blocks() as usize * geometry.block_size() as usize, 0);
        self.descriptors.extend_from_slice(added);
        self.descriptors.truncate(geometry.groups_count as usize);
    }

    /// Returns the free clusters and free inodes of all groups.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.descriptors.iter().fold((0, 0), |(clusters, inodes), desc| {
            (clusters + u64::from(desc.free_blocks), inodes + u64::from(desc.free_inodes))
        })
    }

    /// Returns the metadata blocks of all groups.
    pub(super) fn system(&self, params: &Params) -> SystemZone {
        SystemZone::of(&params.geometry, |group| self.descriptors.get(group.0 as usize).copied())
    }

    /// Returns a group's block bitmap, generated if it is uninitialised.
    ///
    /// # Errors
    /// If the device fails or the bitmap is damaged.
    pub(super) fn block_bitmap(
        &self,
        draft: &Draft,
        params: &Params,
        group: Group,
    ) -> Result<Vec<u8>> {
        let desc = self.get(group);
        if params.sb.features.group_csum() && desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(own_bitmap(params, desc, group));
        }
        let bytes = draft.read(desc.block_bitmap)?;
        desc.check_block_bitmap(&bytes, &params.sb, group)?;
        Ok(bytes)
    }

    /// Writes a block bitmap to the draft and updates the descriptor.
    pub(super) fn put_block_bitmap(
        &mut self,
        draft: &mut Draft,
        params: &Params,
        group: Group,
        bits: Vec<u8>,
    ) -> Result<()> {
        let clusters = params.geometry.clusters_in(group);
        let desc = self.get_mut(group);
        desc.free_blocks = count_free(&bits, clusters);
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        desc.block_bitmap_csum = if params.checksums {
            truncated(params, block_bitmap_checksum(&bits, &params.sb))
        } else {
            desc.block_bitmap_csum
        };
        draft.update(desc.block_bitmap, bits)
    }

    /// Returns a group's inode bitmap.
    ///
    /// # Errors
    /// If the device fails or the bitmap is damaged.
    pub(super) fn inode_bitmap(
        &self,
        draft: &Draft,
        params: &Params,
        group: Group,
    ) -> Result<Vec<u8>> {
        let desc = self.get(group);
        if params.sb.features.group_csum() && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(empty_inode_bitmap(params));
        }
        let bytes = draft.read(desc.inode_bitmap)?;
        desc.check_inode_bitmap(&bytes, &params.sb, group)?;
        Ok(bytes)
    }

    /// Writes an inode bitmap to the draft and its checksum to the descriptor.
    pub(super) fn put_inode_bitmap(
        &mut self,
        draft: &mut Draft,
        params: &Params,
        group: Group,
        bits: Vec<u8>,
    ) -> Result<()> {
        let per_group = params.geometry.inodes_per_group;
        let desc = self.get_mut(group);
        desc.free_inodes = count_free(&bits, per_group);
        if params.checksums {
            desc.inode_bitmap_csum = truncated(params, inode_bitmap_checksum(&bits, &params.sb));
        }
        draft.update(desc.inode_bitmap, bits)
    }

    /// Returns the whole table with checksums.
    fn sealed_table(&mut self, params: &Params) -> &[u8] {
        let size = usize::from(params.geometry.desc_size);
        let slots = self.descriptors.iter().zip(self.table.chunks_exact_mut(size));
        for (number, (desc, slot)) in (0..).zip(slots) {
            desc.write(slot, &params.sb, Group(number));
        }
        &self.table
    }

    /// Writes the primary table to the draft.
    pub(super) fn put_table(&mut self, draft: &mut Draft, params: &Params) -> Result<()> {
        let geometry = &params.geometry;
        let block_size = geometry.block_size() as usize;
        let table = self.sealed_table(params);
        for (index, bytes) in (0..geometry.gdt_blocks()).zip(table.chunks_exact(block_size)) {
            draft.update(geometry.gdt_block(index), bytes.to_vec())?;
        }
        Ok(())
    }

    /// Returns the blocks of all copies of the table except the primary one.
    pub(super) fn table_copies(&mut self, params: &Params) -> BTreeMap<u64, Vec<u8>> {
        let geometry = &params.geometry;
        let block_size = geometry.block_size() as usize;
        let primary: Vec<Block> =
            (0..geometry.gdt_blocks()).map(|index| geometry.gdt_block(index)).collect();
        let table = self.sealed_table(params);
        let mut copies = BTreeMap::new();
        for group in geometry.groups() {
            let (part, place) = geometry.gdt_copy_in(group);
            for (nth, index) in part.enumerate() {
                let block = place.plus(nth as u64);
                if primary[index as usize] != block {
                    let start = index as usize * block_size;
                    copies.insert(block.0, table[start..start + block_size].to_vec());
                }
            }
        }
        copies
    }
}

/// Reduces a bitmap's checksum to the bits that a descriptor stores.
fn truncated(params: &Params, checksum: u32) -> u32 {
    if params.sb.desc_size >= 64 { checksum } else { checksum & 0xffff }
}

/// Returns the bitmap of a group without inodes in use.
pub(super) fn empty_inode_bitmap(params: &Params) -> Vec<u8> {
    let bits = 8 * params.geometry.block_size();
    let mut bytes = vec![0; params.block_size()];
    bitmap::set(&mut bytes, 0, params.geometry.inodes_per_group..bits);
    bytes
}

/// Returns the bitmap of a group that contains only its own metadata.
pub(super) fn own_bitmap(params: &Params, desc: &GroupDescriptor, group: Group) -> Vec<u8> {
    let geometry = &params.geometry;
    let base = geometry.base_metadata(group);
    let table = u64::from(geometry.itable_blocks());
    let own = [
        base.start.0..base.end.0,
        desc.block_bitmap.0..desc.block_bitmap.0 + 1,
        desc.inode_bitmap.0..desc.inode_bitmap.0 + 1,
        desc.inode_table.0..desc.inode_table.0 + table,
    ];
    let mut bits = padded(params, group);
    own.into_iter().for_each(|run| set_blocks(&mut bits, params, group, run));
    bits
}

/// Returns the bitmap of an empty group. Only the bits past its end are set.
pub(super) fn padded(params: &Params, group: Group) -> Vec<u8> {
    let geometry = &params.geometry;
    let mut bits = vec![0; params.block_size()];
    bitmap::set(&mut bits, 0, geometry.clusters_in(group)..8 * geometry.block_size());
    bits
}

/// Sets the bits of a group's clusters that contain blocks of `run`.
pub(super) fn set_blocks(
    bits: &mut [u8],
    params: &Params,
    group: Group,
    run: std::ops::Range<u64>,
) {
    let geometry = &params.geometry;
    let first = geometry.first_block(group).0;
    let end = first + u64::from(geometry.blocks_in(group));
    let (start, end) = (run.start.max(first), run.end.min(end));
    if start < end {
        let clusters = geometry.bit_of(Block(start))..geometry.bit_of(Block(end - 1)) + 1;
        bitmap::set(bits, 0, clusters);
    }
}

/// Counts the clear bits before `len`.
pub(super) fn count_free(bits: &[u8], len: u32) -> u32 {
    let whole = len as usize / 8;
    let used: u32 = bits[..whole].iter().map(|byte| byte.count_ones()).sum();
    let rest = bits.get(whole).map_or(0, |byte| byte & ((1 << (len % 8)) - 1) as u8);
    len - used - rest.count_ones()
}

/// Returns the error for an existing group without room for the metadata of the new size.
pub(super) fn no_room_in(group: Group) -> Error {
    Error::unsupported(
        format!("more metadata blocks for the existing group {group}"),
        "create a new image with diskwright convert",
    )
}
