//! Leaves: entries sorted by hash at the front, names with values (or the location of values) at the back.
//!
//! After the common header: count be16, bytes of names in use be16, lowest byte in use be16 (0 means 65536), flag for
//! free space above that byte u8, 0, then three runs of free space {first be16, size be16}. Entries are {hash be32,
//! offset of the name be16, flags u8, 0}. At that offset: {value length be16, name length u8, name, value}, or, for a
//! remote value, {first logical block be32, value length be32, name length u8, name}; in multiples of 4 bytes.

use engine::Corruption;

use super::super::bytes::{be16, be32, be64};
use super::{AttrLayout, VALUE_LEN_MAX, flags, remote};

/// Size of an entry in the table at the front, in bytes.
pub(super) const ENTRY_SIZE: usize = 8;
/// Number of bytes before the name, with a local value.
pub(super) const LOCAL_SIZE: usize = 3;
/// Number of bytes before the name, with a remote value.
pub(super) const REMOTE_SIZE: usize = 9;
/// Number of free runs described by a header.
pub(super) const MAPS: usize = 3;
/// Alignment of names, in bytes.
pub(super) const ALIGNMENT: usize = 4;
/// Maximum size of a block, in units of the alignment.
const UNITS_MAX: usize = (1 << 16) / ALIGNMENT;

/// A value or its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'d> {
    /// In the leaf.
    Local(&'d [u8]),
    /// In blocks of the fork.
    Remote(remote::ValueLocation),
}

/// A stored entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttrLeafEntry<'d> {
    /// Hash of the name; for parent pointers also of the parent.
    pub hash: u32,
    /// Bits of [`flags`].
    pub flags: u8,
    /// The name.
    pub name: &'d [u8],
    /// The value.
    pub value: Value<'d>,
    /// Byte offset of its name area.
    pub(super) place: usize,
}

impl AttrLeafEntry<'_> {
    /// Returns the size of its name area in bytes, a multiple of 4.
    pub(crate) fn size(&self) -> usize {
        match self.value {
            Value::Local(value) => local_size(self.name.len(), value.len()),
            Value::Remote(_) => remote_size(self.name.len()),
        }
    }

    /// Returns whether the entry is valid.
    pub(crate) fn is_complete(&self) -> bool {
        self.flags & flags::INCOMPLETE == 0
    }
}

/// Returns the size of a name area with a local value, in bytes.
pub(crate) const fn local_size(name_len: usize, value_len: usize) -> usize {
    (LOCAL_SIZE + name_len + value_len).next_multiple_of(ALIGNMENT)
}

/// Additional bytes of a name with a remote value: kernels include the padding at the end of the structure, minus the
/// first byte of the name.
const REMOTE_PADDING: usize = 2;

/// Returns the size of a name area with a remote value, in bytes.
pub(crate) const fn remote_size(name_len: usize) -> usize {
    (REMOTE_SIZE + REMOTE_PADDING + name_len).next_multiple_of(ALIGNMENT)
}

/// Returns whether a name and value of these lengths are stored in leaves: they take less than three quarters of a
/// block.
pub(crate) const fn is_local(layout: AttrLayout, name_len: usize, value_len: usize) -> bool {
    local_size(name_len, value_len) < layout.block_size / 2 + layout.block_size / 4
}

/// The fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttrLeafHeader {
    pub(super) count: usize,
    /// Bytes of names in use.
    pub(super) used: usize,
    /// Lowest byte of a name; the block size if there is none.
    pub(super) first_used: usize,
    /// True if there is free space above `first_used`.
    pub(super) holes: bool,
    /// Free runs: first byte and size.
    pub(super) maps: [(usize, usize); MAPS],
}

impl AttrLeafHeader {
    pub(super) fn read(layout: AttrLayout, data: &[u8]) -> Self {
        let at = layout.info_size();
        let first_used = match be16(data, at + 4) {
            0 => 1 << 16,
            first => first.into(),
        };
        let map = |i: usize| {
            let at = at + 8 + i * 4;
            (be16(data, at).into(), be16(data, at + 2).into())
        };
        Self {
            count: be16(data, at).into(),
            used: be16(data, at + 2).into(),
            first_used,
            holes: data[at + 6] != 0,
            maps: [map(0), map(1), map(2)],
        }
    }

    /// Returns the end of the table of entries.
    pub(super) fn table_end(&self, layout: AttrLayout) -> usize {
        layout.leaf_header() + self.count * ENTRY_SIZE
    }

    /// Returns the number of free bytes, contiguous or not.
    pub(super) fn free(&self, layout: AttrLayout) -> usize {
        layout.block_size.saturating_sub(self.table_end(layout) + self.used)
    }
}

/// Returns the number of entries.
pub(crate) fn count(layout: AttrLayout, data: &[u8]) -> usize {
    let count = usize::from(be16(data, layout.info_size()));
    count.min((layout.block_size - layout.leaf_header()) / ENTRY_SIZE)
}

/// Returns whether names are in use without entries, because entries were lost.
pub(crate) fn has_lost_entries(layout: AttrLayout, data: &[u8]) -> bool {
    let header = AttrLeafHeader::read(layout, data);
    header.count == 0 && header.first_used < layout.block_size
}

/// Returns the hash of entry `index`, which must be below the count.
pub(crate) fn hash(layout: AttrLayout, data: &[u8], index: usize) -> u32 {
    be32(data, layout.leaf_header() + index * ENTRY_SIZE)
}

/// Returns the hash of the last entry.
pub(crate) fn last_hash(layout: AttrLayout, data: &[u8]) -> Option<u32> {
    Some(hash(layout, data, count(layout, data).checked_sub(1)?))
}

/// Returns the total size of entries and names: the free space needed to move them to another leaf.
pub(crate) fn content_size(layout: AttrLayout, data: &[u8]) -> usize {
    let header = AttrLeafHeader::read(layout, data);
    header.count * ENTRY_SIZE + header.used
}

/// Returns the number of bytes for entries and names.
pub(crate) const fn capacity(layout: AttrLayout) -> usize {
    layout.block_size - layout.leaf_header()
}

/// Returns the first entry whose hash is at least `wanted`; the count if there is none.
pub(crate) fn lower_bound(layout: AttrLayout, data: &[u8], wanted: u32) -> usize {
    let (mut low, mut high) = (0, count(layout, data));
    while low < high {
        let middle = (low + high) / 2;
        if hash(layout, data, middle) < wanted { low = middle + 1 } else { high = middle }
    }
    low
}

/// Returns entry `index`, or `None` if there is none, or it is not within the block.
pub(crate) fn entry(layout: AttrLayout, data: &[u8], index: usize) -> Option<AttrLeafEntry<'_>> {
    if index >= count(layout, data) {
        return None;
    }
    let at = layout.leaf_header() + index * ENTRY_SIZE;
    let (place, flags) = (usize::from(be16(data, at + 4)), data[at + 6]);
    let (name, value) = if flags & flags::LOCAL != 0 {
        let [v0, v1, name_len, rest @ ..] = data.get(place..)? else { return None };
        let (name, rest) = rest.split_at_checked(usize::from(*name_len))?;
        let value = rest.get(..usize::from(u16::from_be_bytes([*v0, *v1])))?;
        (name, Value::Local(value))
    } else {
        let (head, rest) = data.get(place..)?.split_at_checked(REMOTE_SIZE)?;
        let name = rest.get(..usize::from(head[8]))?;
        (name, Value::Remote(remote::ValueLocation { block: be32(head, 0), len: be32(head, 4) }))
    };
    Some(AttrLeafEntry { hash: be32(data, at), flags, name, value, place })
}

/// Returns all entries, by hash.
pub(crate) fn entries(layout: AttrLayout, data: &[u8]) -> impl Iterator<Item = AttrLeafEntry<'_>> {
    (0..count(layout, data)).map_while(move |index| entry(layout, data, index))
}

/// Checks a leaf: entries must be in order, and names must not overlap and must add up to the header's sum.
pub(crate) fn verify(layout: AttrLayout, data: &[u8]) -> Result<(), Corruption> {
    let damage = |problem: &'static str| Corruption::new("attribute leaf", problem);
    let header = AttrLeafHeader::read(layout, data);
    if header.count > capacity(layout) / ENTRY_SIZE {
        let most = capacity(layout) / ENTRY_SIZE;
        return Err(
            damage("count of entries").mismatch(format_args!("at most {most}"), header.count)
        );
    }
    let table_end = header.table_end(layout);
    if !(table_end..=layout.block_size).contains(&header.first_used) {
        let expected = format!("{table_end} to {}", layout.block_size);
        return Err(damage("start of its names").mismatch(expected, header.first_used));
    }
    let mut taken = Taken::default();
    let (mut used, mut hash) = (0, 0);
    for index in 0..header.count {
        let entry = verify_entry(layout, data, index, header.first_used)?;
        if entry.hash < hash {
            return Err(damage("hashes are not in order")
                .mismatch(format_args!("at least {hash:#x}"), format_args!("{:#x}", entry.hash)));
        }
        if !taken.take(entry.place, entry.size()) {
            return Err(damage("two names overlap"));
        }
        hash = entry.hash;
        used += entry.size();
    }
    if used != header.used {
        return Err(damage("bytes of names in use").mismatch(used, header.used));
    }
    // The free runs are checked against entries when they are used, because kernels have written wrong runs.
    for (first, size) in header.maps {
        if first + size > layout.block_size || !(first | size).is_multiple_of(ALIGNMENT) {
            return Err(damage("free space outside the block"));
        }
        if size > 0 && first < layout.leaf_header() {
            return Err(damage("free space in the header"));
        }
    }
    Ok(())
}

fn verify_entry(
    layout: AttrLayout,
    data: &[u8],
    index: usize,
    first_used: usize,
) -> Result<AttrLeafEntry<'_>, Corruption> {
    let damage = |problem: &'static str| Corruption::new("attribute leaf", problem);
    let Some(entry) = entry(layout, data, index) else {
        return Err(damage("a name reaches past the block"));
    };
    let end = entry.place + entry.size();
    if entry.place < first_used || end > layout.block_size || !entry.place.is_multiple_of(ALIGNMENT)
    {
        return Err(damage("a name outside the area of names"));
    }
    if entry.name.is_empty() {
        return Err(damage("an entry without a name"));
    }
    if (entry.flags & flags::NAMESPACE).count_ones() > 1 {
        return Err(damage("an entry in several namespaces"));
    }
    if let Value::Remote(place) = entry.value {
        let is_lost = entry.is_complete() && place.block == 0;
        if is_lost || place.len as usize > VALUE_LEN_MAX {
            return Err(damage("place or length of a value"));
        }
    }
    Ok(entry)
}

/// Used parts of a block, in units of the alignment.
struct Taken([u64; UNITS_MAX / 64]);

impl Default for Taken {
    fn default() -> Self {
        Self([0; UNITS_MAX / 64])
    }
}

impl Taken {
    /// Marks a range within a block used. Returns false if some of it already is.
    fn take(&mut self, first: usize, size: usize) -> bool {
        (first / ALIGNMENT..(first + size) / ALIGNMENT).all(|unit| {
            let (word, bit) = (unit / 64, 1 << (unit % 64));
            let was_free = self.0[word] & bit == 0;
            self.0[word] |= bit;
            was_free
        })
    }
}

/// Returns the parent in the value of a parent pointer: inode and generation. `None` if the value has another size.
pub(crate) fn parent_of(value: &[u8]) -> Option<(u64, u32)> {
    (value.len() == PARENT_SIZE).then(|| (be64(value, 0), be32(value, 8)))
}

/// Size of the value of a parent pointer, in bytes.
pub(crate) const PARENT_SIZE: usize = 12;

/// Returns the value of a parent pointer.
pub(crate) fn parent_value(ino: u64, generation: u32) -> [u8; PARENT_SIZE] {
    let mut value = [0; PARENT_SIZE];
    value[..8].copy_from_slice(&ino.to_be_bytes());
    value[8..].copy_from_slice(&generation.to_be_bytes());
    value
}
