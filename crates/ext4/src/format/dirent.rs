//! Blocks of directory entries.
//!
//! Source: kernel Documentation/filesystems/ext4/directory.rst. A block is a chain of records that
//! fills it exactly; a record with inode 0 is unused. With `metadata_csum` the last 12 bytes are a
//! record of their own that holds the checksum.
//!
//! [`verify`] checks the whole chain once, when a block is read, and [`verify_structure`] before it is sealed
//! to be written. The other functions rely on that for their results, but not for their safety: on a bad
//! chain they end early.

mod note;

pub use note::{may_have, note, note_entry, note_removal, search_noted};
use transaction::Corruption;
use vfs::FileType;

use super::checksum::crc32c;

const STRUCTURE: &str = "directory block";

/// Bytes of a record before its name.
pub const HEADER_SIZE: usize = 8;

/// Bytes of the record that holds the checksum.
pub const TAIL_SIZE: usize = 12;

/// What the file-type byte of the checksum record holds.
const TAIL_FILE_TYPE: u8 = 0xde;

/// Bytes a record with a name of this length needs.
pub const fn record_size(name_len: usize) -> usize {
    (HEADER_SIZE + name_len).next_multiple_of(4)
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Byte of the block it starts at.
    pub offset: usize,
    /// Bytes to the next record.
    pub rec_len: usize,
    /// Inode number, 0 if unused.
    pub inode: u32,
    /// File-type byte; the high byte of the name's length where the file system has no
    /// `filetype`.
    pub file_type: u8,
    /// The name.
    pub name: &'a [u8],
}

impl Record<'_> {
    /// Bytes of the record that are in use.
    pub fn used(&self) -> usize {
        if self.inode == 0 { 0 } else { record_size(self.name.len()) }
    }

    /// Bytes of the record that a new one may take. The checksum record gives none.
    fn room(&self) -> usize {
        let is_tail =
            self.inode == 0 && self.file_type == TAIL_FILE_TYPE && self.rec_len == TAIL_SIZE;
        if is_tail { 0 } else { self.rec_len - self.used() }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// `rec_len` cannot say 65536: 0 and 65535 stand for it.
fn decode_rec_len(raw: usize, block_len: usize) -> usize {
    if block_len >= 1 << 16 && (raw == 0 || raw == 0xffff) { 1 << 16 } else { raw }
}

fn encode_rec_len(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes()
}

/// Reads the record at `offset`, or `None` where there is no sound one.
#[inline]
pub fn record_at(block: &[u8], offset: usize) -> Option<Record<'_>> {
    let header = block.get(offset..offset + HEADER_SIZE)?;
    let rec_len = decode_rec_len(u16_at(header, 4), block.len());
    let name_len = usize::from(header[6]);
    let name = block.get(offset + HEADER_SIZE..offset + HEADER_SIZE + name_len)?;
    let sound = rec_len >= record_size(name_len)
        && rec_len.is_multiple_of(4)
        && rec_len <= block.len() - offset;
    let inode = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    sound.then_some(Record { offset, rec_len, inode, file_type: header[7], name })
}

/// All records of a block, unused ones included.
pub fn records(block: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let record = record_at(block, offset)?;
        offset += record.rec_len;
        Some(record)
    })
}

/// The records that name something.
pub fn entries(block: &[u8]) -> impl Iterator<Item = Record<'_>> {
    records(block).filter(|r| r.inode != 0)
}

/// What a search of a block for a name and for room found.
#[derive(Debug, PartialEq, Eq)]
pub enum Search<'a> {
    /// The name is there.
    Found(Record<'a>),
    /// It is not, and a new record fits behind the used part of this one.
    Room {
        /// Where the host record starts.
        offset: usize,
        /// Bytes of it in use; 0 if it is an unused one.
        used: usize,
        /// Its whole length.
        rec_len: usize,
    },
    /// It is not, and nothing fits.
    Full,
}

/// A name to look for in a block, told from most others by its last eight bytes.
struct Probe<'n> {
    name: &'n [u8],
    end: u64,
    /// Bits of a word that are not the name's, if it is shorter.
    shift: u32,
}

impl<'n> Probe<'n> {
    fn new(name: &'n [u8]) -> Self {
        let end = name.iter().rev().take(8).fold(0, |end, &byte| end << 8 | u64::from(byte));
        Self { name, end, shift: 64 - 8 * name.len().clamp(1, 8) as u32 }
    }

    /// Whether the record at `offset`, whose name is as long, names it.
    #[inline]
    fn is_at(&self, block: &[u8], offset: usize) -> bool {
        // The eight bytes that end with the name are inside of the record, for its header has
        // as many.
        let end = offset + self.name.len();
        let word = block.get(end..).and_then(<[u8]>::first_chunk::<8>);
        word.is_some_and(|word| u64::from_le_bytes(*word) >> self.shift == self.end)
            && block.get(offset + HEADER_SIZE..end + HEADER_SIZE) == Some(self.name)
    }
}

/// Searches a block for `name`, and for the first place where it would fit.
///
/// Nothing is done more often when files are made, so records are told apart by their headers
/// alone, and looked at closely only where the length of the name or the room is right.
pub fn search<'a>(block: &'a [u8], name: &[u8]) -> Search<'a> {
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

/// The record of a name.
pub fn find<'a>(block: &'a [u8], name: &[u8]) -> Option<Record<'a>> {
    locate(block, name).map(|(record, _)| record)
}

/// The record of a name, and where the record before it starts, if it is not the first.
pub fn locate<'a>(block: &'a [u8], name: &[u8]) -> Option<(Record<'a>, Option<usize>)> {
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

/// As [`locate`], for a name that is told by `is_wanted`.
pub fn locate_by<'a>(
    block: &'a [u8],
    mut is_wanted: impl FnMut(&[u8]) -> bool,
) -> Option<(Record<'a>, Option<usize>)> {
    let mut before = None;
    for record in records(block) {
        if record.inode != 0 && is_wanted(record.name) {
            return Some((record, before));
        }
        before = Some(record.offset);
    }
    None
}

/// Writes a record to the start of `bytes`, `rec_len` bytes long.
pub fn write_record(bytes: &mut [u8], rec_len: usize, inode: u32, file_type: u8, name: &[u8]) {
    bytes[..4].copy_from_slice(&inode.to_le_bytes());
    bytes[4..6].copy_from_slice(&encode_rec_len(rec_len));
    bytes[6] = name.len() as u8;
    bytes[7] = file_type;
    bytes[HEADER_SIZE..HEADER_SIZE + name.len()].copy_from_slice(name);
}

/// Writes the length field of a record; `bytes` is the field.
pub fn write_rec_len(bytes: &mut [u8], rec_len: usize) {
    bytes.copy_from_slice(&encode_rec_len(rec_len));
}

/// Writes the checksum record, its checksum still zero, over the end of a block.
pub fn write_tail(block: &mut [u8]) {
    let at = block.len() - TAIL_SIZE;
    write_record(&mut block[at..], TAIL_SIZE, 0, TAIL_FILE_TYPE, &[]);
    block[at + 8..].fill(0);
}

/// Whether a block ends in a checksum record.
fn has_tail(block: &[u8]) -> bool {
    let tail = &block[block.len() - TAIL_SIZE..];
    tail[..4] == [0; 4] && u16_at(tail, 4) == TAIL_SIZE && tail[6] == 0 && tail[7] == TAIL_FILE_TYPE
}

/// Checks a block that was read: with `seed` its checksum, then everything else as [`verify_structure`] does.
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

/// Checks the chain of records and their inode numbers (at most `inodes`), and that there is a place for the
/// checksum where the file system `has_checksums`: all that must be so before a block is sealed.
///
/// Each block that changed is checked once a checkpoint, so headers are read as one number each.
pub fn verify_structure(block: &[u8], inodes: u32, has_checksums: bool) -> Result<(), Corruption> {
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
            let damage = Corruption::new(STRUCTURE, "an entry names an inode past the last");
            return Err(damage.mismatch(format_args!("at most {inodes}"), inode));
        }
        // Any byte may be part of an encrypted name: other names are checked where they are used.
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

/// Brings the checksum of a block that ends in a checksum record up to date.
pub fn seal(block: &mut [u8], seed: u32) {
    let at = block.len() - TAIL_SIZE;
    let checksum = crc32c(seed, &block[..at]);
    block[at + 8..].copy_from_slice(&checksum.to_le_bytes());
}

/// The byte that stands for a type in a record.
pub const fn file_type_code(file_type: FileType) -> u8 {
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

/// The type a record's byte stands for, if any.
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
        fn what_is_inserted_is_found(
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
