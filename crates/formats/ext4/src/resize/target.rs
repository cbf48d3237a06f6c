//! Superblock of a file system with a new size: groups and the position of their descriptors.
//!
//! Descriptors grow into the blocks that `resize_inode` reserves for them. If these are used up or missing, descriptors
//! go to the groups that they describe (`meta_bg`), as in the kernel. Blocks of descriptors that are no longer needed
//! are returned to `resize_inode` or freed.

use vfs::{Error, Result};
use zerocopy::IntoBytes;

use crate::format::features::{Compat, Incompat};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock, split};
use crate::params::Params;

/// Minimum size of the last group beyond its own metadata, in blocks. A smaller group is omitted.
const LAST_GROUP_SLACK: u64 = 50;
/// Maximum number of blocks with 32-bit block numbers.
const BLOCKS_MAX_32: u64 = u32::MAX as u64;
/// Advice for a size that is not possible.
const SMALLER: &str = "choose a smaller size, or create a new image with diskwright convert";

/// Returns the parameters of a file system with at most `blocks` blocks; it has fewer if a last group would be too
/// short to be useful. The device has `device_len` bytes.
///
/// # Errors
/// `Unsupported` if that many blocks are not possible, `NoSpace` if there is no room for the group metadata.
pub(super) fn target(old: &Params, blocks: u64, device_len: u64) -> Result<Params> {
    let mut blocks = blocks >> old.sb.cluster_blocks_log << old.sb.cluster_blocks_log;
    loop {
        let new = exactly(old, blocks, device_len)?;
        let geometry = &new.geometry;
        let Some(last) = geometry.groups().next_back() else { return Err(Error::NoSpace) };
        let has_room = {
            let base = geometry.base_metadata(last);
            let needed = base.end.0 - base.start.0 + 2 + u64::from(geometry.itable_blocks());
            u64::from(geometry.blocks_in(last)) >= needed + LAST_GROUP_SLACK
        };
        // An existing group stays unless it would be cut.
        let is_as_before = last.0 + 1 == old.geometry.groups_count
            && geometry.blocks_count >= old.geometry.blocks_count;
        let is_whole = geometry.blocks_in(last) == geometry.blocks_per_group;
        if has_room || is_as_before || is_whole {
            return Ok(new);
        }
        if last.0 == 0 {
            return Err(Error::NoSpace);
        }
        blocks = geometry.first_block(last).0;
    }
}

/// Returns the parameters of a file system with exactly `blocks` blocks.
fn exactly(old: &Params, blocks: u64, device_len: u64) -> Result<Params> {
    let sb = &old.sb;
    let first = u64::from(sb.first_data_block);
    if blocks <= first {
        return Err(Error::NoSpace);
    }
    if blocks > BLOCKS_MAX_32 && !sb.features.incompat(Incompat::BIT64) {
        return Err(Error::unsupported(
            format!("{blocks} blocks without the feature 64bit (maximum {BLOCKS_MAX_32})"),
            SMALLER,
        ));
    }
    let groups = (blocks - first).div_ceil(u64::from(sb.blocks_per_group));
    let inodes = u32::try_from(groups * u64::from(sb.inodes_per_group)).map_err(|_| {
        let most = u64::from(u32::MAX) / u64::from(sb.inodes_per_group);
        let most = first + most * u64::from(sb.blocks_per_group);
        Error::unsupported(
            format!(
                "{blocks} blocks, which would have more than 2^32 - 1 inodes (maximum {most} \
                 blocks)"
            ),
            SMALLER,
        )
    })?;
    let mut raw = sb.raw.clone();
    raw.inodes_count = inodes.into();
    (raw.blocks_count_lo, raw.blocks_count_hi) = split(blocks);
    let reserved = u128::from(sb.raw.reserved_blocks()) * u128::from(blocks);
    let reserved = (reserved / u128::from(sb.blocks_count)) as u64;
    (raw.r_blocks_count_lo, raw.r_blocks_count_hi) = split(reserved);
    if sb.features.compat(Compat::SPARSE_SUPER2) {
        raw.backup_bgs = two_backups(old, groups as u32).map(Into::into);
    }
    place_descriptors(&mut raw, old, groups, blocks)?;
    raw.seal();
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(raw.as_bytes());
    match Superblock::parse(&bytes, device_len) {
        Ok(sb) => Ok(Params::of(sb)),
        // The parameters were valid for more blocks, so here the inode tables do not fit into a group.
        Err(Error::Corrupt(_)) if blocks < old.sb.blocks_count => Err(Error::NoSpace),
        Err(error) => Err(error),
    }
}

/// Returns the two groups with backups. The second one stays in the last group if it was there before, as other resize
/// tools do. It is dropped if an existing last group has no room for it.
fn two_backups(old: &Params, groups: u32) -> [u32; 2] {
    let before = old.geometry.groups_count;
    let [first, second] = old.sb.raw.backup_bgs.map(|group| group.get());
    let second =
        if second > 0 && second + 1 == before && groups > before { groups - 1 } else { second };
    [first, second].map(|group| if group < groups { group } else { 0 })
}

/// Sets the position of the descriptors of `groups` groups in the superblock.
fn place_descriptors(
    raw: &mut RawSuperblock,
    old: &Params,
    groups: u64,
    blocks: u64,
) -> Result<()> {
    let geometry = &old.geometry;
    let mut features = old.sb.features;
    let needed = groups.div_ceil(u64::from(geometry.desc_per_block())) as u32;
    let keeps = features.compat(Compat::RESIZE_INODE);
    if features.incompat(Incompat::META_BG) {
        if keeps || geometry.reserved_gdt_blocks > 0 {
            return Err(Error::unsupported(
                "resizing with both resize_inode and meta_bg",
                "turn resize_inode off with tune2fs -O ^resize_inode",
            ));
        }
        // If all groups are before the first meta group, all descriptors are in the classic table.
        if needed <= raw.first_meta_bg.get() {
            features.incompat.remove(Incompat::META_BG);
            raw.first_meta_bg = 0.into();
            raw.set_features(&features);
        }
        return Ok(());
    }
    let there = geometry.gdt_blocks() + geometry.reserved_gdt_blocks;
    let kept = if keeps { there.checked_sub(needed) } else { None };
    if let Some(kept) = kept.filter(|_| blocks <= BLOCKS_MAX_32) {
        let per_block = geometry.block_size() / 4;
        raw.reserved_gdt_blocks = (kept.min(per_block) as u16).into();
        return Ok(());
    }
    features.compat.remove(Compat::RESIZE_INODE);
    raw.reserved_gdt_blocks = 0.into();
    if needed > there {
        if raw.rev_level.get() == 0 {
            return Err(Error::unsupported(
                format!("{needed} blocks of descriptors in a file system of revision 0"),
                SMALLER,
            ));
        }
        features.incompat.insert(Incompat::META_BG);
        raw.first_meta_bg = there.into();
    }
    raw.set_features(&features);
    Ok(())
}
