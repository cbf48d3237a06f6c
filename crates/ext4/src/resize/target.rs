//! The superblock of a file system of another size: groups, and where their descriptors lie.
//!
//! Descriptors grow into the blocks that `resize_inode` keeps for them. Beyond these, and where none are kept, they
//! go to the groups that they describe (`meta_bg`), as the kernel does it. Descriptors that are not needed any more
//! leave their blocks to `resize_inode`, or free.

use vfs::{Error, Result};
use zerocopy::IntoBytes;

use crate::format::features::{Compat, Incompat};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock, split};
use crate::params::Params;

/// Blocks that a last group must have beyond its own metadata, or it is left out.
const LAST_GROUP_SLACK: u64 = 50;
/// Most blocks with 32-bit block numbers.
const BLOCKS_MAX_32: u64 = u32::MAX as u64;
/// The advice where a size is not possible.
const SMALLER: &str = "ask for less, or make a new image with convert";

/// The file system with at most `blocks` blocks: fewer, where a last group would be too short to be of use.
/// `device_len` bytes are there for it.
///
/// # Errors
/// `Unsupported` if there is none with so many blocks, `NoSpace` if so few have no room for their own metadata.
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
        // A group that is there already stays as it is, unless it would be cut.
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

/// The file system with exactly so many blocks.
fn exactly(old: &Params, blocks: u64, device_len: u64) -> Result<Params> {
    let sb = &old.sb;
    let first = u64::from(sb.first_data_block);
    if blocks <= first {
        return Err(Error::NoSpace);
    }
    if blocks > BLOCKS_MAX_32 && !sb.features.incompat(Incompat::BIT64) {
        return Err(Error::unsupported(
            format!("{blocks} blocks without the feature 64bit, which allows {BLOCKS_MAX_32}"),
            SMALLER,
        ));
    }
    let groups = (blocks - first).div_ceil(u64::from(sb.blocks_per_group));
    let inodes = u32::try_from(groups * u64::from(sb.inodes_per_group)).map_err(|_| {
        let most = u64::from(u32::MAX) / u64::from(sb.inodes_per_group);
        let most = first + most * u64::from(sb.blocks_per_group);
        Error::unsupported(
            format!("{blocks} blocks, whose groups have more than 2^32 - 1 inodes; {most} blocks are the most"),
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
        // What was right for more blocks is not for so few: inode tables have no room in a group.
        Err(Error::Corrupt(_)) if blocks < old.sb.blocks_count => Err(Error::NoSpace),
        Err(error) => Err(error),
    }
}

/// The groups with backups, of which there are two: the second one is the last group if it was so before, as whoever
/// else changes sizes has it. It is given up where a last group has no room for it, being there already.
fn two_backups(old: &Params, groups: u32) -> [u32; 2] {
    let before = old.geometry.groups_count;
    let [first, second] = old.sb.raw.backup_bgs.map(|group| group.get());
    let second =
        if second > 0 && second + 1 == before && groups > before { groups - 1 } else { second };
    [first, second].map(|group| if group < groups { group } else { 0 })
}

/// Says in the superblock where the descriptors of so many groups lie.
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
                "changing the size with both resize_inode and meta_bg",
                "turn resize_inode off: tune2fs -O ^resize_inode",
            ));
        }
        // With fewer groups than lie before the first meta group, all descriptors are where they always were.
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
