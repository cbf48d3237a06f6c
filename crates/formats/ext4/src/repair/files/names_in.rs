//! Reads the entries of a directory, and makes their names valid.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use vfs::FileType;

use super::attributes;
use super::inode_draft::InodeDraft;
use super::map::Map;
use super::repair_context::RepairContext;
use crate::check::checked_image::CheckedImage;
use crate::dir::casefold;
use crate::format::dirent::{self, DirRecord, HEADER_SIZE, record_size};
use crate::format::features::Incompat;
use crate::format::inode::{I_BLOCK_SIZE, flags};

/// Maximum length of a name.
const NAME_MAX: usize = 255;
/// Minimum length of an encrypted name.
const ENCRYPTED_NAME_MIN: usize = 16;
/// Size of the hash after a name that is encrypted and case-insensitive, in bytes.
const HASH_SIZE: usize = 8;

/// A directory entry other than `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundName {
    pub(super) name: Vec<u8>,
    pub(super) ino: u32,
    /// Type code of the entry; 0 without types.
    pub(super) file_type: u8,
    /// File block that contained the entry; 0 for other entries.
    pub(super) block: u32,
    /// Hash after the name, in encrypted case-insensitive directories.
    hash: Option<[u8; HASH_SIZE]>,
}

impl FoundName {
    pub(super) const fn new(name: Vec<u8>, ino: u32, file_type: u8) -> Self {
        Self { name, ino, file_type, block: 0, hash: None }
    }

    /// Returns the hash stored after the name, if it depends on a key.
    pub(super) fn stored_hash(&self) -> Option<u32> {
        let hash = self.hash.filter(|hash| *hash != [0; HASH_SIZE])?;
        Some(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]))
    }

    /// Returns the size of its record in bytes.
    pub(super) fn size(&self) -> usize {
        record_size(self.name.len() + self.hash.map_or(0, |hash| hash.len()))
    }

    /// Writes its record of `rec_len` bytes.
    pub(super) fn write(&self, bytes: &mut [u8], rec_len: usize) {
        dirent::write_record(bytes, rec_len, self.ino, self.file_type, &self.name);
        if let Some(hash) = self.hash {
            let at = (HEADER_SIZE + self.name.len()).next_multiple_of(4);
            if let Some(room) = bytes.get_mut(at..at + HASH_SIZE) {
                room.copy_from_slice(&hash);
            }
        }
    }
}

/// Entries of a directory.
#[derive(Clone, Default)]
pub(super) struct DirectoryNames {
    pub(super) entries: Vec<FoundName>,
    /// Target of `..`; 0 if that cannot be read.
    pub(super) dot_dot: u32,
    /// True if the device failed to read part of the directory, so that it must not change.
    pub(super) is_unreadable: bool,
    /// Hash version of its index, if there is one.
    pub(super) hash_version: Option<u8>,
}

/// Reads all entries of a directory that lead to an inode in use. Requires a survey. After a damaged record, the search
/// for entries continues.
pub(super) fn read(checked: &CheckedImage, subject: &InodeDraft, map: &Map) -> DirectoryNames {
    let mut reader = NameReader { checked, subject, names: DirectoryNames::default(), block: 0 };
    if subject.has(flags::INLINE_DATA) {
        reader.inline();
        return reader.names;
    }
    reader.names.is_unreadable = map.is_unreadable;
    let blocks = subject.inode.size() >> checked.geometry().block_size_log;
    for run in &map.runs {
        for at in 0..run.len {
            let number = run.first + at;
            if u64::from(number) >= blocks {
                break;
            }
            match checked.block(run.start.plus(at.into())) {
                Some(bytes) => reader.block(number, &bytes),
                None => reader.names.is_unreadable = true,
            }
        }
    }
    reader.names
}

struct NameReader<'s> {
    checked: &'s CheckedImage,
    subject: &'s InodeDraft,
    names: DirectoryNames,
    /// The current file block.
    block: u32,
}

impl NameReader<'_> {
    fn inline(&mut self) {
        let root = *self.subject.inode.i_block();
        let parent = [root[0], root[1], root[2], root[3]];
        self.names.dot_dot = u32::from_le_bytes(parent);
        self.chain(&root[4..I_BLOCK_SIZE], 0);
        if let Some(rest) = attributes::inline_rest(self.subject) {
            self.chain(&rest, 0);
        }
    }

    fn block(&mut self, number: u32, bytes: &[u8]) {
        self.block = number;
        if number > 0 {
            // A block that starts another directory does not belong to this one.
            let dot = dirent::record_at(bytes, 0).filter(|dot| dot.name == b"." && dot.inode != 0);
            let is_other = dot.is_some_and(|dot| dot.inode != self.subject.ino)
                && dirent::record_at(bytes, record_size(1)).is_some_and(|r| r.name == b"..");
            if !is_other {
                self.chain(bytes, 0);
            }
            return;
        }
        const DOT_DOT: usize = record_size(1);
        let dot_dot = dirent::record_at(bytes, DOT_DOT).filter(|record| record.name == b"..");
        if let Some(dot_dot) = dot_dot {
            self.names.dot_dot = dot_dot.inode;
        }
        if self.subject.has(flags::INDEX) {
            // The index follows the two entries.
            if bytes[0x1d] == 8 {
                self.names.hash_version = Some(bytes[0x1c]);
            }
            if dot_dot.is_some_and(|record| DOT_DOT + record.rec_len == bytes.len()) {
                return;
            }
        }
        self.chain(bytes, 0);
    }

    /// Takes entries from a chain. Where it is broken, continues inside a record whose length is too large, behind a
    /// record whose name is too long, or behind the name of the broken record. Otherwise continues at the next bytes that look like an entry.
    fn chain(&mut self, bytes: &[u8], start: usize) {
        let mut at = start;
        // End of the name of the last record.
        let mut behind_name = start;
        let mut is_sure = true;
        while at + HEADER_SIZE <= bytes.len() {
            let record = dirent::record_at(bytes, at);
            let record = record.filter(|record| is_sure || self.is_plausible(record));
            let inodes_count = self.checked.params().sb.inodes_count;
            let is_doubtful = record.is_none_or(|record| record.inode > inodes_count);
            let covered = || self.covered(bytes, behind_name..at);
            if let Some(covered) = is_doubtful.then(covered).flatten() {
                at = covered;
                is_sure = true;
            } else if let Some(record) = record {
                self.take(bytes, &record);
                behind_name = at + record_size(record.name.len());
                at += record.rec_len;
                is_sure = true;
            } else if let Some(record) = self.record_of_length(bytes, at).filter(|_| is_sure) {
                self.take(bytes, &record);
                at += record.rec_len;
                behind_name = at;
            } else if let Some(record) = self.record_of_name(bytes, at).filter(|_| is_sure) {
                self.take(bytes, &record);
                at += record.rec_len;
                behind_name = at;
                is_sure = false;
            } else {
                at += 4;
                behind_name = at;
                is_sure = false;
            }
        }
    }

    /// Returns the position of the first record in `range` from which a chain leads beyond the range. Removed entries
    /// before a broken record lead to the end of the range instead.
    fn covered(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
        let mut met = HashSet::new();
        range.clone().step_by(4).find(|&start| {
            let first = dirent::record_at(bytes, start);
            if !first.is_some_and(|first| self.is_plausible(&first)) {
                return false;
            }
            let mut at = start;
            while at < range.end && met.insert(at) {
                match dirent::record_at(bytes, at) {
                    Some(record) => at += record.rec_len,
                    None => return false,
                }
            }
            let goes_on = at == bytes.len() || dirent::record_at(bytes, at).is_some();
            at > range.end && goes_on
        })
    }

    /// Returns the record at a position if all of it is plausible except the length of its name. The name then ends at
    /// the first NUL or with the record, and another plausible or unused record follows.
    fn record_of_length<'b>(&self, bytes: &'b [u8], offset: usize) -> Option<DirRecord<'b>> {
        let header = bytes.get(offset..)?.first_chunk::<HEADER_SIZE>()?;
        let rec_len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let end = offset + rec_len;
        let name = bytes.get(offset + HEADER_SIZE..end).filter(|_| rec_len.is_multiple_of(4))?;
        let name = name.split(|&byte| byte == 0).next()?;
        let is_next = |next: DirRecord<'_>| next.inode == 0 || self.is_plausible(&next);
        let goes_on = end == bytes.len() || dirent::record_at(bytes, end).is_some_and(is_next);
        let inode = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let record = DirRecord { offset, rec_len, inode, file_type: header[7], name };
        (usize::from(header[6]) > name.len() && goes_on && self.is_plausible(&record))
            .then_some(record)
    }

    /// Returns the record at a position if all of it is plausible except its length. It then ends with its name.
    fn record_of_name<'b>(&self, bytes: &'b [u8], offset: usize) -> Option<DirRecord<'b>> {
        let header = bytes.get(offset..)?.first_chunk::<HEADER_SIZE>()?;
        let inode = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let (name_len, file_type) = (usize::from(header[6]), header[7]);
        let name = bytes.get(offset + HEADER_SIZE..)?.get(..name_len)?;
        let rec_len = record_size(name_len);
        let record = DirRecord { offset, rec_len, inode, file_type, name };
        self.is_plausible(&record).then_some(record)
    }

    /// Returns whether bytes inside a broken chain look like an entry.
    fn is_plausible(&self, record: &DirRecord<'_>) -> bool {
        let has_types = self.checked.params().filetype;
        let is_name = !record.name.is_empty()
            && !record.name.iter().any(|&byte| byte == 0 || byte == b'/')
            || self.subject.has(flags::ENCRYPT) && record.name.len() >= ENCRYPTED_NAME_MIN;
        let known = self.checked.known(record.inode);
        is_name && known.is_some_and(|known| !has_types || known.type_code == record.file_type)
    }

    fn take(&mut self, bytes: &[u8], record: &DirRecord<'_>) {
        let own = self.subject.ino;
        let is_dot = matches!(record.name, b"." | b"..");
        let known = self.checked.known(record.inode);
        let first = self.checked.params().sb.first_ino;
        let (Some(known), true) = (known, record.inode >= first && record.inode != own) else {
            return;
        };
        // An entry with an empty name cannot be accessed. Its inode is found later.
        let is_empty = record.name.is_empty();
        let is_parent = is_dot && known.is_dir;
        if known.is_nameless || is_empty || is_parent {
            return;
        }
        let file_type = if self.checked.params().filetype { known.type_code } else { 0 };
        let is_hashed = self.subject.has(flags::ENCRYPT) && self.subject.has(flags::CASEFOLD);
        let hash = is_hashed.then(|| {
            let at = record.offset + (HEADER_SIZE + record.name.len()).next_multiple_of(4);
            bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default()
        });
        let name = record.name.to_vec();
        let (ino, block) = (record.inode, self.block);
        self.names.entries.push(FoundName { name, ino, file_type, block, hash });
    }
}

/// Makes names valid and unique. A duplicate entry is kept once. With `strict`, names in a case-insensitive directory
/// must be UTF-8. Returns whether all names were so.
pub(super) fn settle(subject: &InodeDraft, strict: bool, entries: &mut Vec<FoundName>) -> bool {
    let count = entries.len();
    let is_encrypted = subject.has(flags::ENCRYPT);
    if is_encrypted {
        entries.retain(|entry| entry.name.len() >= ENCRYPTED_NAME_MIN);
    }
    let is_folded = subject.has(flags::CASEFOLD) && !is_encrypted;
    let key = |name: &[u8]| {
        let mut folded = Vec::new();
        if is_folded {
            casefold::fold(name, &mut folded);
            folded
        } else {
            name.to_vec()
        }
    };
    let mut met: HashSet<Vec<u8>> = HashSet::with_capacity(entries.len());
    let mut both: HashSet<(Vec<u8>, u32)> = HashSet::with_capacity(entries.len());
    let mut settled = Vec::with_capacity(entries.len());
    // Valid names take precedence over those that must change.
    let mut others = Vec::new();
    for mut entry in entries.drain(..) {
        let is_twice = !both.insert((key(&entry.name), entry.ino));
        if is_twice {
            continue;
        }
        let is_possible = is_encrypted || {
            let bad = |byte: &u8| *byte == b'/' || *byte == 0;
            !entry.name.iter().any(bad) && !matches!(&entry.name[..], b"." | b"..")
        };
        let is_possible =
            is_possible && !(is_folded && strict && casefold::make_valid(&mut entry.name));
        if is_possible && met.insert(key(&entry.name)) {
            settled.push(entry);
        } else if !is_encrypted {
            for byte in &mut entry.name {
                if matches!(*byte, b'/' | 0) {
                    *byte = b'_';
                }
            }
            others.push(entry);
        }
    }
    if settled.len() == count {
        *entries = settled;
        return true;
    }
    // Next suffix per name: there may be very many entries with the same name.
    let mut numbers: HashMap<Vec<u8>, u64> = HashMap::new();
    for mut entry in others {
        let is_dot = matches!(&entry.name[..], b"." | b"..");
        if is_dot || !met.insert(key(&entry.name)) {
            let number = numbers.entry(key(&entry.name)).or_insert(1);
            entry.name = other_name(&entry.name, number, |name| met.insert(key(name)));
        }
        settled.push(entry);
    }
    *entries = settled;
    false
}

/// Returns a new name derived from this one, with the first free suffix from `number` on.
pub(super) fn other_name(
    name: &[u8],
    number: &mut u64,
    mut is_new: impl FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    loop {
        let suffix = format!("~{number}");
        let mut end = name.len().min(NAME_MAX - suffix.len());
        // Do not cut inside a character.
        while end > 0 && end < name.len() && name[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let other = [&name[..end], suffix.as_bytes()].concat();
        *number += 1;
        if is_new(&other) {
            return other;
        }
    }
}

/// Returns a former name of an inode in a directory, from a removed entry whose bytes still exist.
pub(super) fn old_name(
    context: &RepairContext<'_>,
    directory: &InodeDraft,
    ino: u32,
) -> Option<Vec<u8>> {
    let checked = &context.checked;
    let map = Map::read(checked, directory);
    let code = checked.known(ino).map_or(0, |known| known.type_code);
    let has_types = checked.params().filetype;
    for run in &map.runs {
        for at in 0..run.len {
            let Some(bytes) = checked.block(run.start.plus(at.into())) else { continue };
            for offset in (0..bytes.len().saturating_sub(HEADER_SIZE)).step_by(4) {
                let Some(record) = dirent::record_at(&bytes, offset) else { continue };
                let is_it = record.inode == ino
                    && !record.name.is_empty()
                    && (!has_types || record.file_type == code)
                    && record.name.iter().all(|&byte| byte > b' ' && byte != b'/' && byte != 0x7f)
                    && !matches!(record.name, b"." | b"..");
                if is_it {
                    return Some(record.name.to_vec());
                }
            }
        }
    }
    None
}

/// Returns the type code of directories in entries of this file system.
pub(super) fn directory_code(checked: &CheckedImage) -> u8 {
    let has_types = checked.params().sb.features.incompat(Incompat::FILETYPE);
    if has_types { dirent::file_type_code(FileType::Directory) } else { 0 }
}
