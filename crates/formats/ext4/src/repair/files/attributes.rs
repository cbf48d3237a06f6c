//! Repairs extended attributes: rewrites those that can be read.

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{FileType, Result};

use super::draft::Draft;
use super::inode_draft::InodeDraft;
use super::repair_context::RepairContext;
use crate::check::checked_image::CheckedImage;
use crate::format::address::Block;
use crate::format::features::Incompat;
use crate::format::inode::{Time, flags};
use crate::format::xattr::{
    self, Area, AttributeName, BLOCK_HEADER_SIZE, BLOCK_REFCOUNT_RANGE, INODE_HEADER_SIZE,
    NewAttribute, NewValue, VALUE_SIZE_MAX, Value, entry_hash, entry_size, is_acl_index,
};

/// Size of an entry without its name, in bytes.
const ENTRY_SIZE: usize = 16;
/// Magic number of both kinds of areas.
const MAGIC: [u8; 4] = 0xea02_0000_u32.to_le_bytes();
/// Maximum `e_name_index` in use.
const NAME_INDEX_MAX: u8 = 9;
/// Maximum number of bytes to hash in the search for hidden entries of one area.
const HASHED_BYTES_MAX: usize = 4 << 20;
/// Maximum number of inodes that share a block.
const REFCOUNT_MAX: u32 = 1024;

/// An attribute that was read.
struct ReadAttribute<'b> {
    index: u8,
    name: &'b [u8],
    value: Value<'b>,
    hash: u32,
}

/// Reads entries from an offset of an area on, as far as possible, whether or not their values can be read.
fn salvage(base: &[u8], start: usize) -> Vec<ReadAttribute<'_>> {
    let word = |at: usize| {
        let bytes = base.get(at..).and_then(<[u8]>::first_chunk::<4>);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let mut found: Vec<(usize, ReadAttribute<'_>)> = Vec::new();
    let mut at = start;
    while word(at) != 0 {
        let name_len = usize::from(base[at]);
        let Some(name) = base.get(at + ENTRY_SIZE..at + ENTRY_SIZE + name_len) else { break };
        let (offset, ino, size) = ((word(at) >> 16) as usize, word(at + 4), word(at + 8));
        let value = if ino != 0 {
            (size <= VALUE_SIZE_MAX).then_some(Value::Inode { ino, size })
        } else if size == 0 {
            Some(Value::Here(&[]))
        } else {
            let end = offset.checked_add(size as usize);
            end.and_then(|end| base.get(offset..end)).map(Value::Here)
        };
        if let Some(value) = value {
            let kept = ReadAttribute { index: base[at + 1], name, value, hash: word(at + 12) };
            found.push((offset, kept));
        }
        at += entry_size(name_len);
    }
    add_hashed(base, start, &mut found);
    // Drop values that overlap the entries.
    found.retain(|(offset, kept)| match kept.value {
        Value::Here(value) => value.is_empty() || *offset >= at,
        Value::Inode { .. } => true,
    });
    found.into_iter().map(|(_, kept)| kept).collect()
}

/// Adds entries hidden by a wrong name length: those at other offsets whose hashes match.
fn add_hashed<'b>(base: &'b [u8], start: usize, found: &mut Vec<(usize, ReadAttribute<'b>)>) {
    let names = |found: &[(usize, ReadAttribute<'_>)], index: u8, name: &[u8]| {
        found.iter().any(|(_, kept)| (kept.index, kept.name) == (index, name))
    };
    let word = |at: usize| {
        let bytes = base.get(at..).and_then(<[u8]>::first_chunk::<4>);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let mut left = HASHED_BYTES_MAX;
    for at in (start..base.len().saturating_sub(ENTRY_SIZE)).step_by(4) {
        let (name_len, index) = (usize::from(base[at]), base[at + 1]);
        let (offset, size, hash) =
            ((word(at) >> 16) as usize, word(at + 8) as usize, word(at + 12));
        let is_plausible = name_len > 0 && (1..=NAME_INDEX_MAX).contains(&index) && hash != 0;
        let name = base.get(at + ENTRY_SIZE..at + ENTRY_SIZE + name_len);
        let value = offset.checked_add(size).and_then(|end| base.get(offset..end));
        let (true, 0, Some(name), Some(value)) = (is_plausible, word(at + 4), name, value) else {
            continue;
        };
        let bytes = name.len() + value.len();
        if bytes > left {
            return;
        }
        left -= bytes;
        if hash == entry_hash(name, value) && !names(found, index, name) {
            found.push((offset, ReadAttribute { index, name, value: Value::Here(value), hash }));
        }
    }
}

/// Selects the attributes to write: without duplicate names, damaged access control lists and missing values.
fn choose<'b>(
    context: &RepairContext<'_>,
    subject: &InodeDraft,
    mut all: Vec<ReadAttribute<'b>>,
    in_block: bool,
    draft: &mut Draft,
) -> Vec<NewAttribute<'b>> {
    all.retain(|kept| kept.index != 0 && (!kept.name.is_empty() || is_acl_index(kept.index)));
    all.retain(|kept| !kept.name.contains(&0));
    all.sort_by_key(|kept| (kept.index, kept.name.len(), kept.name));
    all.dedup_by_key(|kept| (kept.index, kept.name));
    let chosen = all.into_iter().filter_map(|kept| {
        let name = AttributeName { index: kept.index, suffix: kept.name };
        let value = match kept.value {
            Value::Here(value) => {
                let is_damaged_list =
                    is_acl_index(kept.index) && xattr::acl_to_linux(value).is_none();
                let is_misplaced = in_block && name == AttributeName::INLINE_DATA;
                (!is_damaged_list && !is_misplaced).then_some(NewValue::Here(value))?
            }
            Value::Inode { ino, size } => {
                let hash = value_hash(context, subject, &kept, (ino, size), draft)?;
                NewValue::Inode { ino, size, hash }
            }
        };
        Some(NewAttribute { name, value })
    });
    chosen.collect()
}

/// Returns the hash of an attribute whose value is in an inode, or `None` if the value is missing. If only the size of
/// that inode is wrong, repairs it.
fn value_hash(
    context: &RepairContext<'_>,
    subject: &InodeDraft,
    kept: &ReadAttribute<'_>,
    (ino, size): (u32, u32),
    draft: &mut Draft,
) -> Option<u32> {
    let params = context.checked.params();
    let is_possible = params.sb.features.incompat(Incompat::EA_INODE)
        && (params.sb.first_ino..=params.sb.inodes_count).contains(&ino);
    let mut holder = context.subject(ino).filter(|_| is_possible)?;
    let is_holder = holder.file_type() == Some(FileType::Regular)
        && holder.inode.links_count() > 0
        && holder.has(flags::EA_INODE)
        && !holder.has(flags::INLINE_DATA);
    if !is_holder {
        return None;
    }
    let inode = &holder.inode;
    let is_plain = inode.time(Time::Modify).sec as u64 & 0xffff_ffff == u64::from(subject.ino)
        && inode.generation() == subject.inode.generation();
    let (is_size_right, value_hash) = (inode.size() == u64::from(size), inode.value_hash());
    if !is_size_right {
        holder.inode.set_size(size.into());
        let value = super::inodes::read_contents(context, &holder, VALUE_SIZE_MAX.into())?;
        let is_value = xattr::value_hash(params.sb.checksum_seed, &value) == value_hash;
        is_value.then(|| holder.store(draft))?;
    }
    Some(if is_plain { kept.hash } else { entry_hash(kept.name, &value_hash.to_le_bytes()) })
}

/// Rewrites the attributes in an inode. Returns whether there is anything to write.
pub(super) fn repair_in_inode(
    context: &RepairContext<'_>,
    subject: &mut InodeDraft,
    draft: &mut Draft,
) -> bool {
    let Some(tail) = subject.tail().map(<[u8]>::to_vec) else { return false };
    if tail.get(..4) != Some(&MAGIC) {
        return false;
    }
    let all = salvage(&tail[INODE_HEADER_SIZE..], 0);
    let mut chosen = choose(context, subject, all, false, draft);
    write_in_inode(subject, &mut chosen)
}

fn write_in_inode(subject: &mut InodeDraft, attributes: &mut Vec<NewAttribute<'_>>) -> bool {
    let Some(tail) = subject.tail_mut() else { return false };
    while !xattr::encode_in_inode(tail, attributes) {
        attributes.pop();
    }
    true
}

/// Returns the inline data beyond `i_block`, if there is any.
pub(super) fn inline_rest(subject: &InodeDraft) -> Option<Vec<u8>> {
    let area = Area::in_inode(subject.tail()?).ok()??;
    match area.find(AttributeName::INLINE_DATA)?.value {
        Value::Here(value) => Some(value.to_vec()),
        Value::Inode { .. } => None,
    }
}

/// Sets or removes the inline data beyond `i_block`. Returns whether there was room.
pub(super) fn set_inline_rest(subject: &mut InodeDraft, rest: Option<&[u8]>) -> bool {
    let Some(tail) = subject.tail().map(<[u8]>::to_vec) else { return rest.is_none() };
    let Ok(area) = Area::in_inode(&tail) else { return false };
    let mut all: Vec<NewAttribute<'_>> = Vec::new();
    for entry in area.into_iter().flat_map(Area::entries) {
        let name = AttributeName { index: entry.name_index, suffix: entry.name };
        let value = match entry.value {
            Value::Here(value) => NewValue::Here(value),
            Value::Inode { ino, size } => NewValue::Inode { ino, size, hash: entry.hash },
        };
        if name != AttributeName::INLINE_DATA {
            all.push(NewAttribute { name, value });
        }
    }
    if let Some(rest) = rest {
        all.push(NewAttribute { name: AttributeName::INLINE_DATA, value: NewValue::Here(rest) });
    }
    subject.tail_mut().is_some_and(|tail| xattr::encode_in_inode(tail, &mut all))
}

/// Returns whether there is an encryption context among the attributes.
pub(super) fn has_encryption_context(checked: &CheckedImage, subject: &InodeDraft) -> bool {
    const CONTEXT: AttributeName<'_> = AttributeName { index: 9, suffix: b"c" };
    let in_inode = subject.tail().and_then(|tail| Area::in_inode(tail).ok().flatten());
    let is_in_inode = in_inode.is_some_and(|area| area.find(CONTEXT).is_some());
    let place = Block(subject.inode.file_acl());
    is_in_inode
        || checked.can_be_of_file(place, 1)
            && checked.block(place).is_some_and(|bytes| {
                xattr::verify_block_structure(&bytes).is_ok()
                    && Area::in_block(&bytes).find(CONTEXT).is_some()
            })
}

/// Result of repairing an attribute block.
pub(super) enum Repaired {
    /// No repair was possible.
    Left,
    /// The block was rewritten.
    Written,
    /// It is not an attribute block, and was removed from the inode.
    Dropped,
}

/// Rewrites an inode's attribute block, or removes it from the inode if it contains none.
pub(super) fn repair_block(
    context: &RepairContext<'_>,
    subject: &mut InodeDraft,
    draft: &mut Draft,
) -> Repaired {
    let checked = &context.checked;
    let place = Block(subject.inode.file_acl());
    if place.0 == 0 {
        return Repaired::Left;
    }
    if !checked.can_be_of_file(place, 1) {
        subject.inode.set_file_acl(0);
        return Repaired::Dropped;
    }
    let Some(old) = checked.block(place) else { return Repaired::Left };
    let all = salvage(&old, BLOCK_HEADER_SIZE);
    let is_hashed = |kept: &ReadAttribute<'_>| match kept.value {
        Value::Here(value) => kept.hash != 0 && kept.hash == entry_hash(kept.name, value),
        Value::Inode { .. } => false,
    };
    if old[..4] != MAGIC && !all.iter().any(is_hashed) {
        subject.inode.set_file_acl(0);
        return Repaired::Dropped;
    }
    // If the block belongs to another structure, only entries with a matching hash are attributes.
    let has_magic = old[..4] == MAGIC;
    let all = all.into_iter().filter(|kept| has_magic || is_hashed(kept)).collect();
    let mut chosen = choose(context, subject, all, true, draft);
    let mut block = vec![0; old.len()];
    while !xattr::encode_block(&mut block, &mut chosen) {
        chosen.pop();
    }
    let count = u32::from_le_bytes(*old[BLOCK_REFCOUNT_RANGE].first_chunk().unwrap_or(&[0; 4]));
    let count = if (1..=REFCOUNT_MAX).contains(&count) { count } else { 1 };
    block[BLOCK_REFCOUNT_RANGE].copy_from_slice(&count.to_le_bytes());
    let params = checked.params();
    if params.checksums {
        xattr::seal_block(&mut block, place, params.sb.checksum_seed);
    }
    draft.write(context.byte_of(place), block);
    Repaired::Written
}

/// Sets the reference counts of attribute blocks.
pub(super) fn repair_references(
    job: &crate::repair::RepairJob,
    findings: &[&Finding],
) -> Result<()> {
    let Some(context) = RepairContext::new(job)? else { return Ok(()) };
    for finding in findings {
        let count = finding.expected.as_ref().and_then(|text| text.parse::<u32>().ok());
        let (Some(count), Some(place)) = (count.filter(|count| *count > 0), finding.place.block)
        else {
            continue;
        };
        let place = Block(place);
        let Some(mut block) = context.checked.block(place) else { continue };
        if xattr::verify_block_structure(&block).is_err() {
            continue;
        }
        block[BLOCK_REFCOUNT_RANGE].copy_from_slice(&count.to_le_bytes());
        let params = context.checked.params();
        if params.checksums {
            xattr::seal_block(&mut block, place, params.sb.checksum_seed);
        }
        let mut draft = Draft::default();
        draft.write(context.byte_of(place), block);
        let what = format!("The reference count of attribute block {place} is set to {count}.");
        context.end(draft, vec![Action::about(finding, what)])?;
    }
    Ok(())
}
