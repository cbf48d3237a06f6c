//! Decides where an inode's attributes are stored when one of them changes. No I/O: the input is the inode and its
//! block.
//!
//! A value is stored in the inode if it fits there, else in the inode's block, else (`ea_inode`) in a separate inode
//! whose entry is in the inode or the block. Other attributes are not moved.

use engine::Corruption;
use smallvec::SmallVec;
use vfs::{Error, Result};

use crate::format::xattr::{
    Area, AttributeName, NewAttribute, NewValue, Value, XattrEntry, encode_block, encode_in_inode,
    entry_hash, fits_in_block, fits_in_inode,
};
use crate::xattr::SlotTail;

/// Reference of an entry to a value in a separate inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueRef {
    pub(super) ino: u32,
    /// Length of the value in bytes.
    pub(super) size: u32,
}

/// Placeholder for the inode of a new value until it is allocated. Any number but 0, which means "no inode".
const NOT_KNOWN_YET: u32 = u32::MAX;

/// References to values in separate inodes.
pub(super) type ValueRefs = SmallVec<[ValueRef; 2]>;

/// Change of one attribute.
#[derive(Clone, Copy)]
pub(super) struct XattrChange<'a> {
    pub(super) name: AttributeName<'a>,
    /// New value in on-disk form; `None` removes the attribute.
    pub(super) value: Option<&'a [u8]>,
}

/// Current attributes of an inode.
#[derive(Clone, Copy)]
pub(super) struct Present<'a> {
    /// Rest of the inode's slot after the fixed fields.
    pub(super) tail: &'a [u8],
    /// The verified attribute block.
    pub(super) block: Option<&'a [u8]>,
    /// True if other inodes share the block.
    pub(super) is_shared: bool,
    /// Block size in bytes.
    pub(super) block_size: usize,
    /// True if the inode is a symbolic link. e2fsck uses the block count to decide whether the target is inline, unless
    /// there is an attribute block. So a link's value in another inode, which adds to the count, requires an attribute
    /// block.
    pub(super) is_link: bool,
}

/// Change of the attribute block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockChange {
    /// The block, if any, does not change.
    Keep,
    /// The block is removed.
    Drop,
    /// The block gets these contents, without a valid checksum.
    Write(Vec<u8>),
}

/// Location of the entry whose value is in a separate inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueLocation {
    Slot,
    Block,
}

/// Planned changes.
pub(super) struct XattrPlan {
    /// New bytes of the slot after the fixed fields, if they change.
    pub(super) tail: Option<SlotTail>,
    pub(super) block: BlockChange,
    /// Location of the entry for the new value inode, if there is one.
    pub(super) value_place: Option<ValueLocation>,
    /// Values that this inode no longer has.
    pub(super) removed: ValueRefs,
    /// The subset of `removed` that loses a reference: without values that a shared block still refers to.
    pub(super) dropped: ValueRefs,
    /// Values that gain a reference because a shared block is copied.
    pub(super) copied: ValueRefs,
}

/// Attributes of an area that stay, and the removed values.
struct AreaPlan<'a> {
    kept: SmallVec<[NewAttribute<'a>; 8]>,
    removed: ValueRefs,
    had_it: bool,
}

impl<'a> AreaPlan<'a> {
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

/// Returns an existing attribute in the form for writing.
pub(super) fn again(entry: XattrEntry<'_>) -> NewAttribute<'_> {
    let name = AttributeName { index: entry.name_index, suffix: entry.name };
    let value = match entry.value {
        Value::Here(value) => NewValue::Here(value),
        Value::Inode { ino, size } => NewValue::Inode { ino, size, hash: entry.hash },
    };
    NewAttribute { name, value }
}

fn value_ref(entry: XattrEntry<'_>) -> Option<ValueRef> {
    match entry.value {
        Value::Here(_) => None,
        Value::Inode { ino, size } => Some(ValueRef { ino, size }),
    }
}

/// Returns the references of an area to values in separate inodes.
pub(super) fn value_refs(area: Area<'_>) -> impl Iterator<Item = ValueRef> {
    area.entries().filter_map(value_ref)
}

/// Returns the possible forms of a value, the preferred one first. The inode number is set later.
fn forms(
    change: XattrChange<'_>,
    value_hash: Option<u32>,
) -> impl Iterator<Item = NewAttribute<'_>> {
    let XattrChange { name, value } = change;
    let apart = move |value: &[u8]| {
        let hash = entry_hash(name.suffix, &value_hash?.to_le_bytes());
        let size = u32::try_from(value.len()).ok().filter(|&size| size > 0)?;
        Some(NewValue::Inode { ino: NOT_KNOWN_YET, size, hash })
    };
    let here = value.map(NewValue::Here);
    let forms = here.into_iter().chain(value.and_then(apart));
    forms.map(move |value| NewAttribute { name, value })
}

/// Decides where each attribute is stored. With `value_hash`, the hash of the new value, that value may be stored in a
/// separate inode.
///
/// # Errors
/// `NoAttribute` if the attribute to remove does not exist, `AttributeTooLarge` if the new one does not fit, `Corrupt`
/// if existing attributes cannot be written again.
pub(super) fn plan(
    present: Present<'_>,
    change: XattrChange<'_>,
    value_hash: Option<u32>,
) -> Result<XattrPlan> {
    let slot = Area::in_inode(present.tail)?;
    let mut inside = AreaPlan::of(slot, change.name);
    let mut outside = AreaPlan::of(present.block.map(Area::in_block), change.name);
    let limit = if value_hash.is_some() { ENTRIES_LIMIT } else { VALUES_LIMIT };
    let chosen = choose(present, forms(change, value_hash), &mut inside, &mut outside);
    let chosen = chosen.map_err(|TooLarge| Error::AttributeTooLarge(limit))?;
    if chosen.is_none() && !inside.had_it && !outside.had_it {
        return Err(Error::NoAttribute);
    }
    let place = chosen.map(|(place, _)| place);
    let mut plan = XattrPlan {
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
    if inside.had_it || place == Some(ValueLocation::Slot) {
        let mut tail = SlotTail::from_elem(0, present.tail.len());
        if !encode_in_inode(&mut tail, &mut inside.kept) {
            return Err(overlapping());
        }
        plan.tail = Some(tail);
    }
    if outside.had_it || place == Some(ValueLocation::Block) {
        plan.change_block(present, &mut outside.kept, change.name)?;
    }
    Ok(plan)
}

/// Explanation of the size limit without `ea_inode`.
const VALUES_LIMIT: &str = "ext4 stores all attributes of a file in its inode and one block, \
                            unless the file system has the feature ea_inode";

/// Explanation of the size limit with `ea_inode`.
const ENTRIES_LIMIT: &str = "ext4 stores all names and small values of attributes in the inode and \
                             one block";

/// The new attribute does not fit.
struct TooLarge;

/// Adds the new attribute to the side with room for it. Returns the location, and whether the value needs a separate
/// inode.
fn choose<'a>(
    present: Present<'_>,
    forms: impl Iterator<Item = NewAttribute<'a>>,
    inside: &mut AreaPlan<'a>,
    outside: &mut AreaPlan<'a>,
) -> Result<Option<(ValueLocation, bool)>, TooLarge> {
    let mut is_set = false;
    for form in forms {
        is_set = true;
        let apart = matches!(form.value, NewValue::Inode { .. });
        inside.kept.push(form);
        if !(apart && present.is_link) && fits_in_inode(present.tail.len(), &inside.kept) {
            return Ok(Some((ValueLocation::Slot, apart)));
        }
        inside.kept.pop();
        outside.kept.push(form);
        if fits_in_block(present.block_size, &outside.kept) {
            return Ok(Some((ValueLocation::Block, apart)));
        }
        outside.kept.pop();
    }
    if is_set { Err(TooLarge) } else { Ok(None) }
}

impl XattrPlan {
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

/// Existing attributes can only fail to fit into their own area if their values overlap.
fn overlapping() -> Error {
    Corruption::new("extended attributes", "values overlap each other").into()
}
