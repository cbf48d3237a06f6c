//! Extended attributes: after the fixed fields of an inode, and in a separate block.
//!
//! Source: kernel Documentation/filesystems/ext4/attributes.rst. Both places are an `Area`: entries from the front,
//! ended by four zero bytes, and values packed from the back. Offsets of values are relative to the start of the block
//! or, in an inode, to the first entry. A large value (`ea_inode`) is stored in a separate inode, whose number is in
//! the entry.
//!
//! `Area::in_inode` and `verify_block` detect damage once. Iteration relies on that for correct results but not for
//! safety: in an invalid area it ends early.

mod acl;
mod encode;
mod name;

use engine::Corruption;

use super::address::Block;
use super::checksum::crc32c;

pub(crate) use acl::{acl_from_linux, acl_to_linux};
pub(crate) use encode::{NewAttribute, NewValue};
pub(crate) use encode::{
    edit_in_inode, encode_block, encode_in_inode, fits_in_block, fits_in_inode, set_value_inode,
};
pub(crate) use name::AttributeName;
pub(crate) use name::{INDEX_SYSTEM, is_acl_index};

/// Magic number of both kinds of areas.
const MAGIC: u32 = 0xea02_0000;
/// Size of a block's header in bytes: magic, refcount, blocks, hash, checksum, reserved.
pub(crate) const BLOCK_HEADER_SIZE: usize = 32;
/// Size of the header in an inode in bytes: the magic number.
pub(crate) const INODE_HEADER_SIZE: usize = 4;
/// Size of an entry without its name, in bytes.
const ENTRY_SIZE: usize = 16;
/// Alignment of entries and values in bytes.
const ALIGNMENT: usize = 4;
/// Maximum size of a value in a separate inode in the kernel, in bytes.
pub(crate) const VALUE_SIZE_MAX: u32 = 1 << 24;

/// Offset of `e_value_inum` in an entry.
const VALUE_INODE_OFFSET: usize = 4;
/// Offset of `e_hash` in an entry.
const ENTRY_HASH_OFFSET: usize = 12;
/// Offset of `h_refcount` in a block.
const REFCOUNT_OFFSET: usize = 4;
/// Offset of `h_blocks` in a block.
const BLOCKS_OFFSET: usize = 8;
/// Offset of `h_hash` in a block.
const HASH_OFFSET: usize = 12;
/// Offset of `h_checksum` in a block.
const CHECKSUM_OFFSET: usize = 16;

const STRUCTURE: &str = "extended attributes";

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Value of a stored attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A value in the same area.
    Here(&'a [u8]),
    /// A value in the data of a separate inode.
    Inode {
        /// Number of that inode.
        ino: u32,
        /// Length of the value in bytes.
        size: u32,
    },
}

/// A stored attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XattrEntry<'a> {
    /// `e_name_index`: number of the name's prefix.
    pub name_index: u8,
    /// Rest of the name.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// `e_hash`; 0 means none.
    pub hash: u32,
}

/// An area with attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area<'a> {
    /// Base of the value offsets.
    base: &'a [u8],
    /// Offset of the entries in `base`.
    entries: usize,
}

impl<'a> Area<'a> {
    /// Returns the attributes in an inode, or `None` if there are none. `bytes` is its slot after `extra_isize`.
    /// Verifies all entries.
    pub(crate) fn in_inode(bytes: &'a [u8]) -> Result<Option<Self>, Corruption> {
        if u32_at(bytes, 0) != Some(MAGIC) {
            return Ok(None);
        }
        let area = Self { base: &bytes[INODE_HEADER_SIZE..], entries: 0 };
        area.verify()?;
        Ok(Some(area))
    }

    /// Returns the attributes in a verified block.
    pub(crate) fn in_block(block: &'a [u8]) -> Self {
        Self { base: block, entries: BLOCK_HEADER_SIZE }
    }

    /// Iterates over all attributes in stored order.
    pub(crate) fn entries(self) -> impl Iterator<Item = XattrEntry<'a>> {
        let mut at = self.entries;
        std::iter::from_fn(move || {
            let entry = self.entry(at).ok().flatten()?;
            at += entry_size(entry.name.len());
            Some(entry)
        })
    }

    /// Returns whether each value, including its padding, is inside the area. This also applies to empty values.
    pub(crate) fn has_room_for_values(self) -> bool {
        let mut at = self.entries;
        while let Ok(Some(entry)) = self.entry(at) {
            let offset = usize::from(u16_at(self.base, at + 2).unwrap_or(0));
            if let Value::Here(value) = entry.value
                && offset + value_size(value.len()) > self.base.len()
            {
                return false;
            }
            at += entry_size(entry.name.len());
        }
        true
    }

    /// Finds the attribute with this name.
    pub(crate) fn find(self, name: AttributeName<'_>) -> Option<XattrEntry<'a>> {
        self.entries().find(|entry| entry.name_index == name.index && entry.name == name.suffix)
    }

    /// Returns the entry at an offset of the area, or `None` at the end of the entries.
    fn entry(self, at: usize) -> Result<Option<XattrEntry<'a>>, &'static str> {
        const CUT: &str = "the entries run past the end";
        let head = u32_at(self.base, at).ok_or(CUT)?;
        if head == 0 {
            return Ok(None);
        }
        let header = self.base.get(at..at + ENTRY_SIZE).ok_or(CUT)?;
        let name_start = at + ENTRY_SIZE;
        let name = self.base.get(name_start..name_start + usize::from(header[0])).ok_or(CUT)?;
        let word = |at| u32_at(header, at).unwrap_or(0);
        let (ino, size) = (word(4), word(8));
        let value = if ino != 0 {
            Value::Inode { ino, size }
        } else {
            let offset = usize::from(u16_at(header, 2).unwrap_or(0));
            let value = if size == 0 {
                Some(&[][..])
            } else {
                offset.checked_add(size as usize).and_then(|end| self.base.get(offset..end))
            };
            Value::Here(value.ok_or("a value runs past the end")?)
        };
        Ok(Some(XattrEntry { name_index: header[1], name, value, hash: word(12) }))
    }

    fn verify(self) -> Result<(), Corruption> {
        let bad = |problem| Corruption::new(STRUCTURE, problem);
        let mut at = self.entries;
        let mut values_start = self.base.len();
        while let Some(entry) = self.entry(at).map_err(bad)? {
            match entry.value {
                Value::Here(value) if !value.is_empty() => {
                    let offset = u16_at(self.base, at + 2).unwrap_or(0);
                    values_start = values_start.min(usize::from(offset));
                }
                Value::Inode { size, .. } if size > VALUE_SIZE_MAX => {
                    return Err(bad("a value is too large").mismatch(VALUE_SIZE_MAX, size));
                }
                _ => {}
            }
            at += entry_size(entry.name.len());
        }
        // The four zero bytes that end the entries must not overlap a value either.
        if values_start < at + size_of::<u32>() {
            return Err(bad("values overlap the entries"));
        }
        Ok(())
    }
}

/// Returns the size of an entry with its name, in bytes.
pub(crate) const fn entry_size(name_len: usize) -> usize {
    (ENTRY_SIZE + name_len).next_multiple_of(ALIGNMENT)
}

/// Returns the size of a value in an area, in bytes.
pub(crate) const fn value_size(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT)
}

/// Verifies an attribute block at `place`, and its checksum if there is a `seed`. The seed is that of the file system,
/// because several inodes may share the block.
pub(crate) fn verify_block(
    block: &[u8],
    place: Block,
    seed: Option<u32>,
) -> Result<(), Corruption> {
    verify_header(block)?;
    if let Some(seed) = seed {
        let stored = u32_at(block, CHECKSUM_OFFSET).unwrap_or(0);
        let computed = block_checksum(block, place, seed);
        if stored != computed {
            return Err(Corruption::checksum("extended attribute block", computed, stored));
        }
    }
    Area::in_block(block).verify()
}

/// Verifies an attribute block, except for its checksum. A block must pass this before it is sealed.
pub(crate) fn verify_block_structure(block: &[u8]) -> Result<(), Corruption> {
    verify_header(block)?;
    Area::in_block(block).verify()
}

fn verify_header(block: &[u8]) -> Result<(), Corruption> {
    let bad = |problem| Err(Corruption::new("extended attribute block", problem));
    if u32_at(block, 0) != Some(MAGIC) || block.len() < BLOCK_HEADER_SIZE {
        return bad("wrong magic number");
    }
    if u32_at(block, BLOCKS_OFFSET) != Some(1) {
        return bad("it is not one block long");
    }
    if u32_at(block, REFCOUNT_OFFSET) == Some(0) {
        return bad("its reference count is 0");
    }
    Ok(())
}

/// Updates the checksum of an attribute block.
pub fn seal_block(block: &mut [u8], place: Block, seed: u32) {
    let checksum = block_checksum(block, place, seed);
    block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn block_checksum(block: &[u8], place: Block, seed: u32) -> u32 {
    let crc = crc32c(seed, &place.0.to_le_bytes());
    let crc = crc32c(crc, &block[..CHECKSUM_OFFSET]);
    crc32c(crc32c(crc, &[0; 4]), &block[CHECKSUM_OFFSET + 4..])
}

/// Returns the number of inodes that share a verified block.
pub(crate) fn block_refcount(block: &[u8]) -> u32 {
    u32_at(block, REFCOUNT_OFFSET).unwrap_or(0)
}

/// Byte range of the reference count in a block.
pub(crate) const BLOCK_REFCOUNT_RANGE: std::ops::Range<usize> =
    REFCOUNT_OFFSET..REFCOUNT_OFFSET + 4;

/// Returns the hash of a large attribute's value, which its inode stores in the seconds of `atime`.
pub(crate) fn value_hash(file_system_seed: u32, value: &[u8]) -> u32 {
    crc32c(file_system_seed, value)
}

/// Returns `e_hash` of an attribute. `value` is its value in a block, or the four bytes of [`value_hash`] for a value
/// in a separate inode.
pub(crate) fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_value(name.iter().fold(0, |hash, &byte| hash_byte(hash, byte.into())), value)
}

/// Returns [`entry_hash`] as computed on machines with signed characters.
pub(crate) fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    let extended = |byte: u8| i32::from(byte.cast_signed()).cast_unsigned();
    hash_value(name.iter().fold(0, |hash, &byte| hash_byte(hash, extended(byte))), value)
}

fn hash_byte(hash: u32, byte: u32) -> u32 {
    hash.rotate_left(5) ^ byte
}

fn hash_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// Returns `h_hash` of a block, by which kernels find equal blocks; 0 if an entry has no hash.
fn block_hash(hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut all = 0_u32;
    for hash in hashes {
        if hash == 0 {
            return 0;
        }
        all = all.rotate_left(16) ^ hash;
    }
    all
}

/// Returns the computed and the stored `h_hash` of a verified block.
#[must_use]
pub(crate) fn block_hashes(block: &[u8]) -> (u32, u32) {
    let computed = block_hash(Area::in_block(block).entries().map(|entry| entry.hash));
    (computed, u32_at(block, HASH_OFFSET).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_area_is_read_without_harm(mut bytes in proptest::collection::vec(any::<u8>(), 64..1100)) {
            for small in [false, true] {
                if small {
                    // Smaller values give plausible lengths, which get further.
                    bytes.iter_mut().for_each(|b| *b &= 0x1f);
                }
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
                let _ = verify_block(&bytes, Block(1), Some(3));
                let _ = verify_block(&bytes, Block(1), None);
                let _ = Area::in_block(&bytes).entries().count();
                if let Ok(Some(area)) = Area::in_inode(&bytes) {
                    let _ = area.entries().count();
                }
            }
        }
    }

    #[test]
    fn values_must_not_overlap_the_entries() {
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&[1, 1, 20, 0]);
        bytes[12] = 4;
        bytes[20] = b'n';
        let overlap = Area::in_inode(&bytes).unwrap_err();
        assert!(overlap.to_string().contains("overlap"), "{overlap}");
        bytes[6] = 24;
        let area = Area::in_inode(&bytes).unwrap().unwrap();
        assert_eq!(area.entries().next().unwrap().name, b"n");
    }
}
