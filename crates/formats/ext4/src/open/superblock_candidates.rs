//! Candidates for a damaged superblock: a copy, or the damaged one with other values in one or two fields. The
//! candidate that fits the image best is chosen. Nothing is written.

use disk::BlockDevice;
use zerocopy::{FromBytes, IntoBytes};

use super::superblock_copy::Copy;
use crate::format::address::{Block, Group};
use crate::format::checksum::crc32c;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::group::GroupDescriptor;
use crate::format::inode::{self, Inode, ROOT_INO};
use crate::format::superblock::{
    MAGIC, RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};

/// Returns a replacement for a damaged superblock, and a sentence about its origin.
pub(crate) fn repaired(device: &dyn BlockDevice) -> Option<(RawSuperblock, String)> {
    let damaged = read_raw(device)?;
    let seems_ours = damaged.magic == MAGIC;
    if let Some(copy) = Copy::find(device) {
        let raw = if seems_ours { merged(copy.raw(), &damaged) } else { alone(copy.raw()) };
        let same = seems_ours && is_same_but_for_checksum(&raw, &damaged);
        let what = if same {
            "The checksum of the superblock is recomputed.".to_owned()
        } else {
            format!("The superblock is restored from the backup in group {}.", copy.group())
        };
        return parse(&raw, device).map(|_| (raw, what));
    }
    if let Some(raw) = corrected(&damaged, device) {
        return Some((
            raw,
            "The superblock field is set to the value that makes the checksum valid.".into(),
        ));
    }
    let mut sealed = damaged.clone();
    sealed.seal();
    if parse(&sealed, device).is_some_and(|sb| score(device, &sb) > 0) {
        let what = "The checksum of the superblock is recomputed.".into();
        return Some(better(&sealed, device).unwrap_or((sealed, what)));
    }
    best_candidate(&damaged, device, 0).or_else(|| best_pair(&damaged, device))
}

/// Returns the candidate with two changed fields that fits the image best. It must lead to a root directory, because
/// some pairs fit a little by chance.
fn best_pair(raw: &RawSuperblock, device: &dyn BlockDevice) -> Option<(RawSuperblock, String)> {
    let first = candidates(raw, device).into_iter();
    let changed = first.filter(|(_, one)| one.as_bytes() != raw.as_bytes());
    let found = changed.filter_map(|(field, one)| {
        let (raw, what) = best_candidate(&one, device, 0)?;
        let sb = parse(&raw, device).filter(|sb| root_points(device, sb) > 0)?;
        let what = format!("{what} So is {field}.");
        Some((score(device, &sb), raw, what))
    });
    let best = found.max_by_key(|(points, ..)| *points)?;
    Some((best.1, best.2))
}

/// Returns another superblock if the root directory is missing at this one's position but exists at the other's.
pub(crate) fn better(
    raw: &RawSuperblock,
    device: &dyn BlockDevice,
) -> Option<(RawSuperblock, String)> {
    let sb = parse(raw, device)?;
    let has_root = |sb: &Superblock| root_points(device, sb) > 0;
    if has_root(&sb) {
        return None;
    }
    let found = best_candidate(raw, device, score(device, &sb))?;
    parse(&found.0, device).filter(has_root).map(|_| found)
}

/// Returns the candidate that fits the image best, and better than `points`.
fn best_candidate(
    raw: &RawSuperblock,
    device: &dyn BlockDevice,
    points: u64,
) -> Option<(RawSuperblock, String)> {
    let mut best = (points, None);
    let before = raw.as_bytes();
    let others = candidates(raw, device);
    for (field, mut raw) in others.into_iter().filter(|(_, raw)| raw.as_bytes() != before) {
        let is_proved = raw.features().metadata_csum() && is_sealed(&raw);
        raw.seal();
        let Some(sb) = parse(&raw, device) else { continue };
        let points = if is_proved { u64::MAX } else { score(device, &sb) };
        if points > best.0 {
            best = (points, Some((field, raw)));
        }
    }
    let (field, raw) = best.1?;
    let what =
        format!("The superblock field {field} is set to the value that matches the other fields.");
    Some((raw, what))
}

/// Maximum number of adjacent flipped bits that count as proof. By chance, the change of a word has sixteen bits; in
/// only one of 30,000 superblocks does any word have two or fewer.
const PROVED_BITS: u32 = 2;

/// Finds the superblock before one of its words was changed: for each word, one value fits the checksum. A candidate
/// counts only if it fits the image better, or if it differs by one or two bits.
fn corrected(damaged: &RawSuperblock, device: &dyn BlockDevice) -> Option<RawSuperblock> {
    if !damaged.features().metadata_csum() {
        return None;
    }
    let points = |raw: &RawSuperblock| parse(raw, device).map_or(0, |sb| score(device, &sb));
    let mut sealed = damaged.clone();
    sealed.seal();
    let syndrome = sealed.checksum.get() ^ damaged.checksum.get();
    let as_it_is = points(&sealed);
    let mut best = ((false, as_it_is), None);
    for at in (0..SUPERBLOCK_SIZE - 4).step_by(4) {
        let Some(change) = word_before(at, syndrome) else { continue };
        let mut raw = damaged.clone();
        for (byte, change) in raw.as_mut_bytes()[at..at + 4].iter_mut().zip(change.to_le_bytes()) {
            *byte ^= change;
        }
        let points = points(&raw);
        let is_proved = change.count_ones() <= PROVED_BITS && points >= as_it_is.max(1);
        if (is_proved, points) > best.0 {
            best = ((is_proved, points), Some(raw));
        }
    }
    best.1
}

/// Returns the change of the word at offset `at` of a superblock that changes its checksum by `syndrome`. The checksum
/// is linear, so this is a system of 32 equations.
fn word_before(at: usize, syndrome: u32) -> Option<u32> {
    let rest = vec![0; SUPERBLOCK_SIZE - 4 - at - 4];
    // Pairs of a change and its effect, reduced so that each effect has a different leading bit.
    let mut rows: Vec<(u32, u32)> = (0..32)
        .map(|bit| {
            let change = 1_u32 << bit;
            (change, crc32c(crc32c(0, &change.to_le_bytes()), &rest))
        })
        .collect();
    let (mut left, mut change) = (syndrome, 0);
    for bit in (0..32).rev() {
        let Some(index) = rows.iter().position(|(_, effect)| effect >> bit & 1 == 1) else {
            continue;
        };
        let pivot = rows.swap_remove(index);
        for row in rows.iter_mut().filter(|row| row.1 >> bit & 1 == 1) {
            *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
        }
        if left >> bit & 1 == 1 {
            (left, change) = (left ^ pivot.1, change ^ pivot.0);
        }
    }
    (left == 0).then_some(change)
}

pub(crate) fn read_raw(device: &dyn BlockDevice) -> Option<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    RawSuperblock::read_from_bytes(&bytes).ok()
}

pub(crate) fn parse(raw: &RawSuperblock, device: &dyn BlockDevice) -> Option<Superblock> {
    Superblock::parse(raw.as_bytes().try_into().ok()?, device.len()).ok()
}

fn is_sealed(raw: &RawSuperblock) -> bool {
    let mut sealed = raw.clone();
    sealed.seal();
    sealed.checksum == raw.checksum
}

fn is_same_but_for_checksum(one: &RawSuperblock, other: &RawSuperblock) -> bool {
    one.as_bytes()[..SUPERBLOCK_SIZE - 4] == other.as_bytes()[..SUPERBLOCK_SIZE - 4]
}

/// Returns a copy as the primary superblock when nothing is known about the latter.
pub(crate) fn alone(copy: &RawSuperblock) -> RawSuperblock {
    let mut raw = copy.clone();
    raw.block_group_nr = 0.into();
    let mut features = raw.features();
    // An empty journal replays nothing, so the flag is harmless.
    features.incompat.set(Incompat::RECOVER, features.compat(Compat::HAS_JOURNAL));
    raw.set_features(&features);
    raw.state = (raw.state.get() | STATE_VALID).into();
    raw.seal();
    raw
}

/// Returns a copy, with the fields that only the primary superblock has.
pub(crate) fn merged(copy: &RawSuperblock, primary: &RawSuperblock) -> RawSuperblock {
    let mut raw = copy.clone();
    raw.block_group_nr = 0.into();
    let mut features = raw.features();
    let has_journal = features.compat(Compat::HAS_JOURNAL);
    features.incompat.set(Incompat::RECOVER, has_journal);
    let now = primary.features();
    features.compat |= now.compat & Compat::EXT_ATTR;
    features.incompat |= now.incompat & Incompat::EXTENTS;
    let later = RoCompat::LARGE_FILE | RoCompat::DIR_NLINK;
    features.ro_compat |= now.ro_compat & later;
    features.ro_compat.set(
        RoCompat::ORPHAN_PRESENT,
        features.compat(Compat::ORPHAN_FILE) && now.ro_compat.contains(RoCompat::ORPHAN_PRESENT),
    );
    raw.set_features(&features);
    let copied = [
        ("reserved blocks", 8..12),
        ("reserved blocks, high", 0x154..0x158),
        ("free counts", 12..20),
        ("times and mounts", 0x2c..0x38),
        ("state and errors", 0x3a..0x3e),
        ("checks", 0x40..0x48),
        ("label and directory", 0x78..0xc8),
        ("last orphan", 0xe8..0xec),
        ("free blocks, high", 0x158..0x15c),
        ("written", 0x178..0x180),
        ("errors and mount options", 0x194..0x240),
        ("high parts of times", 0x274..0x276),
        ("high part of the last check", 0x277..0x278),
    ];
    for (_, range) in copied {
        raw.as_mut_bytes()[range.clone()].copy_from_slice(&primary.as_bytes()[range]);
    }
    raw.state = (raw.state.get() | STATE_VALID).into();
    if raw.last_orphan.get() > raw.inodes_count.get() {
        raw.last_orphan = 0.into();
    }
    raw.seal();
    raw
}

/// Returns variants of the superblock with one field replaced by a plausible value.
fn candidates(
    damaged: &RawSuperblock,
    device: &dyn BlockDevice,
) -> Vec<(&'static str, RawSuperblock)> {
    let mut list = Vec::new();
    let mut add = |field: &'static str, change: &dyn Fn(&mut RawSuperblock)| {
        let mut raw = damaged.clone();
        change(&mut raw);
        list.push((field, raw));
    };
    let (log, per_group) = (damaged.log_block_size.get(), damaged.blocks_per_group.get());
    add("magic", &|raw| raw.magic = MAGIC.into());
    add("rev_level", &|raw| raw.rev_level = 1.into());
    add("checksum_type", &|raw| raw.checksum_type = 1);
    add("first_data_block", &|raw| raw.first_data_block = u32::from(log == 0).into());
    add("log_cluster_size", &|raw| raw.log_cluster_size = log.into());
    // With bigalloc, clusters and blocks per group determine the cluster size.
    if let Some(blocks) = per_group.checked_div(damaged.clusters_per_group.get()) {
        let ratio = blocks.max(1).ilog2();
        add("log_cluster_size", &|raw| raw.log_cluster_size = log.wrapping_add(ratio).into());
    }
    add("clusters_per_group", &|raw| raw.clusters_per_group = per_group.into());
    add("blocks_per_group", &|raw| raw.blocks_per_group = damaged.clusters_per_group);
    add("first_data_block", &|raw| raw.first_data_block = 0.into());
    let ratio = damaged.log_cluster_size.get().saturating_sub(log).min(31);
    let clusters = damaged.clusters_per_group.get();
    add("clusters_per_group", &|raw| raw.clusters_per_group = (per_group >> ratio).into());
    add("blocks_per_group", &|raw| raw.blocks_per_group = (clusters << ratio).into());
    add("first_ino", &|raw| raw.first_ino = 11.into());
    add("first_meta_bg", &|raw| raw.first_meta_bg = 0.into());
    add("reserved_gdt_blocks", &|raw| raw.reserved_gdt_blocks = 0.into());
    for log in 0..=6_u32 {
        add("log_block_size", &|raw| raw.log_block_size = log.into());
    }
    for size in [32_u16, 64, 128, 256, 512, 1024] {
        add("desc_size", &|raw| raw.desc_size = size.into());
        add("inode_size", &|raw| raw.inode_size = size.into());
    }
    if log <= 6 && per_group > 0 {
        let blocks = device.len() >> (10 + log);
        add("blocks_count", &|raw| {
            (raw.blocks_count_lo, raw.blocks_count_hi) =
                ((blocks as u32).into(), ((blocks >> 32) as u32).into());
        });
        add("blocks_count", &|raw| cut_to(raw, blocks));
        add("blocks_count", &|raw| raw.blocks_count_hi = 0.into());
        let low = u64::from(damaged.blocks_count_lo.get());
        let groups = low.saturating_sub(u64::from(log == 0)).div_ceil(per_group.into()) as u32;
        let inodes = damaged.inodes_per_group.get().saturating_mul(groups);
        add("inodes_count", &|raw| raw.inodes_count = inodes.into());
        if let Some(each) = damaged.inodes_count.get().checked_div(groups) {
            add("inodes_per_group", &|raw| raw.inodes_per_group = each.into());
        }
    }
    list
}

/// Reduces a superblock to the groups that fit into `blocks` blocks. The last group must have room for its own
/// structures.
fn cut_to(raw: &mut RawSuperblock, blocks: u64) {
    let log = 10 + raw.log_block_size.get();
    let per_group = u64::from(raw.blocks_per_group.get());
    let first = u64::from(raw.first_data_block.get());
    let had = raw.inodes_count.get().checked_div(raw.inodes_per_group.get()).unwrap_or(0);
    let table = (u64::from(raw.inodes_per_group.get()) * u64::from(raw.inode_size.get())) >> log;
    let descriptors = (u64::from(had) * u64::from(raw.desc_size.get().max(32))) >> log;
    let own = table + descriptors + u64::from(raw.reserved_gdt_blocks.get()) + 8;
    let in_groups = blocks.saturating_sub(first);
    let (whole, rest) = (in_groups / per_group, in_groups % per_group);
    let is_rest_kept = rest >= own || whole == 0;
    let groups = whole + u64::from(is_rest_kept && rest > 0);
    let blocks = if is_rest_kept { blocks } else { first + whole * per_group };
    let Some(groups) = u32::try_from(groups).ok().filter(|groups| *groups < had) else { return };
    (raw.blocks_count_lo, raw.blocks_count_hi) =
        ((blocks as u32).into(), ((blocks >> 32) as u32).into());
    raw.inodes_count = (raw.inodes_per_group.get() * groups).into();
    // Drop backups that no longer exist.
    for backup in &mut raw.backup_bgs {
        if backup.get() >= groups {
            *backup = 0.into();
        }
    }
}

/// Returns a score for how well the image matches a superblock; 0 if nothing matches.
pub(crate) fn score(device: &dyn BlockDevice, sb: &Superblock) -> u64 {
    /// Maximum number of groups to examine.
    const GROUPS_MAX: u32 = 64;
    let geometry = Geometry::new(sb);
    let mut points = 0;
    for group in (0..geometry.groups_count.min(GROUPS_MAX)).map(Group) {
        let (block, offset) = geometry.descriptor_position(group);
        let mut bytes = vec![0; usize::from(geometry.desc_size)];
        let at = geometry.byte_of(block) + offset as u64;
        if device.read_at(at, &mut bytes).is_err() {
            continue;
        }
        let Some(desc) = GroupDescriptor::read(&bytes) else { continue };
        if desc.check_places_in(sb, &geometry, group).is_err() {
            continue;
        }
        let is_sealed = GroupDescriptor::check_sum(&bytes, sb, group).is_ok();
        points += 1 + worth(sb.features.group_csum(), is_sealed);
    }
    // mke2fs creates a multiple of 8 inodes that fill whole blocks.
    let per_group = geometry.inodes_per_group;
    points += u64::from(per_group.is_multiple_of(8));
    points += u64::from(per_group.is_multiple_of(geometry.inodes_per_block()));
    points += u64::from(has_full_padding(device, &geometry, sb).unwrap_or(false));
    points + 8 * root_points(device, sb)
}

/// Returns a group's descriptor if it can be read and its positions are possible.
pub(crate) fn descriptor(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    sb: &Superblock,
    group: Group,
) -> Option<GroupDescriptor> {
    let (block, offset) = geometry.descriptor_position(group);
    let mut bytes = vec![0; usize::from(geometry.desc_size)];
    device.read_at(geometry.byte_of(block) + offset as u64, &mut bytes).ok()?;
    GroupDescriptor::read(&bytes).filter(|desc| desc.check_places(sb).is_ok())
}

pub(crate) fn read_block(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    block: Block,
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; geometry.block_size() as usize];
    device.read_at(geometry.byte_of(block), &mut bytes).ok()?;
    Some(bytes)
}

/// Returns whether the padding of the first group's inode bitmap starts at the expected bit: all bits after the inodes
/// are set, and the last inode's bit is clear.
fn has_full_padding(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    sb: &Superblock,
) -> Option<bool> {
    let desc = descriptor(device, geometry, sb, Group(0))?;
    let bitmap = read_block(device, geometry, desc.inode_bitmap)?;
    let is_set = |bit: u32| bitmap[bit as usize / 8] >> (bit % 8) & 1 == 1;
    let end = geometry.inodes_per_group;
    let all = geometry.block_size() * 8;
    Some(end > 0 && end <= all && !is_set(end - 1) && (end..all).all(is_set))
}

/// Returns a score for how much the inode at the root directory's position looks like one.
fn root_points(device: &dyn BlockDevice, sb: &Superblock) -> u64 {
    let geometry = Geometry::new(sb);
    let desc = descriptor(device, &geometry, sb, Group(0));
    desc.map_or(0, |desc| score_of_root(device, sb, &geometry, &desc))
}

/// Reads the root directory's inode. Also returns whether its checksum is right.
pub(crate) fn root(
    device: &dyn BlockDevice,
    sb: &Superblock,
    geometry: &Geometry,
    desc: &GroupDescriptor,
) -> Option<(Inode, bool)> {
    let (_, index) = geometry.place_of(ROOT_INO)?;
    let (block, offset) = geometry.inode_position(desc.inode_table, index);
    let mut slot = vec![0; usize::from(geometry.inode_size)];
    device.read_at(geometry.byte_of(block) + offset as u64, &mut slot).ok()?;
    let inode = Inode::from_slot(&slot);
    let seed = crate::format::checksum::inode_seed(sb.checksum_seed, ROOT_INO, inode.generation());
    let (computed, stored) = inode::slot_checksums(seed, &slot);
    Some((inode, computed == stored))
}

/// Returns a score for how much the root directory's inode looks like one.
pub(crate) fn score_of_root(
    device: &dyn BlockDevice,
    sb: &Superblock,
    geometry: &Geometry,
    desc: &GroupDescriptor,
) -> u64 {
    let Some((inode, is_sealed)) = root(device, sb, geometry, desc) else { return 0 };
    if !inode.is_dir() || inode.links_count() < 2 || inode.dtime() != 0 {
        return 0;
    }
    1 + worth(sb.features.metadata_csum(), is_sealed)
}

/// Returns the points for a checksum: most for a match, fewer if there is none, zero for a mismatch.
fn worth(has_checksum: bool, matches: bool) -> u64 {
    match (has_checksum, matches) {
        (true, true) => 2,
        (false, _) => 1,
        (true, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_restores_a_changed_word() {
        let mut bytes = [0_u8; SUPERBLOCK_SIZE - 4];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at * 7) as u8;
        }
        let before = crc32c(u32::MAX, &bytes);
        for at in [0, 0x68, SUPERBLOCK_SIZE - 8] {
            let mut damaged = bytes;
            damaged[at + 1] ^= 0x5a;
            damaged[at + 3] ^= 1;
            let change = word_before(at, crc32c(u32::MAX, &damaged) ^ before);
            assert_eq!(change, Some(0x0100_5a00));
        }
    }
}
