//! Extended attributes: behind the fixed fields of an inode, and in a block of their own.
//!
//! Source: kernel Documentation/filesystems/ext4/attributes.rst. Both places are an [`Area`]:
//! entries from the front, ended by four zero bytes, and values packed from the back. Offsets of
//! values count from the start of the block, or from the first entry of those in an inode. A large
//! value (`ea_inode`) lies in an inode of its own, and the entry names that.
//!
//! Damage is found once, by [`Area::in_inode`] or [`verify_block`]. Iteration relies on that for
//! its results, but not for its safety: on a bad area it ends early.

mod acl;
mod encode;
mod name;

use transaction::Corruption;

use super::address::Block;
use super::checksum::crc32c;

pub use acl::{acl_from_linux, acl_to_linux};
pub use encode::{
    NewAttribute, NewValue, edit_in_inode, encode_block, encode_in_inode, fits_in_block,
    fits_in_inode, set_value_inode,
};
pub use name::{AttributeName, INDEX_SYSTEM, is_acl_index};

/// Magic number of both places.
const MAGIC: u32 = 0xea02_0000;
/// Bytes of the header of a block: magic, refcount, blocks, hash, checksum, reserved.
pub const BLOCK_HEADER_SIZE: usize = 32;
/// Bytes of the header in an inode: the magic number.
pub const INODE_HEADER_SIZE: usize = 4;
/// Bytes of an entry before its name.
const ENTRY_SIZE: usize = 16;
/// Entries and values start at multiples of this.
const ALIGNMENT: usize = 4;
/// Largest value the kernel takes in an inode of its own, in bytes.
pub const VALUE_SIZE_MAX: u32 = 1 << 24;

/// Byte of `e_value_inum` in an entry.
const VALUE_INODE_OFFSET: usize = 4;
/// Byte of `e_hash` in an entry.
const ENTRY_HASH_OFFSET: usize = 12;
/// Byte of `h_refcount` in a block.
const REFCOUNT_OFFSET: usize = 4;
/// Byte of `h_blocks` in a block.
const BLOCKS_OFFSET: usize = 8;
/// Byte of `h_hash` in a block.
const HASH_OFFSET: usize = 12;
/// Byte of `h_checksum` in a block.
const CHECKSUM_OFFSET: usize = 16;

const STRUCTURE: &str = "extended attributes";

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Where the value of an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// In the same area.
    Here(&'a [u8]),
    /// In the data of an inode of its own.
    Inode {
        /// That inode.
        ino: u32,
        /// Length of the value in bytes.
        size: u32,
    },
}

/// An attribute as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// `e_name_index`: stands for the start of the name.
    pub name_index: u8,
    /// The rest of the name.
    pub name: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// `e_hash`; 0 means none.
    pub hash: u32,
}

/// A place that holds attributes.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    /// What the offsets of values count from.
    base: &'a [u8],
    /// Byte of `base` at which the entries start.
    entries: usize,
}

impl<'a> Area<'a> {
    /// The attributes in an inode: `bytes` are those of its slot behind `extra_isize`. `None` if
    /// there are none. Checks all entries.
    pub fn in_inode(bytes: &'a [u8]) -> Result<Option<Self>, Corruption> {
        if u32_at(bytes, 0) != Some(MAGIC) {
            return Ok(None);
        }
        let area = Self { base: &bytes[INODE_HEADER_SIZE..], entries: 0 };
        area.verify()?;
        Ok(Some(area))
    }

    /// The attributes in a verified block.
    pub fn in_block(block: &'a [u8]) -> Self {
        Self { base: block, entries: BLOCK_HEADER_SIZE }
    }

    /// All attributes, in the order they are stored.
    pub fn entries(self) -> impl Iterator<Item = Entry<'a>> {
        let mut at = self.entries;
        std::iter::from_fn(move || {
            let entry = self.entry(at).ok().flatten()?;
            at += entry_size(entry.name.len());
            Some(entry)
        })
    }

    /// Whether each value lies inside of the area, its padding included; an empty one, too.
    pub fn has_room_for_values(self) -> bool {
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

    /// The attribute of this name.
    pub fn find(self, name: AttributeName<'_>) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.name_index == name.index && entry.name == name.suffix)
    }

    /// The entry at a byte of the area, or `None` at the end of the entries.
    fn entry(self, at: usize) -> Result<Option<Entry<'a>>, &'static str> {
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
        Ok(Some(Entry { name_index: header[1], name, value, hash: word(12) }))
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
        // The four zero bytes that end the entries must not be part of a value either.
        if values_start < at + size_of::<u32>() {
            return Err(bad("values overlap the entries"));
        }
        Ok(())
    }
}

/// Bytes of an entry with its name.
pub const fn entry_size(name_len: usize) -> usize {
    (ENTRY_SIZE + name_len).next_multiple_of(ALIGNMENT)
}

/// Bytes a value takes in an area.
pub const fn value_size(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT)
}

/// Checks a block of attributes, which lies at `place`; with `seed` (the file system's, for the
/// inodes of equal attributes may share a block) the checksum.
pub fn verify_block(block: &[u8], place: Block, seed: Option<u32>) -> Result<(), Corruption> {
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

/// Checks all of a block of attributes but its checksum: what must be so before it is sealed.
pub fn verify_block_structure(block: &[u8]) -> Result<(), Corruption> {
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
        return bad("nothing refers to it");
    }
    Ok(())
}

/// Brings the checksum of a block of attributes up to date.
pub fn seal_block(block: &mut [u8], place: Block, seed: u32) {
    let checksum = block_checksum(block, place, seed);
    block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn block_checksum(block: &[u8], place: Block, seed: u32) -> u32 {
    let crc = crc32c(seed, &place.0.to_le_bytes());
    let crc = crc32c(crc, &block[..CHECKSUM_OFFSET]);
    crc32c(crc32c(crc, &[0; 4]), &block[CHECKSUM_OFFSET + 4..])
}

/// Number of inodes that share a verified block.
pub fn block_refcount(block: &[u8]) -> u32 {
    u32_at(block, REFCOUNT_OFFSET).unwrap_or(0)
}

/// Where the number of inodes that share a block lies in it, as 4 bytes.
pub const BLOCK_REFCOUNT_RANGE: std::ops::Range<usize> = REFCOUNT_OFFSET..REFCOUNT_OFFSET + 4;

/// Hash of the value of a large attribute, as its inode keeps it in the seconds of `atime`.
pub fn value_hash(file_system_seed: u32, value: &[u8]) -> u32 {
    crc32c(file_system_seed, value)
}

/// `e_hash` of an attribute whose value is in a block (`value`), or in an inode of its own (the
/// four bytes of [`value_hash`]).
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_value(name.iter().fold(0, |hash, &byte| hash_byte(hash, byte.into())), value)
}

/// [`entry_hash`] as machines with signed characters computed it.
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
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

/// `h_hash` of a block: by it, equal blocks are found. 0 if one of the entries has no hash.
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

/// Computed and stored `h_hash` of a verified block.
#[must_use]
pub fn block_hashes(block: &[u8]) -> (u32, u32) {
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
                    // Plausible lengths get further.
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
