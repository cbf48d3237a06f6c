//! Common part of growing and shrinking: adjusts the metadata of groups that stay, then writes all superblocks and
//! descriptors.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::Result;
use zerocopy::IntoBytes;

use super::commit::{Commits, Copies, too_many, write_ahead};
use super::draft::{ChangedBlocks, Draft};
use super::groups::{DescriptorTable, no_room_in};
use super::reserved;
use crate::alloc::bitmap;
use crate::format::address::{Block, Group};
use crate::format::features::Incompat;
use crate::format::group::GroupFlags;
use crate::format::superblock::{RawSuperblock, STATE_VALID};
use crate::params::Params;

/// Adjusts the groups that exist before and after to the new size: bits past the end, and blocks that descriptors no
/// longer need.
pub(super) fn adjust_kept(
    draft: &mut Draft,
    old: &Params,
    new: &Params,
    groups: &mut DescriptorTable,
) -> Result<()> {
    let unused = reserved::bring_up_to_date(draft, old, new, groups)?;
    let kept = old.geometry.groups_count.min(new.geometry.groups_count);
    let mut freed = metadata_of_gone(old, new, groups);
    if let Some(block) = unused {
        freed.entry(old.geometry.group_of(block).0).or_default().push(block.0..block.0 + 1);
    }
    let system = groups.system(new);
    let whole = u64::from(new.geometry.cluster_blocks());
    for group in (0..kept).map(Group) {
        let (before, after) =
            (old.geometry.base_metadata(group), new.geometry.base_metadata(group));
        let clusters = (old.geometry.clusters_in(group), new.geometry.clusters_in(group));
        if after.start < before.start || after.end > before.end {
            return Err(no_room_in(group));
        }
        let freed = freed.entry(group.0).or_default();
        freed.push(after.end.0..before.end.0);
        // The last group always has an initialised bitmap.
        let is_last = group.0 + 1 == new.geometry.groups_count;
        let lacks = is_last && groups.get(group).flags.contains(GroupFlags::BLOCK_UNINIT);
        if clusters.0 == clusters.1 && freed.iter().all(Range::is_empty) && !lacks {
            continue;
        }
        let mut bits = groups.block_bitmap(draft, old, group)?;
        bitmap::set(&mut bits, 0, clusters.1..clusters.0.max(clusters.1));
        bitmap::clear(&mut bits, 0, clusters.0..clusters.1.max(clusters.0));
        for block in freed.iter().cloned().flatten().map(Block) {
            let bit = new.geometry.bit_of(block);
            let is_kept = system.overlaps(new.geometry.cluster_start(block), whole);
            if !is_kept && bit < clusters.1 {
                bitmap::clear(&mut bits, 0, bit..bit + 1);
            }
        }
        groups.put_block_bitmap(draft, new, group, bits)?;
    }
    Ok(())
}

/// Returns the metadata of removed groups that is stored in groups that stay, by the latter.
fn metadata_of_gone(
    old: &Params,
    new: &Params,
    groups: &DescriptorTable,
) -> BTreeMap<u32, Vec<Range<u64>>> {
    let end = new.geometry.blocks_count;
    let table = u64::from(old.geometry.itable_blocks());
    let mut found: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    for group in (new.geometry.groups_count..old.geometry.groups_count).map(Group) {
        let desc = groups.get(group);
        let parts = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, table)];
        for block in parts.into_iter().flat_map(|(start, len)| start.0..start.0 + len) {
            if block < end {
                let group = new.geometry.group_of(Block(block));
                found.entry(group.0).or_default().push(block..block + 1);
            }
        }
    }
    found
}

/// Writes the new size. First writes the blocks from `from` on, which nothing refers to yet; then, atomically, all
/// blocks that define the size; then their copies, or with them if there is room.
///
/// # Errors
/// If the device fails; `Unsupported` if the journal does not have enough room.
pub(super) fn write_size(
    device: &Arc<dyn BlockDevice>,
    mut draft: Draft,
    new: &Params,
    groups: &mut DescriptorTable,
    from: Block,
) -> Result<()> {
    groups.put_table(&mut draft, new)?;
    let (clusters, inodes) = groups.totals();
    let mut raw = new.sb.raw.clone();
    new.set_counts(&mut raw, clusters, inodes);
    raw.seal();
    let (place, range) = new.superblock_place();
    draft.edit(place, range.start, raw.as_bytes())?;
    let mut copies = superblock_copies(new, &raw);
    let first = copies.keys().next().copied();
    for (block, bytes) in &mut copies {
        let mut whole = draft.read(Block(*block))?;
        whole[..bytes.len()].copy_from_slice(bytes);
        *bytes = whole;
    }
    copies.extend(groups.table_copies(new));
    let mut now = draft.take();
    let mut ahead = now.split_off(&from.0);
    ahead.append(&mut copies.split_off(&from.0));
    let first = first.and_then(|block| copies.remove_entry(&block)).into_iter().collect();
    let mut commits = Commits::of(device.clone())?;
    let written =
        write_all(&mut commits, device, new, (now, ahead), Copies { others: copies, first });
    let closed = commits.close();
    written.and(closed)
}

/// Writes the blocks that define the size, and those `ahead` of them, as [`write_size`] describes.
fn write_all(
    commits: &mut Commits,
    device: &Arc<dyn BlockDevice>,
    new: &Params,
    (now, ahead): (ChangedBlocks, ChangedBlocks),
    copies: Copies,
) -> Result<()> {
    if let Some(room) = commits.capacity()?.filter(|room| now.len() > *room) {
        return Err(too_many(now.len(), room));
    }
    write_ahead(&**device, new.block_size(), &ahead)?;
    commits.commit_with_copies(now, copies)
}

/// Returns the copies of the superblock.
fn superblock_copies(new: &Params, raw: &RawSuperblock) -> BTreeMap<u64, Vec<u8>> {
    let mut copies = BTreeMap::new();
    for group in new.geometry.groups().skip(1) {
        let Some(place) = new.geometry.superblock_of(group) else { continue };
        let mut copy = raw.clone();
        let mut features = copy.features();
        features.incompat.remove(Incompat::RECOVER);
        copy.set_features(&features);
        copy.block_group_nr = (group.0 as u16).into();
        copy.state = (copy.state.get() & !STATE_VALID).into();
        copy.seal();
        copies.insert(place.0, copy.as_bytes().to_vec());
    }
    copies
}
