//! Structural rules for blocks that are about to be written, independent of checksums. A fault found here is a bug of
//! this program.

use engine::{Changed, Corruption, Tag};
use vfs::Ino;

use super::{BLOCK_BITMAP, INODE_BITMAP};
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::extent::{self, ExtentNode};
use crate::format::geometry::Geometry;
use crate::format::group::GroupDescriptor;
use crate::format::htree::IndexKind;
use crate::format::inode::{self, Inode};
use crate::format::{bitmap, dirent, htree, indirect, orphan, quota, slot, superblock, xattr};
use crate::kind::BlockKind;
use crate::volume::Volume;

/// Verifies a block by its kind. Rules that [`super::verify`] does not check apply only to the parts that changed.
pub(super) fn verify(
    volume: &Volume,
    tag: Tag,
    block: Block,
    changed: Changed,
    data: &[u8],
) -> Result<(), Corruption> {
    let (geometry, sealed) = (&volume.geometry, volume.checksums);
    let of_inode = |c: Corruption| c.of_inode(tag.owner);
    let is_odd = || volume.oddities.contains(block);
    match BlockKind::from_tag(tag) {
        BlockKind::DirectoryLeaf => {
            dirent::verify_structure(data, geometry.inodes_count, sealed).map_err(of_inode)
        }
        BlockKind::HtreeRoot => {
            htree::verify_structure(data, IndexKind::Root, sealed).map_err(of_inode)
        }
        BlockKind::HtreeNode => {
            htree::verify_structure(data, IndexKind::Node, sealed).map_err(of_inode)
        }
        BlockKind::ExtentNode => verify_extents(volume, changed, data).map_err(of_inode),
        BlockKind::Indirect => indirect::verify(data, geometry.blocks_count).map_err(of_inode),
        BlockKind::Xattr => xattr::verify_block_structure(data),
        BlockKind::InodeTable => verify_inodes(volume, block, changed, data),
        BlockKind::Descriptors => verify_descriptors(volume, block, changed, data),
        BlockKind::BlockBitmap | BlockKind::InodeBitmap if is_odd() => Ok(()),
        BlockKind::BlockBitmap | BlockKind::InodeBitmap => verify_bitmap(volume, tag, data),
        BlockKind::Quota if is_odd() => Ok(()),
        BlockKind::Quota => verify_quota(volume, data, Some(changed)),
        BlockKind::Orphan => {
            orphan::verify_structure(data, block, geometry.inodes_count).map_err(of_inode)
        }
        BlockKind::Superblock => {
            let sb = superblock::verify_structure(&data[volume.superblock_place().1])?;
            if Geometry::new(&sb) == *geometry {
                return Ok(());
            }
            Err(Corruption::new("superblock", "it describes another file system"))
        }
    }
}

fn verify_extents(volume: &Volume, changed: Changed, data: &[u8]) -> Result<(), Corruption> {
    let node = ExtentNode::parse(data, None)?;
    changed
        .rows(extent::entry_range(0).start, extent::ENTRY_SIZE, node.len())
        .try_for_each(|entries| node.check_places(entries, volume.geometry.blocks_count))
}

/// Verifies the slots that changed. Slots that were never used may contain anything.
fn verify_inodes(
    volume: &Volume,
    block: Block,
    changed: Changed,
    data: &[u8],
) -> Result<(), Corruption> {
    let size = usize::from(volume.geometry.inode_size);
    for row in changed.rows(0, size, data.len() / size).flatten() {
        let bytes = &data[row * size..(row + 1) * size];
        let Err(fault) = slot::verify_structure(&volume.geometry, bytes) else { continue };
        let ino = inode_at(volume, block, row);
        // If a piece contains several slots, perhaps only another slot changed. Slots written here have a valid
        // checksum.
        if changed.piece() > size && !is_sealed(volume, ino, bytes) {
            continue;
        }
        return Err(ino.map_or(fault.clone(), |ino| fault.of_inode(ino.0)));
    }
    Ok(())
}

fn is_sealed(volume: &Volume, ino: Option<Ino>, slot: &[u8]) -> bool {
    let Some(ino) = ino.filter(|_| volume.checksums) else { return false };
    let generation = Inode::from_slot(slot).generation();
    let (computed, stored) =
        inode::slot_checksums(inode_seed(volume.sb.checksum_seed, ino, generation), slot);
    computed == stored
}

/// Returns the inode of a slot. Used for messages only, because it searches all groups.
fn inode_at(volume: &Volume, block: Block, row: usize) -> Option<Ino> {
    let geometry = &volume.geometry;
    let blocks = u64::from(geometry.itable_blocks());
    geometry.groups().find_map(|group| {
        let index = block.0.checked_sub(volume.groups.inode_table(group).0)?;
        let in_group = index as u32 * geometry.inodes_per_block() + row as u32;
        (index < blocks).then(|| geometry.ino_of(group, in_group))
    })
}

/// Verifies the descriptors that changed: with the rules for reading, and that inode tables have not moved.
fn verify_descriptors(
    volume: &Volume,
    block: Block,
    changed: Changed,
    data: &[u8],
) -> Result<(), Corruption> {
    let geometry = &volume.geometry;
    let Some(index) = geometry.gdt_index(block) else {
        return Err(Corruption::new("group descriptor", "a block outside the descriptor table"));
    };
    let first = index * geometry.desc_per_block();
    let count = geometry.desc_per_block().min(geometry.groups_count - first);
    let size = usize::from(geometry.desc_size);
    for row in changed.rows(0, size, count as usize).flatten() {
        let group = Group(first + row as u32);
        let bytes = &data[row * size..(row + 1) * size];
        let found = GroupDescriptor::parse_unsealed(bytes, &volume.sb, group)?.inode_table;
        let table = volume.groups.inode_table(group);
        if found != table {
            let damage = Corruption::new("group descriptor", "the inode table was moved");
            return Err(damage.in_group(group.0.into()).mismatch(table, found));
        }
    }
    Ok(())
}

/// Checks that bits that are never free are set: in a block bitmap those of metadata at fixed positions, and in both
/// kinds those past the end.
pub(super) fn verify_bitmap(volume: &Volume, tag: Tag, data: &[u8]) -> Result<(), Corruption> {
    let geometry = &volume.geometry;
    let group = Group(tag.owner as u32);
    let verified = if BlockKind::from_tag(tag) == BlockKind::BlockBitmap {
        let first = geometry.first_block(group);
        let end = first.plus(u64::from(geometry.blocks_in(group)));
        let taken = volume.system_zone.within(first..end);
        let bits = taken.map(|blocks| {
            geometry.bit_of(blocks.start)..geometry.bit_of(Block(blocks.end.0 - 1)) + 1
        });
        bitmap::verify_structure(BLOCK_BITMAP, data, geometry.clusters_in(group), bits)
    } else {
        bitmap::verify_structure(INODE_BITMAP, data, geometry.inodes_per_group, [])
    };
    verified.map_err(|c| c.in_group(tag.owner))
}

/// Verifies blocks of a quota file: those in `changed`, or all.
pub(super) fn verify_quota(
    volume: &Volume,
    data: &[u8],
    changed: Option<Changed>,
) -> Result<(), Corruption> {
    let blocks_max =
        volume.geometry.blocks_count << (volume.geometry.block_size_log - quota::BLOCK_SIZE_LOG);
    let changed = changed.unwrap_or(Changed::whole(data.len()));
    changed
        .rows(0, quota::BLOCK_SIZE, data.len() / quota::BLOCK_SIZE)
        .flatten()
        .map(|row| &data[row * quota::BLOCK_SIZE..(row + 1) * quota::BLOCK_SIZE])
        .try_for_each(|block| quota::verify_structure(block, blocks_max))
}
