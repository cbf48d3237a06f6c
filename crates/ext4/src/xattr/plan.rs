//! Where an inode's attributes go when one of them changes: decided without I/O, from what the inode
//! and its block hold.
//!
//! A value lies in the inode if it fits there, else in the inode's block, else (`ea_inode`) in an
//! inode of its own, whose entry again goes to the inode or the block. Other attributes stay where
//! they are.

use smallvec::SmallVec;
use transaction::Corruption;
use vfs::{Error, Result};

use crate::format::xattr::{
    Area, AttributeName, Entry, NewAttribute, NewValue, Value, encode_block, encode_in_inode,
    entry_hash, fits_in_block, fits_in_inode,
};
use crate::xattr::SlotTail;

/// A value in an inode of its own, as an entry refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueRef {
    pub(super) ino: u32,
    /// Length of the value in bytes.
    pub(super) size: u32,
}

/// Stands for the inode of a new value until that is taken. Any number but 0, which means that there
/// is none.
const NOT_KNOWN_YET: u32 = u32::MAX;

/// Values in inodes of their own.
pub(super) type ValueRefs = SmallVec<[ValueRef; 2]>;

/// What is to become of one attribute.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) name: AttributeName<'a>,
    /// Its value in the form it has on disk; `None` removes it.
    pub(super) value: Option<&'a [u8]>,
}

/// An inode's attributes as they are.
#[derive(Clone, Copy)]
pub(super) struct Present<'a> {
    /// What follows the fixed fields in the inode's slot.
    pub(super) tail: &'a [u8],
    /// The block, verified.
    pub(super) block: Option<&'a [u8]>,
    /// Whether other inodes have the same block.
    pub(super) is_shared: bool,
    /// Size of blocks in bytes.
    pub(super) block_size: usize,
    /// Whether the inode is a symbolic link. Its target lies in the inode or in blocks, which e2fsck
    /// tells by whether it counts blocks, unless it has an attribute block: the space of values in
    /// other inodes is only counted beside one.
    pub(super) is_link: bool,
}

/// What is to become of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockChange {
    /// It stays as it is, if there is one.
    Keep,
    /// It is no longer needed.
    Drop,
    /// It gets these contents; its checksum is still missing.
    Write(Vec<u8>),
}

/// Where the entry is whose value goes to an inode of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Slot,
    Block,
}

/// What to do.
pub(super) struct Plan {
    /// New bytes for the slot behind the fixed fields, if they change.
    pub(super) tail: Option<SlotTail>,
    pub(super) block: BlockChange,
    /// Where to enter the new inode's number, if the value goes to one.
    pub(super) value_place: Option<Place>,
    /// Values that this inode no longer has.
    pub(super) removed: ValueRefs,
    /// Of these, those that nothing refers to in its place: not those a shared block still has.
    pub(super) dropped: ValueRefs,
    /// Values that a copy of a shared block refers to, too.
    pub(super) copied: ValueRefs,
}

/// The attributes of an area that stay, and the values of those that go.
struct Side<'a> {
    kept: SmallVec<[NewAttribute<'a>; 8]>,
    removed: ValueRefs,
    had_it: bool,
}

impl<'a> Side<'a> {
    fn of(area: Option<Area<'a>>, without: AttributeName<'_>) -> Self {
        let mut side = Self { kept: SmallVec::new(), removed: ValueRefs::new(), had_it: false };
        for entry in area.into_iter().flat_map(Area::entries) {
            let attribute = again(entry);
            if attribute.name != without {
                side.kept.push(attribute);
                continue;
            }
            side.had_it = true;
            side.removed.extend(value_ref(entry));
        }
        side
    }
}

/// An attribute as it is, to be written again.
pub(super) fn again(entry: Entry<'_>) -> NewAttribute<'_> {
    let name = AttributeName { index: entry.name_index, suffix: entry.name };
    let value = match entry.value {
        Value::Here(value) => NewValue::Here(value),
        Value::Inode { ino, size } => NewValue::Inode { ino, size, hash: entry.hash },
    };
    NewAttribute { name, value }
}

fn value_ref(entry: Entry<'_>) -> Option<ValueRef> {
    match entry.value {
        Value::Here(_) => None,
        Value::Inode { ino, size } => Some(ValueRef { ino, size }),
    }
}

/// The values of an area that lie in inodes of their own.
pub(super) fn value_refs(area: Area<'_>) -> impl Iterator<Item = ValueRef> {
    area.entries().filter_map(value_ref)
}

/// The forms a value can take, the best first. The inode's number is entered later.
fn forms(change: Change<'_>, value_hash: Option<u32>) -> impl Iterator<Item = NewAttribute<'_>> {
    let Change { name, value } = change;
    let apart = move |value: &[u8]| {
        let hash = entry_hash(name.suffix, &value_hash?.to_le_bytes());
        let size = u32::try_from(value.len()).ok().filter(|&size| size > 0)?;
        Some(NewValue::Inode { ino: NOT_KNOWN_YET, size, hash })
    };
    let here = value.map(NewValue::Here);
    let forms = here.into_iter().chain(value.and_then(apart));
    forms.map(move |value| NewAttribute { name, value })
}

/// Decides where each attribute goes. With `value_hash`, the hash of the new value, that value may lie in an
/// inode of its own.
///
/// # Errors
/// `NoAttribute` if the attribute to remove is not there, `AttributeTooLarge` if the new one fits nowhere,
/// `Corrupt` if what is there cannot be written again.
pub(super) fn plan(
    present: Present<'_>,
    change: Change<'_>,
    value_hash: Option<u32>,
) -> Result<Plan> {
    let slot = Area::in_inode(present.tail)?;
    let mut inside = Side::of(slot, change.name);
    let mut outside = Side::of(present.block.map(Area::in_block), change.name);
    let limit = if value_hash.is_some() { ENTRIES_LIMIT } else { VALUES_LIMIT };
    let chosen = choose(present, forms(change, value_hash), &mut inside, &mut outside);
    let chosen = chosen.map_err(|TooLarge| Error::AttributeTooLarge(limit))?;
    if chosen.is_none() && !inside.had_it && !outside.had_it {
        return Err(Error::NoAttribute);
    }
    let place = chosen.map(|(place, _)| place);
    let mut plan = Plan {
        tail: None,
        block: BlockChange::Keep,
        value_place: chosen.filter(|(_, apart)| *apart).map(|(place, _)| place),
        removed: inside.removed.iter().chain(&outside.removed).copied().collect(),
        dropped: inside.removed,
        copied: ValueRefs::new(),
    };
    if !present.is_shared {
        plan.dropped.extend_from_slice(&outside.removed);
    }
    if inside.had_it || place == Some(Place::Slot) {
        let mut tail = SlotTail::from_elem(0, present.tail.len());
        if !encode_in_inode(&mut tail, &mut inside.kept) {
            return Err(overlapping());
        }
        plan.tail = Some(tail);
    }
    if outside.had_it || place == Some(Place::Block) {
        plan.change_block(present, &mut outside.kept, change.name)?;
    }
    Ok(plan)
}

/// What an inode has room for without `ea_inode`.
const VALUES_LIMIT: &str = "ext4 keeps all attributes of a file in its inode and one block, unless the file \
                            system has the feature ea_inode";

/// What it has room for with `ea_inode`.
const ENTRIES_LIMIT: &str = "ext4 keeps the names of all attributes of a file, and values that are small, in its \
                             inode and one block";

/// The new attribute fits nowhere.
struct TooLarge;

/// Adds the new attribute to the side that has room for it. Says which that is, and whether the
/// value goes to an inode of its own.
fn choose<'a>(
    present: Present<'_>,
    forms: impl Iterator<Item = NewAttribute<'a>>,
    inside: &mut Side<'a>,
    outside: &mut Side<'a>,
) -> Result<Option<(Place, bool)>, TooLarge> {
    let mut is_set = false;
    for form in forms {
        is_set = true;
        let apart = matches!(form.value, NewValue::Inode { .. });
        inside.kept.push(form);
        if !(apart && present.is_link) && fits_in_inode(present.tail.len(), &inside.kept) {
            return Ok(Some((Place::Slot, apart)));
        }
        inside.kept.pop();
        outside.kept.push(form);
        if fits_in_block(present.block_size, &outside.kept) {
            return Ok(Some((Place::Block, apart)));
        }
        outside.kept.pop();
    }
    if is_set { Err(TooLarge) } else { Ok(None) }
}

impl Plan {
    fn change_block(
        &mut self,
        present: Present<'_>,
        attributes: &mut [NewAttribute<'_>],
        changed: AttributeName<'_>,
    ) -> Result<()> {
        if attributes.is_empty() {
            self.block = BlockChange::Drop;
            return Ok(());
        }
        let mut bytes = vec![0; present.block_size];
        if !encode_block(&mut bytes, attributes) {
            return Err(overlapping());
        }
        self.block = BlockChange::Write(bytes);
        if present.is_shared {
            self.copied.extend(attributes.iter().filter_map(|attribute| match attribute.value {
                NewValue::Inode { ino, size, .. } if attribute.name != changed => {
                    Some(ValueRef { ino, size })
                }
                _ => None,
            }));
        }
        Ok(())
    }
}

/// Attributes that were in a place no longer fit there only if their values share bytes.
fn overlapping() -> Error {
    Corruption::new("extended attributes", "values overlap each other").into()
}
