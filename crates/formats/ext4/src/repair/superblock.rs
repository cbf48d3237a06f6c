//! Repairs the primary superblock: with a new checksum, from a copy, or field by field.

use disk::BlockDevice;
use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::image::step;
use crate::alloc::groups::{Groups, Trust};
use crate::check::codes::SUPERBLOCK;
use crate::format::address::Group;
use crate::format::extent::ExtentNode;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode;
use crate::format::superblock::{
    CREATOR_OS_LINUX, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, Superblock,
};
use crate::open::superblock_candidates::{
    alone, better, descriptor, merged, parse, read_block, read_raw, repaired, root, score,
};
use crate::open::superblock_copy::{Copy, SuperblockPlace};
use crate::params::read_superblock;

/// Ensures that there is a valid superblock.
///
/// # Errors
/// `Unsupported` for unknown features; `Corrupt` if there is nothing to restore it from.
pub(super) fn ensure(staging: &Staging) -> Result<()> {
    restore(staging)?;
    for correct in [with_extents, with_creator] {
        let sb = read_superblock(staging)?;
        if let Some((raw, what)) = correct(staging, &sb) {
            write(staging, &raw, Action::new(what))?;
        }
    }
    Ok(())
}

/// Restores a superblock that is damaged or does not match the image.
fn restore(staging: &Staging) -> Result<()> {
    let damage = match read_superblock(staging) {
        Ok(sb) => return settle(staging, &sb),
        Err(Error::Corrupt(damage)) => damage,
        Err(error) => return Err(error),
    };
    let Some((raw, what)) = repaired(staging) else { return Err(damage.into()) };
    let action = Action::about(&Finding::of_damage(SUPERBLOCK, &damage), what);
    write(staging, &raw, action)
}

/// Replaces the primary superblock by the copy that the caller specifies, unless both describe the same file system.
/// Returns the finding that the step repairs.
///
/// # Errors
/// `Corrupt` if there is no valid superblock. If the device fails.
pub fn take_superblock(staging: &Staging, place: SuperblockPlace) -> Result<Option<Finding>> {
    let copy = Copy::named(staging, place)?;
    let primary = read_raw(staging).filter(|primary| primary.magic == MAGIC);
    let raw = primary.as_ref().map_or_else(|| alone(copy.raw()), |now| merged(copy.raw(), now));
    let is_same = |now: &RawSuperblock| identity(now) == identity(&raw);
    if read_superblock(staging).is_ok() && primary.as_ref().is_some_and(is_same) {
        return Ok(None);
    }
    let block = place.block;
    let finding = match read_superblock(staging) {
        Err(Error::Corrupt(damage)) => Finding::of_damage(SUPERBLOCK, &damage),
        _ => Finding::new(SUPERBLOCK).detail(format!("it differs from the copy in block {block}")),
    };
    let what =
        format!("The superblock is restored from the backup in block {block}, as requested.");
    write(staging, &raw, Action::about(&finding, what))?;
    Ok(Some(finding))
}

pub(super) fn write(staging: &Staging, raw: &RawSuperblock, action: Action) -> Result<()> {
    step(staging, || {
        staging.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(vec![action])
    })
}

/// Returns a superblock with the feature `extents`, if it lacks the feature but the root directory has an extent tree.
fn with_extents(device: &dyn BlockDevice, sb: &Superblock) -> Option<(RawSuperblock, String)> {
    if sb.features.incompat(Incompat::EXTENTS) || sb.raw.rev_level == 0 {
        return None;
    }
    let geometry = Geometry::new(sb);
    let desc = descriptor(device, &geometry, sb, Group(0))?;
    let (inode, is_sealed) = root(device, sb, &geometry, &desc)?;
    let has_tree = inode.is_dir()
        && inode.has_flag(inode::flags::EXTENTS)
        && ExtentNode::parse(inode.i_block(), None).is_ok_and(|node| !node.is_empty());
    if !has_tree || sb.features.metadata_csum() && !is_sealed {
        return None;
    }
    let mut raw = sb.raw.clone();
    let mut features = raw.features();
    features.incompat.insert(Incompat::EXTENTS);
    raw.set_features(&features);
    raw.seal();
    let what = "The feature extents is turned on, because the root directory has an extent tree.";
    Some((raw, what.into()))
}

/// Returns a superblock that names Linux as creator, if it names the Hurd but has features that the Hurd does not
/// support. Otherwise counts of changes would be positions of translators.
fn with_creator(_: &dyn BlockDevice, sb: &Superblock) -> Option<(RawSuperblock, String)> {
    let is_possible = !sb.features.metadata_csum() && !sb.features.incompat(Incompat::EA_INODE);
    if !sb.is_of_hurd() || is_possible {
        return None;
    }
    let mut raw = sb.raw.clone();
    raw.creator_os = CREATOR_OS_LINUX.into();
    raw.seal();
    let what = "The creator of the superblock is set to Linux, because the Hurd does not support the features.";
    Some((raw, what.into()))
}

/// Replaces a readable superblock that does not match the image: by its copy, or by a variant with one field that fits
/// better.
fn settle(staging: &Staging, sb: &Superblock) -> Result<()> {
    let Some(copy) = Copy::find(staging) else {
        let other = better(&sb.raw, staging).or_else(|| with_whole_device(staging, sb));
        return match other {
            Some((raw, what)) => write(staging, &raw, Action::new(what)),
            None => Ok(()),
        };
    };
    prefer_copy(staging, sb, &copy)
}

/// Returns a superblock that covers the whole device, if this one covers less and the last bitmap matches the device.
fn with_whole_device(device: &dyn BlockDevice, sb: &Superblock) -> Option<(RawSuperblock, String)> {
    let blocks = device.len() >> sb.block_size_log;
    if blocks == sb.blocks_count {
        return None;
    }
    let mut raw = sb.raw.clone();
    (raw.blocks_count_lo, raw.blocks_count_hi) =
        ((blocks as u32).into(), ((blocks >> 32) as u32).into());
    raw.seal();
    let other = parse(&raw, device).filter(|other| other.groups_count == sb.groups_count)?;
    let is_padded = |sb: &Superblock| is_padded(device, sb).unwrap_or(false);
    let what = "The block count of the superblock is set to that of the device, which the bitmaps confirm.";
    (is_padded(&other) && !is_padded(sb)).then(|| (raw, what.into()))
}

/// Returns whether the padding of the last group's block bitmap starts at the end of the file system.
fn is_padded(device: &dyn BlockDevice, sb: &Superblock) -> Option<bool> {
    let geometry = Geometry::new(sb);
    let last = Group(geometry.groups_count - 1);
    let desc = descriptor(device, &geometry, sb, last)?;
    let bitmap = read_block(device, &geometry, desc.block_bitmap)?;
    let is_set = |bit: u32| bitmap[bit as usize / 8] >> (bit % 8) & 1 == 1;
    Some((geometry.clusters_in(last)..geometry.block_size() * 8).all(is_set))
}

/// Replaces a readable superblock by a copy if the image matches the copy better.
fn prefer_copy(staging: &Staging, sb: &Superblock, copy: &Copy) -> Result<()> {
    let is_fine = Groups::read(staging, sb, &Geometry::new(sb), Trust::Checksums).is_ok();
    let raw = merged(copy.raw(), &sb.raw);
    let Some(other) = parse(&raw, staging) else { return Ok(()) };
    let differs = identity(&other.raw) != identity(&sb.raw);
    if !differs || is_fine && score(staging, sb) >= score(staging, &other) {
        return Ok(());
    }
    if score(staging, &other) <= score(staging, sb) {
        return Ok(());
    }
    let what = format!(
        "The superblock is restored from the backup in group {}, which matches the image better.",
        copy.group()
    );
    write(staging, &raw, Action::new(what))
}

/// Returns the fields that do not change while a file system is in use.
fn identity(raw: &RawSuperblock) -> Vec<u8> {
    let mut raw = raw.clone();
    let mut features = raw.features();
    features.incompat.remove(Incompat::RECOVER | Incompat::EXTENTS);
    features.compat.remove(Compat::EXT_ATTR);
    features
        .ro_compat
        .remove(RoCompat::LARGE_FILE | RoCompat::DIR_NLINK | RoCompat::ORPHAN_PRESENT);
    raw.set_features(&features);
    let bytes = raw.as_bytes();
    let mut list = Vec::new();
    for range in [0..8, 0x14..0x2c, 0x4c..0x50, 0x54..0x5a, 0x5c..0x78, 0xfe..0x100, 0x150..0x154] {
        list.extend_from_slice(&bytes[range]);
    }
    list.extend_from_slice(&raw.checksum_seed.get().to_le_bytes());
    list.extend_from_slice(&raw.first_meta_bg.get().to_le_bytes());
    list
}
