//! Writing a whole attribute area at once.

use super::{
    Area, AttributeName, BLOCK_HEADER_SIZE, BLOCKS_OFFSET, ENTRY_HASH_OFFSET, ENTRY_SIZE,
    HASH_OFFSET, INODE_HEADER_SIZE, MAGIC, REFCOUNT_OFFSET, VALUE_INODE_OFFSET, Value, block_hash,
    entry_hash, entry_size, value_size,
};

/// Attribute value to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewValue<'a> {
    /// A value in the area.
    Here(&'a [u8]),
    /// A value in a separate inode.
    Inode {
        /// Number of that inode.
        ino: u32,
        /// Length of the value in bytes.
        size: u32,
        /// `e_hash`: `entry_hash` of the name and the four bytes of `value_hash`.
        hash: u32,
    },
}

/// Attribute to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewAttribute<'a> {
    /// Attribute name.
    pub name: AttributeName<'a>,
    /// Value in its on-disk form.
    pub value: NewValue<'a>,
}

impl NewAttribute<'_> {
    /// Returns the size of name and value in an area, in bytes.
    pub(crate) fn size(&self) -> usize {
        let value = match self.value {
            NewValue::Here(value) => value_size(value.len()),
            NewValue::Inode { .. } => 0,
        };
        entry_size(self.name.suffix.len()) + value
    }

    /// Returns `e_hash`. Values stored in the inode have none.
    fn hash(&self, in_block: bool) -> u32 {
        match self.value {
            NewValue::Here(value) if in_block => entry_hash(self.name.suffix, value),
            NewValue::Here(_) => 0,
            NewValue::Inode { hash, .. } => hash,
        }
    }
}

/// Writes an attribute block with `attributes` and a reference count of 1, without a checksum. Sorts them, because
/// lookups in a block expect that order. Returns `false` and writes nothing if they do not fit.
#[must_use]
pub(crate) fn encode_block(block: &mut [u8], attributes: &mut [NewAttribute<'_>]) -> bool {
    if !fits_in_block(block.len(), attributes) {
        return false;
    }
    block.fill(0);
    let mut put = |at: usize, word: u32| block[at..at + 4].copy_from_slice(&word.to_le_bytes());
    sort(attributes);
    put(0, MAGIC);
    put(REFCOUNT_OFFSET, 1);
    put(BLOCKS_OFFSET, 1);
    put(HASH_OFFSET, block_hash(attributes.iter().map(|attribute| attribute.hash(true))));
    encode(block, BLOCK_HEADER_SIZE, attributes, true);
    true
}

/// Writes `attributes` to the bytes of an inode's slot after `extra_isize`, or zeros if there are none. Sorts them.
/// Returns `false` and writes nothing if they do not fit.
#[must_use]
pub(crate) fn encode_in_inode(bytes: &mut [u8], attributes: &mut [NewAttribute<'_>]) -> bool {
    if attributes.is_empty() {
        bytes.fill(0);
        return true;
    }
    if !fits_in_inode(bytes.len(), attributes) {
        return false;
    }
    bytes.fill(0);
    sort(attributes);
    bytes[..INODE_HEADER_SIZE].copy_from_slice(&MAGIC.to_le_bytes());
    encode(&mut bytes[INODE_HEADER_SIZE..], 0, attributes, false);
    true
}

/// Returns whether `attributes` fit into a block of `block_size` bytes with [`encode_block`].
#[must_use]
pub(crate) fn fits_in_block(block_size: usize, attributes: &[NewAttribute<'_>]) -> bool {
    fits(block_size - BLOCK_HEADER_SIZE, attributes)
}

/// Returns whether `attributes` fit into `len` bytes with [`encode_in_inode`].
#[must_use]
pub(crate) fn fits_in_inode(len: usize, attributes: &[NewAttribute<'_>]) -> bool {
    attributes.is_empty() || len >= INODE_HEADER_SIZE && fits(len - INODE_HEADER_SIZE, attributes)
}

/// Sets the inode that stores the value of an attribute, in a block or in the bytes that [`encode_in_inode`] wrote. No
/// hash depends on the inode number. Returns `false` if there is no such attribute.
#[must_use]
pub(crate) fn set_value_inode(
    bytes: &mut [u8],
    in_block: bool,
    name: AttributeName<'_>,
    ino: u32,
) -> bool {
    let start = if in_block { BLOCK_HEADER_SIZE } else { INODE_HEADER_SIZE };
    let mut at = start;
    let found = Area { base: bytes, entries: start }.entries().find(|entry| {
        let is_it = entry.name_index == name.index && entry.name == name.suffix;
        at += if is_it { 0 } else { entry_size(entry.name.len()) };
        is_it
    });
    let found = found.is_some();
    if found {
        bytes[at + VALUE_INODE_OFFSET..][..size_of::<u32>()].copy_from_slice(&ino.to_le_bytes());
    }
    found
}

/// Changes the value of an attribute in the bytes that [`Area::in_inode`] reads, without changing its length. Clears
/// its hash, because kernels store none there either. Returns `false` if there is no such value.
pub(crate) fn edit_in_inode(
    bytes: &mut [u8],
    name: AttributeName<'_>,
    edit: impl FnOnce(&mut [u8]),
) -> bool {
    let Ok(Some(area)) = Area::in_inode(bytes) else { return false };
    let mut at = INODE_HEADER_SIZE;
    let found = area.entries().find(|entry| {
        let is_it = entry.name_index == name.index && entry.name == name.suffix;
        at += if is_it { 0 } else { entry_size(entry.name.len()) };
        is_it
    });
    let Some(Value::Here(value)) = found.map(|entry| entry.value) else { return false };
    let (len, offset) = (value.len(), u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]));
    let start = INODE_HEADER_SIZE + usize::from(offset);
    let Some(value) = bytes.get_mut(start..start + len) else { return false };
    edit(value);
    bytes[at + ENTRY_HASH_OFFSET..][..size_of::<u32>()].fill(0);
    true
}

fn fits(room: usize, attributes: &[NewAttribute<'_>]) -> bool {
    // Four zero bytes end the entries.
    attributes.iter().map(NewAttribute::size).sum::<usize>() + size_of::<u32>() <= room
}

fn sort(attributes: &mut [NewAttribute<'_>]) {
    attributes.sort_unstable_by_key(|a| (a.name.index, a.name.suffix.len(), a.name.suffix));
}

/// Writes entries from `at` on and values from the end. They must fit.
fn encode(base: &mut [u8], mut at: usize, attributes: &[NewAttribute<'_>], in_block: bool) {
    let mut values_start = base.len();
    for attribute in attributes {
        let name = attribute.name.suffix;
        let (mut offset, ino, size) = match attribute.value {
            NewValue::Here(value) => (0, 0, value.len() as u32),
            NewValue::Inode { ino, size, .. } => (0, ino, size),
        };
        if let NewValue::Here(value) = attribute.value
            && !value.is_empty()
        {
            values_start -= value_size(value.len());
            offset = values_start as u16;
            base[values_start..values_start + value.len()].copy_from_slice(value);
        }
        let entry = &mut base[at..at + ENTRY_SIZE + name.len()];
        entry[0] = name.len() as u8;
        entry[1] = attribute.name.index;
        entry[2..4].copy_from_slice(&offset.to_le_bytes());
        entry[4..8].copy_from_slice(&ino.to_le_bytes());
        entry[8..12].copy_from_slice(&size.to_le_bytes());
        entry[12..16].copy_from_slice(&attribute.hash(in_block).to_le_bytes());
        entry[ENTRY_SIZE..].copy_from_slice(name);
        at += entry_size(name.len());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::super::{seal_block, verify_block};
    use super::*;
    use crate::format::address::Block;

    type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

    fn attributes(model: &Model) -> Vec<NewAttribute<'_>> {
        let all = model.iter().map(|((index, suffix), value)| NewAttribute {
            name: AttributeName { index: *index, suffix },
            value: NewValue::Here(value),
        });
        all.collect()
    }

    fn read(area: Area<'_>) -> Model {
        let pair = |entry: super::super::XattrEntry<'_>| {
            let Value::Here(value) = entry.value else { panic!("all values are in this block") };
            ((entry.name_index, entry.name.to_vec()), value.to_vec())
        };
        area.entries().map(pair).collect()
    }

    proptest! {
        #[test]
        fn written_values_can_be_read(
            model in btree_map((1_u8..8, vec(any::<u8>(), 1..20)), vec(any::<u8>(), 0..60), 0..14),
        ) {
            let mut all = attributes(&model);
            let size: usize = all.iter().map(NewAttribute::size).sum();
            let mut block = vec![0xee; 1024];
            let done = encode_block(&mut block, &mut all);
            prop_assert_eq!(done, size + 4 <= 1024 - 32);
            if done {
                seal_block(&mut block, Block(5), 6);
                prop_assert!(verify_block(&block, Block(5), Some(6)).is_ok());
                prop_assert!(verify_block(&block, Block(6), Some(6)).is_err());
                prop_assert_eq!(&read(Area::in_block(&block)), &model);
            }
            let mut bytes = vec![0xee; 360];
            let done = encode_in_inode(&mut bytes, &mut all);
            prop_assert_eq!(done, model.is_empty() || size + 8 <= 360);
            if done {
                let area = Area::in_inode(&bytes).unwrap();
                prop_assert_eq!(area.is_none(), model.is_empty());
                prop_assert_eq!(area.map(read).unwrap_or_default(), model);
            }
        }
    }

    #[test]
    fn a_value_in_an_inode_is_named() {
        let name = AttributeName { index: 1, suffix: b"large" };
        let value =
            NewValue::Inode { ino: 77, size: 65536, hash: entry_hash(b"large", &[3, 0, 0, 0]) };
        let mut block = vec![0; 1024];
        assert!(encode_block(&mut block, &mut [NewAttribute { name, value }]));
        let entry = Area::in_block(&block).find(name).unwrap();
        assert_eq!(entry.value, Value::Inode { ino: 77, size: 65536 });
        assert_eq!(entry.hash, entry_hash(b"large", &[3, 0, 0, 0]));
    }
}
