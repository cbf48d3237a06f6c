//! Directory blocks.
//!
//! Source: kernel Documentation/filesystems/ext4/directory.rst. A block is a chain of records that fills it exactly. A
//! record with inode 0 is unused. With `metadata_csum`, the last 12 bytes are a record that contains the checksum.
//!
//! [`verify`] checks the whole chain once, when a block is read, and `verify_structure` before it is sealed for
//! writing. The other functions rely on that for correct results but not for safety: on an invalid chain they end
//! early.

mod note;

use engine::Corruption;
pub(crate) use note::{excludes, note, note_entry, note_first_room, note_removal, search_noted};
use vfs::FileType;

use super::checksum::crc32c;
use super::hash::NameHash;

const STRUCTURE: &str = "directory block";

/// Size of a record without its name, in bytes.
pub const HEADER_SIZE: usize = 8;

/// Size of the checksum record in bytes.
pub const TAIL_SIZE: usize = 12;

/// Size of the parent's inode number at the start of an inline directory, in bytes.
pub(crate) const INLINE_PARENT_SIZE: usize = 4;

/// File-type byte of the checksum record.
const TAIL_FILE_TYPE: u8 = 0xde;

/// Returns the size of a record with a name of this length, in bytes.
pub const fn record_size(name_len: usize) -> usize {
    (HEADER_SIZE + name_len).next_multiple_of(4)
}

/// A directory record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirRecord<'a> {
    /// Offset in the block, in bytes.
    pub offset: usize,
    /// Distance to the next record, in bytes.
    pub rec_len: usize,
    /// Inode number, 0 if unused.
    pub inode: u32,
    /// File-type byte; without the feature `filetype`, the high byte of the name's length.
    pub file_type: u8,
    /// The name.
    pub name: &'a [u8],
}

impl DirRecord<'_> {
    /// Returns the number of bytes of the record that are in use.
    pub(crate) fn used(&self) -> usize {
        if self.inode == 0 { 0 } else { record_size(self.name.len()) }
    }

    /// Returns the number of bytes of the record that a new record may use. The checksum record has none.
    fn room(&self) -> usize {
        let is_tail =
            self.inode == 0 && self.file_type == TAIL_FILE_TYPE && self.rec_len == TAIL_SIZE;
        if is_tail { 0 } else { self.rec_len - self.used() }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// `rec_len` cannot represent 65536; 0 and 65535 mean it.
fn decode_rec_len(raw: usize, block_len: usize) -> usize {
    if block_len >= 1 << 16 && (raw == 0 || raw == 0xffff) { 1 << 16 } else { raw }
}

fn encode_rec_len(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes()
}

/// Reads the record at `offset`. Returns `None` if there is no valid record.
#[inline]
pub fn record_at(block: &[u8], offset: usize) -> Option<DirRecord<'_>> {
    let header = block.get(offset..offset + HEADER_SIZE)?;
    let rec_len = decode_rec_len(u16_at(header, 4), block.len());
    let name_len = usize::from(header[6]);
    let name = block.get(offset + HEADER_SIZE..offset + HEADER_SIZE + name_len)?;
    let sound = rec_len >= record_size(name_len)
        && rec_len.is_multiple_of(4)
        && rec_len <= block.len() - offset;
    let inode = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    sound.then_some(DirRecord { offset, rec_len, inode, file_type: header[7], name })
}

/// Returns the hash after a name of a directory that is encrypted and case-insensitive. `offset` is that of the record.
/// Without space for a hash it is zero.
pub(crate) fn stored_hash(block: &[u8], offset: usize, name_len: usize) -> NameHash {
    let word = |at: usize| {
        let bytes = block.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let at = offset.saturating_add(record_size(name_len));
    NameHash { major: word(at), minor: word(at + 4) }
}

/// Size of the hash after a name, in bytes.
pub(crate) const STORED_HASH_SIZE: usize = 8;

/// Iterates over all records of a block, including unused ones.
pub fn records(block: &[u8]) -> impl Iterator<Item = DirRecord<'_>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let record = record_at(block, offset)?;
        offset += record.rec_len;
        Some(record)
    })
}

/// Iterates over the records in use.
pub fn entries(block: &[u8]) -> impl Iterator<Item = DirRecord<'_>> {
    records(block).filter(|r| r.inode != 0)
}

/// Result of searching a block for a name and for room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Search<'a> {
    /// The name exists.
    Found(DirRecord<'a>),
    /// The name is not there, and a new record fits after the used part of this one.
    Room {
        /// Offset of the existing record.
        offset: usize,
        /// Number of its bytes in use; 0 for an unused record.
        used: usize,
        /// Its whole length.
        rec_len: usize,
    },
    /// The name is not there, and no new record fits.
    Full,
}

/// A name to search for. Its last eight bytes serve as a quick test.
struct Probe<'n> {
    name: &'n [u8],
    end: u64,
    /// Number of bits of the word that do not belong to a shorter name.
    shift: u32,
}

impl<'n> Probe<'n> {
    fn new(name: &'n [u8]) -> Self {
        let end = name.iter().rev().take(8).fold(0, |end, &byte| end << 8 | u64::from(byte));
        Self { name, end, shift: 64 - 8 * name.len().clamp(1, 8) as u32 }
    }

    /// Returns whether the record at `offset`, whose name has the same length, has this name.
    #[inline]
    fn is_at(&self, block: &[u8], offset: usize) -> bool {
        // The eight bytes that end with the name are inside the record, because its header has eight bytes.
        let end = offset + self.name.len();
        let word = block.get(end..).and_then(<[u8]>::first_chunk::<8>);
        word.is_some_and(|word| u64::from_le_bytes(*word) >> self.shift == self.end)
            && block.get(offset + HEADER_SIZE..end + HEADER_SIZE) == Some(self.name)
    }
}

/// Searches a block for `name` and for the first place where it would fit.
///
/// This is the most frequent step of file creation. So records are first compared by their headers, and examined
/// further only if the length of the name or the free space fits.
pub(crate) fn search<'a>(block: &'a [u8], name: &[u8]) -> Search<'a> {
    let needed = record_size(name.len());
    let probe = Probe::new(name);
    let mut room = Search::Full;
    let mut offset = 0;
    while let Some(header) = block.get(offset..).and_then(<[u8]>::first_chunk::<HEADER_SIZE>) {
        let header = u64::from_le_bytes(*header);
        let is_used = header as u32 != 0;
        let rec_len = decode_rec_len((header >> 32) as usize & 0xffff, block.len());
        let name_len = (header >> 48) as usize & 0xff;
        if name_len == name.len()
            && is_used
            && probe.is_at(block, offset)
            && let Some(record) = record_at(block, offset)
        {
            return Search::Found(record);
        }
        let used = if is_used { record_size(name_len) } else { 0 };
        if rec_len >= used + needed
            && room == Search::Full
            && record_at(block, offset).is_some_and(|record| record.room() >= needed)
        {
            room = Search::Room { offset, used, rec_len };
        }
        if rec_len < HEADER_SIZE {
            break;
        }
        offset += rec_len;
    }
    room
}

/// Finds the record of a name.
pub fn find<'a>(block: &'a [u8], name: &[u8]) -> Option<DirRecord<'a>> {
    locate(block, name).map(|(record, _)| record)
}

/// Finds the record of a name. Returns also the offset of the record before it, if it is not the first.
pub(crate) fn locate<'a>(block: &'a [u8], name: &[u8]) -> Option<(DirRecord<'a>, Option<usize>)> {
    let probe = Probe::new(name);
    let (mut before, mut offset) = (None, 0);
    while let Some(header) = block.get(offset..).and_then(<[u8]>::first_chunk::<HEADER_SIZE>) {
        let header = u64::from_le_bytes(*header);
        let rec_len = decode_rec_len((header >> 32) as usize & 0xffff, block.len());
        if (header >> 48) as usize & 0xff == name.len()
            && header as u32 != 0
            && probe.is_at(block, offset)
            && let Some(record) = record_at(block, offset)
        {
            return Some((record, before));
        }
        if rec_len < HEADER_SIZE {
            break;
        }
        before = Some(offset);
        offset += rec_len;
    }
    None
}

/// Like [`locate`], but `is_wanted` compares the names.
pub(crate) fn locate_by<'a>(
    block: &'a [u8],
    mut is_wanted: impl FnMut(&[u8]) -> bool,
) -> Option<(DirRecord<'a>, Option<usize>)> {
    let mut before = None;
    for record in records(block) {
        if record.inode != 0 && is_wanted(record.name) {
            return Some((record, before));
        }
        before = Some(record.offset);
    }
    None
}

/// Writes a record of length `rec_len` to the start of `bytes`.
pub(crate) fn write_record(
    bytes: &mut [u8],
    rec_len: usize,
    inode: u32,
    file_type: u8,
    name: &[u8],
) {
    bytes[..4].copy_from_slice(&inode.to_le_bytes());
    bytes[4..6].copy_from_slice(&encode_rec_len(rec_len));
    bytes[6] = name.len() as u8;
    bytes[7] = file_type;
    bytes[HEADER_SIZE..HEADER_SIZE + name.len()].copy_from_slice(name);
}

/// Writes the length field of a record, which is all of `bytes`.
pub(crate) fn write_rec_len(bytes: &mut [u8], rec_len: usize) {
    bytes.copy_from_slice(&encode_rec_len(rec_len));
}

/// Writes the checksum record with a zero checksum to the end of a block.
pub(crate) fn write_tail(block: &mut [u8]) {
    let at = block.len() - TAIL_SIZE;
    write_record(&mut block[at..], TAIL_SIZE, 0, TAIL_FILE_TYPE, &[]);
    block[at + 8..].fill(0);
}

/// Returns whether a block ends in a checksum record.
fn has_tail(block: &[u8]) -> bool {
    let tail = &block[block.len() - TAIL_SIZE..];
    tail[..4] == [0; 4] && u16_at(tail, 4) == TAIL_SIZE && tail[6] == 0 && tail[7] == TAIL_FILE_TYPE
}

/// Verifies a block that was read: its checksum if there is a `seed`, and everything that `verify_structure` checks.
pub fn verify(block: &[u8], inodes: u32, seed: Option<u32>) -> Result<(), Corruption> {
    if let Some(seed) = seed {
        check_tail(block)?;
        let (body, tail) = block.split_at(block.len() - TAIL_SIZE);
        let stored = u32::from_le_bytes([tail[8], tail[9], tail[10], tail[11]]);
        let computed = crc32c(seed, body);
        if stored != computed {
            return Err(Corruption::checksum(STRUCTURE, computed, stored));
        }
    }
    verify_structure(block, inodes, seed.is_some())
}

/// Checks the chain of records and their inode numbers (at most `inodes`), and that there is a checksum record if the
/// file system `has_checksums`. A block must pass this before it is sealed.
///
/// Every changed block is checked once per checkpoint, so headers are read as one number each.
pub(crate) fn verify_structure(
    block: &[u8],
    inodes: u32,
    has_checksums: bool,
) -> Result<(), Corruption> {
    if has_checksums {
        check_tail(block)?;
    }
    let mut offset = 0;
    while let Some(header) = block.get(offset..).and_then(<[u8]>::first_chunk::<HEADER_SIZE>) {
        let header = u64::from_le_bytes(*header);
        let (inode, name_len) = (header as u32, (header >> 48) as usize & 0xff);
        let rec_len = decode_rec_len((header >> 32) as usize & 0xffff, block.len());
        if rec_len < record_size(name_len)
            || !rec_len.is_multiple_of(4)
            || rec_len > block.len() - offset
        {
            break;
        }
        if inode > inodes {
            let damage =
                Corruption::new(STRUCTURE, "an entry refers to an inode past the last one");
            return Err(damage.mismatch(format_args!("at most {inodes}"), inode));
        }
        // Encrypted names may contain any byte. Other names are checked when they are used.
        if inode != 0 && name_len == 0 {
            return Err(Corruption::new(STRUCTURE, "an entry without a name"));
        }
        offset += rec_len;
    }
    if offset == block.len() {
        return Ok(());
    }
    Err(Corruption::new(STRUCTURE, format!("the chain of entries is broken at byte {offset}")))
}

fn check_tail(block: &[u8]) -> Result<(), Corruption> {
    if has_tail(block) {
        return Ok(());
    }
    Err(Corruption::new(STRUCTURE, "no checksum at its end"))
}

/// Updates the checksum of a block that ends in a checksum record.
pub fn seal(block: &mut [u8], seed: u32) {
    let at = block.len() - TAIL_SIZE;
    let checksum = crc32c(seed, &block[..at]);
    block[at + 8..].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the file-type byte of a type.
pub(crate) const fn file_type_code(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

/// Returns the type of a file-type byte, if it is valid.
pub const fn file_type_from_code(code: u8) -> Option<FileType> {
    Some(match code {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn insert(block: &mut [u8], name: &[u8], inode: u32) -> bool {
        let Search::Room { offset, used, rec_len } = search(block, name) else { return false };
        if used > 0 {
            write_rec_len(&mut block[offset + 4..offset + 6], used);
        }
        write_record(&mut block[offset + used..], rec_len - used, inode, 1, name);
        true
    }

    proptest! {
        #[test]
        fn any_block_is_searched_without_harm(block in proptest::collection::vec(any::<u8>(), 1024)) {
            let _ = verify(&block, 100, None);
            let _ = verify(&block, 100, Some(1));
            let _ = (search(&block, b"abc"), find(&block, b"abc"), entries(&block).count());
        }

        #[test]
        fn inserted_entries_can_be_found(
            names in proptest::collection::vec(proptest::collection::vec(1_u8..40, 1..40), 30..120)
        ) {
            let mut block = vec![0; 1024];
            write_record(&mut block, 1024 - TAIL_SIZE, 0, 0, &[]);
            write_tail(&mut block);
            let mut model = BTreeMap::new();
            for (i, name) in names.iter().enumerate() {
                let inode = i as u32 + 1;
                let done = insert(&mut block, name, inode);
                prop_assert!(!(done && model.contains_key(name)));
                if done {
                    model.insert(name.clone(), inode);
                }
                prop_assert!(done || model.contains_key(name) || model.len() > 8);
            }
            seal(&mut block, 9);
            let inodes = names.len() as u32;
            prop_assert!(verify(&block, inodes, Some(9)).is_ok());
            prop_assert!(verify(&block, inodes, Some(8)).is_err());
            let found: BTreeMap<_, _> = entries(&block).map(|r| (r.name.to_vec(), r.inode)).collect();
            prop_assert_eq!(found, model);
        }
    }

    #[test]
    fn a_record_may_fill_a_block_of_64_kib() {
        let mut block = vec![0; 1 << 16];
        write_record(&mut block, 1 << 16, 0, 0, &[]);
        assert!(verify(&block, 1, None).is_ok());
        assert!(insert(&mut block, b"x", 1));
        assert_eq!(find(&block, b"x").unwrap().rec_len, 1 << 16);
    }
}
