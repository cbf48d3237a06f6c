//! The inode of blocks reserved for descriptors (`resize_inode`). Its double indirect block refers to the reserved
//! blocks in group 0, at the index of each in a whole table. Each of those refers to its counterparts in the groups
//! with backups.

use vfs::{Error, Ino, Result};

use super::draft::Draft;
use super::groups::DescriptorTable;
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::features::Compat;
use crate::format::indirect::{self, DIRECT_COUNT};
use crate::format::inode::{self, Inode};
use crate::params::Params;

/// Inode number.
const RESIZE_INO: Ino = Ino(7);
/// Index of the pointer to the double indirect block.
const DOUBLE: usize = DIRECT_COUNT as usize + 1;

/// Adjusts the inode to a new size. Returns its former block if it is no longer needed.
///
/// # Errors
/// If the device fails, or the inode has no double indirect block.
pub(super) fn bring_up_to_date(
    draft: &mut Draft,
    old: &Params,
    new: &Params,
    groups: &DescriptorTable,
) -> Result<Option<Block>> {
    if !old.sb.features.compat(Compat::RESIZE_INODE) {
        return Ok(None);
    }
    let geometry = &new.geometry;
    let Some((_, index)) = geometry.place_of(RESIZE_INO) else { return Ok(None) };
    let (block, offset) = geometry.inode_position(groups.get(Group(0)).inode_table, index);
    let size = usize::from(geometry.inode_size);
    let mut slot = draft.read(block)?[offset..offset + size].to_vec();
    let mut inode = Inode::from_slot(&slot);
    let double = indirect::pointer(&inode.i_block()[..], DOUBLE as u16);
    let unused = if new.sb.features.compat(Compat::RESIZE_INODE) {
        let double = double.filter(|block| geometry.contains(*block, 1)).ok_or_else(|| {
            Error::unsupported(
                "resizing with a resize inode that has no double indirect block",
                "run diskwright repair first",
            )
        })?;
        let kept = write_map(draft, new, double)?;
        // Each of them counts as a whole cluster.
        let cluster = u64::from(geometry.cluster_blocks());
        let units = (1 + kept) * cluster * u64::from(geometry.block_size() / 512);
        inode.set_blocks_512(units, geometry.block_size());
        let count = inode.as_bytes().len().min(slot.len());
        slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
        None
    } else {
        slot.fill(0);
        double
    };
    if new.checksums {
        let generation = Inode::from_slot(&slot).generation();
        inode::seal_slot(inode_seed(new.sb.checksum_seed, RESIZE_INO, generation), &mut slot);
    }
    draft.edit(block, offset, &slot)?;
    Ok(unused)
}

/// Writes the double indirect block and the blocks that it refers to. Returns the number of these blocks and their
/// counterparts.
fn write_map(draft: &mut Draft, params: &Params, double: Block) -> Result<u64> {
    let geometry = &params.geometry;
    let block_size = params.block_size();
    let per_block = (block_size / 4) as u64;
    let group_blocks = u64::from(geometry.blocks_per_group);
    let backups: Vec<u64> = geometry
        .groups()
        .skip(1)
        .filter(|group| geometry.has_superblock(*group))
        .map(|group| u64::from(group.0))
        .collect();
    let kept = u64::from(geometry.reserved_gdt_blocks);
    if backups.len() as u64 > per_block || kept > per_block {
        return Err(Error::unsupported(
            format!("a resize inode for {} groups with backups", backups.len()),
            "turn resize_inode off with tune2fs -O ^resize_inode",
        ));
    }
    let first = u64::from(geometry.gdt_blocks());
    let mut pointers = vec![0; block_size];
    for number in first..first + kept {
        let block = geometry.gdt_block(0).plus(number);
        set_pointer(&mut pointers, (number % per_block) as usize, block);
        let mut bytes = vec![0; block_size];
        for (at, group) in backups.iter().enumerate() {
            set_pointer(&mut bytes, at, block.plus(group * group_blocks));
        }
        draft.update(block, bytes)?;
    }
    draft.update(double, pointers)?;
    Ok(kept * (1 + backups.len() as u64))
}

fn set_pointer(bytes: &mut [u8], at: usize, block: Block) {
    bytes[at * 4..at * 4 + 4].copy_from_slice(&(block.0 as u32).to_le_bytes());
}
