//! Writes a planned file system: only blocks that are not zero, in runs, the superblock last.

use disk::BlockDevice;
use vfs::{Error, Ino, Result};
use zerocopy::IntoBytes;

use super::layout::Layout;
use super::system_files;
use crate::alloc::bitmap;
use crate::format::address::{Block, Group};
use crate::format::checksum;
use crate::format::group::{self, GroupDescriptor, GroupFlags};
use crate::format::inode;
use crate::format::superblock::SUPERBLOCK_OFFSET;

/// Maximum number of bytes collected for one write. Larger writes are not faster, and touching new memory takes time.
const RUN_BYTES_MAX: usize = 256 << 10;

/// Previous contents of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousContents {
    /// All zeros, as in a new sparse file.
    Zeros,
    /// Unknown. Blocks that must read as zeros are cleared.
    Unknown,
}

/// Writes a planned file system. The caller flushes the device.
///
/// # Errors
/// `Invalid` if the device is too short for the plan, `Device` if it fails.
pub fn format(device: &dyn BlockDevice, layout: &Layout, before: PreviousContents) -> Result<()> {
    let geometry = &layout.geometry;
    let end = geometry.byte_of(Block(geometry.blocks_count));
    if device.len() < end {
        return Err(Error::Invalid("the device is shorter than the planned file system"));
    }
    if before == PreviousContents::Unknown {
        clear(device, layout)?;
    }
    let mut writer = JoiningWriter { device, start: 0, pending: Vec::new() };
    let descriptors = write_bitmaps(&mut writer, layout)?;
    write_inodes(&mut writer, layout)?;
    let mut block = vec![0; geometry.block_size() as usize];
    for (place, held) in &layout.files.blocks {
        held.fill(*place, &mut block);
        writer.put(geometry.byte_of(*place), &block)?;
    }
    write_descriptors(&mut writer, layout, &descriptors)?;
    write_superblocks(&mut writer, layout)?;
    writer.finish()
}

/// Clears all blocks in use, and the space before the file system.
fn clear(device: &dyn BlockDevice, layout: &Layout) -> Result<()> {
    let geometry = &layout.geometry;
    device.zero_range(0, u64::from(geometry.block_size())).map_err(Error::Device)?;
    for run in layout.space.taken_runs(0..geometry.blocks_count) {
        let (start, end) = (geometry.byte_of(Block(run.start)), geometry.byte_of(Block(run.end)));
        device.zero_range(start, end - start).map_err(Error::Device)?;
    }
    Ok(())
}

/// Joins adjacent pieces into one write.
struct JoiningWriter<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    pending: Vec<u8>,
}

impl JoiningWriter<'_> {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let adjoins = self.start + self.pending.len() as u64 == offset;
        if !adjoins || self.pending.len() + bytes.len() > RUN_BYTES_MAX {
            self.flush()?;
            self.start = offset;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.device.write_at(self.start, &self.pending).map_err(Error::Device)?;
            self.pending.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()
    }
}

/// Writes the initialised bitmaps. Returns the descriptors with the bitmaps' checksums.
fn write_bitmaps(writer: &mut JoiningWriter<'_>, layout: &Layout) -> Result<Vec<GroupDescriptor>> {
    let geometry = &layout.geometry;
    let mut descriptors = layout.groups.clone();
    let mut bits = vec![0; geometry.block_size() as usize];
    for (number, descriptor) in (0..).zip(&mut descriptors) {
        if !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            fill_block_bitmap(&mut bits, layout, Group(number));
            if layout.sb.features.metadata_csum() {
                descriptor.block_bitmap_csum = group::block_bitmap_checksum(&bits, &layout.sb);
            }
            writer.put(geometry.byte_of(descriptor.block_bitmap), &bits)?;
        }
    }
    for (number, descriptor) in (0..).zip(&mut descriptors) {
        if !descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            let used = if number == 0 { layout.files.inodes_used } else { 0 };
            let all = 8 * geometry.block_size();
            bits.fill(0);
            bitmap::set(&mut bits, 0, 0..used);
            bitmap::set(&mut bits, 0, geometry.inodes_per_group..all);
            if layout.sb.features.metadata_csum() {
                descriptor.inode_bitmap_csum = group::inode_bitmap_checksum(&bits, &layout.sb);
            }
            writer.put(geometry.byte_of(descriptor.inode_bitmap), &bits)?;
        }
    }
    Ok(descriptors)
}

/// Sets the bits of clusters in use and of those past the group's end.
fn fill_block_bitmap(bits: &mut [u8], layout: &Layout, group: Group) {
    let geometry = &layout.geometry;
    let blocks = layout.blocks_of(group);
    let start = blocks.start;
    bits.fill(0);
    // A bit represents a cluster, and clusters are allocated whole.
    let bit = |block: u64| ((block - start) >> geometry.cluster_blocks_log) as u32;
    for run in layout.space.taken_runs(blocks.clone()) {
        bitmap::set(bits, 0, bit(run.start)..bit(run.end));
    }
    bitmap::set(bits, 0, bit(blocks.end)..8 * geometry.block_size());
}

/// Writes the blocks of the first inode table that contain inodes.
fn write_inodes(writer: &mut JoiningWriter<'_>, layout: &Layout) -> Result<()> {
    let geometry = &layout.geometry;
    let size = usize::from(geometry.inode_size);
    let blocks = layout.files.inodes_used.div_ceil(geometry.inodes_per_block());
    let mut table = vec![0; (blocks * geometry.block_size()) as usize];
    for (ino, inode) in &layout.files.inodes {
        let Some((_, index)) = geometry.place_of(*ino) else { continue };
        let slot = &mut table[index as usize * size..][..size];
        let bytes = inode.as_bytes();
        slot[..bytes.len()].copy_from_slice(bytes);
    }
    if let Some(seed) = system_files::checksum_seed(&layout.sb) {
        // Reserved inodes that are not in use have a checksum, too. All have generation 0.
        for (ino, slot) in (1..=u64::from(layout.files.inodes_used)).zip(table.chunks_mut(size)) {
            inode::seal_slot(checksum::inode_seed(seed, Ino(ino), 0), slot);
        }
    }
    let start = layout.groups.first().map_or(Block(0), |group| group.inode_table);
    writer.put(geometry.byte_of(start), &table)
}

/// Writes every copy of the descriptor table.
fn write_descriptors(
    writer: &mut JoiningWriter<'_>,
    layout: &Layout,
    descriptors: &[GroupDescriptor],
) -> Result<()> {
    let geometry = &layout.geometry;
    let block_size = geometry.block_size() as usize;
    let mut table = vec![0; geometry.gdt_blocks() as usize * block_size];
    let slots = table.chunks_exact_mut(usize::from(geometry.desc_size));
    for ((number, descriptor), slot) in (0..).zip(descriptors).zip(slots) {
        descriptor.write(slot, &layout.sb, Group(number));
    }
    for group in geometry.groups() {
        let (part, place) = geometry.gdt_copy_in(group);
        if !part.is_empty() {
            let bytes = part.start as usize * block_size..part.end as usize * block_size;
            writer.put(geometry.byte_of(place), &table[bytes])?;
        }
    }
    Ok(())
}

/// Writes the backups, then the superblock itself. Only the latter is marked as cleanly unmounted.
fn write_superblocks(writer: &mut JoiningWriter<'_>, layout: &Layout) -> Result<()> {
    let geometry = &layout.geometry;
    for group in geometry.groups().skip(1) {
        let Some(place) = geometry.superblock_of(group) else { continue };
        let mut raw = layout.sb.raw.clone();
        raw.block_group_nr = (group.0 as u16).into();
        raw.state = 0.into();
        raw.seal();
        writer.put(geometry.byte_of(place), raw.as_bytes())?;
    }
    writer.put(SUPERBLOCK_OFFSET, layout.sb.raw.as_bytes())
}
