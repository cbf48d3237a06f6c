//! Data blocks: entries and unused ranges, which fill the block from its header to its end (in block form: to the hash
//! index). Entries and unused ranges end with a *tag*, their own offset, by which the previous one can be found. The
//! header lists the three longest unused ranges, longest first.

use engine::Corruption;
use vfs::{FileType, Ino};

use super::leaf::{self, Table};
use super::{ALIGN, DirLayout, FILE_TYPE_CODES, file_type_of, header, is_block_form};
use crate::format::bytes::{be16, be64, put16, put64};
use crate::format::edit::Edit;
use crate::format::geometry::Geometry;

/// Start of an unused range, in place of an entry's inode number (`XFS_DIR2_DATA_FREE_TAG`).
const UNUSED: u16 = 0xffff;
const NAME: &str = "directory data";

/// An unused range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    /// Its byte offset.
    pub offset: usize,
    /// Its length in bytes; 0 for none.
    pub len: usize,
}

/// The longest unused ranges of a block, longest first.
pub(crate) type Bests = [Free; 3];

/// An entry in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dirent<'a> {
    /// Its byte offset.
    pub offset: usize,
    /// The inode it names.
    pub ino: Ino,
    /// Its name.
    pub name: &'a [u8],
    /// The file type, if the directory stores it.
    pub file_type: Option<FileType>,
    /// Its size in bytes.
    pub size: usize,
}

/// A new entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    /// Its name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// Its type.
    pub file_type: FileType,
}

fn bests_at(layout: &DirLayout) -> usize {
    if layout.crc { header::DIR_END } else { 4 }
}

/// Returns the longest unused ranges according to the header.
pub(crate) fn bests(layout: &DirLayout, block: &[u8]) -> Bests {
    let at = bests_at(layout);
    [0, 4, 8]
        .map(|i| Free { offset: be16(block, at + i).into(), len: be16(block, at + i + 2).into() })
}

/// Returns the length of the longest unused range: the block's value in the free-space index.
pub(crate) fn best_len(layout: &DirLayout, block: &[u8]) -> usize {
    be16(block, bests_at(layout) + 2).into()
}

/// Returns the end of entries and unused ranges.
pub(crate) fn end(layout: &DirLayout, block: &[u8]) -> usize {
    if is_block_form(layout, block) {
        leaf::block_table(layout, block).start
    } else {
        layout.size()
    }
}

/// An entry or an unused range.
enum DataItem<'a> {
    Entry(Dirent<'a>),
    Unused(Free),
}

/// Returns the item at `at`; `None` if it would extend past `end`.
fn item_at<'a>(layout: &DirLayout, block: &'a [u8], at: usize, end: usize) -> Option<DataItem<'a>> {
    let rest = block.get(at..end)?;
    if rest.len() < ALIGN {
        return None;
    }
    if be16(rest, 0) == UNUSED {
        let len = usize::from(be16(rest, 2));
        let fits = len >= ALIGN && len.is_multiple_of(ALIGN) && len <= rest.len();
        return fits.then_some(DataItem::Unused(Free { offset: at, len }));
    }
    let name_len = usize::from(*rest.get(8)?);
    let size = layout.entry_size(name_len);
    let code = if layout.ftype { *rest.get(9 + name_len)? } else { 0 };
    (size <= rest.len()).then(|| {
        DataItem::Entry(Dirent {
            offset: at,
            ino: Ino(be64(rest, 0)),
            name: &rest[9..9 + name_len],
            file_type: file_type_of(code),
            size,
        })
    })
}

/// Returns the entry at `offset`, taken from a leaf. `None` if there is none.
pub(crate) fn entry_at<'a>(
    layout: &DirLayout,
    block: &'a [u8],
    offset: usize,
) -> Option<Dirent<'a>> {
    if offset < layout.header() || !offset.is_multiple_of(ALIGN) {
        return None;
    }
    match item_at(layout, block, offset, block.len())? {
        DataItem::Entry(entry) => {
            let tag = usize::from(be16(block, offset + entry.size - 2));
            (tag == offset && !entry.name.is_empty()).then_some(entry)
        }
        DataItem::Unused(_) => None,
    }
}

/// Returns the entries of a block, in order. The block must have been verified.
pub(crate) fn entries<'a>(layout: &DirLayout, block: &'a [u8]) -> impl Iterator<Item = Dirent<'a>> {
    let (layout, end) = (*layout, end(layout, block));
    let mut at = layout.header();
    std::iter::from_fn(move || {
        loop {
            match item_at(&layout, block, at, end)? {
                DataItem::Entry(entry) => {
                    at += entry.size;
                    return Some(entry);
                }
                DataItem::Unused(free) => at += free.len,
            }
        }
    })
}

fn put_entry(layout: &DirLayout, bytes: &mut [u8], offset: usize, entry: &NewEntry<'_>) -> usize {
    let size = layout.entry_size(entry.name.len());
    let name_end = 9 + entry.name.len();
    put64(bytes, 0, entry.ino.0);
    bytes[8] = entry.name.len() as u8;
    bytes[9..name_end].copy_from_slice(entry.name);
    bytes[name_end..size].fill(0);
    if layout.ftype {
        bytes[name_end] = super::file_type_code(entry.file_type);
    }
    put16(bytes, size - 2, offset as u16);
    size
}

/// Writes entries at the given offsets, which must ascend and leave room. The space between them, and up to `end`,
/// becomes unused.
pub(crate) fn fill<'a>(
    layout: &DirLayout,
    block: &mut impl Edit,
    end: usize,
    entries: impl Iterator<Item = (usize, NewEntry<'a>)>,
) {
    let mut at = layout.header();
    for (offset, entry) in entries {
        put_unused(block, Free { offset: at, len: offset - at });
        let size = layout.entry_size(entry.name.len());
        put_entry(layout, block.edit(offset..offset + size), offset, &entry);
        at = offset + size;
    }
    put_unused(block, Free { offset: at, len: end - at });
    let bests = scan(layout, block.bytes(), end);
    put_bests(layout, block, &bests);
}

/// Marks everything after the header unused.
pub(crate) fn clear(layout: &DirLayout, block: &mut impl Edit) {
    fill(layout, block, layout.size(), std::iter::empty());
}

fn put_unused(block: &mut impl Edit, free: Free) {
    if free.len > 0 {
        block.set32(free.offset, u32::from(UNUSED) << 16 | free.len as u32);
        block.set16(free.offset + free.len - 2, free.offset as u16);
    }
}

fn put_bests(layout: &DirLayout, block: &mut impl Edit, bests: &Bests) {
    let at = bests_at(layout);
    let bytes = block.edit(at..at + 12);
    for (i, free) in bests.iter().enumerate() {
        put16(bytes, i * 4, free.offset as u16);
        put16(bytes, i * 4 + 2, free.len as u16);
    }
}

/// Inserts an unused range into the list of the longest.
fn enter(bests: &mut Bests, free: Free) {
    let Some(place) = bests.iter().position(|other| free.len > other.len) else { return };
    bests[place..].rotate_right(1);
    bests[place] = free;
}

/// Returns the longest unused ranges, by scanning the block.
fn scan(layout: &DirLayout, block: &[u8], end: usize) -> Bests {
    let mut bests = Bests::default();
    let mut at = layout.header();
    while let Some(item) = item_at(layout, block, at, end) {
        at += match item {
            DataItem::Entry(entry) => entry.size,
            DataItem::Unused(free) => {
                enter(&mut bests, free);
                free.len
            }
        };
    }
    bests
}

/// Updates the list of the longest unused ranges: `gone` are removed, `new` (unless empty) is added.
fn update_bests(layout: &DirLayout, block: &mut impl Edit, gone: &[Free], new: Free) {
    let old = bests(layout, block.bytes());
    let is_full = old[2].len > 0;
    let mut bests = Bests::default();
    let mut kept = 0;
    for &free in old.iter().filter(|free| free.len > 0 && !gone.contains(free)) {
        enter(&mut bests, free);
        kept += 1;
    }
    enter(&mut bests, new);
    // Unlisted ranges are at most as long as the third listed one was.
    let is_known = !is_full || kept == 3 || (kept == 2 && new.len >= old[2].len);
    if !is_known {
        let bytes = block.bytes();
        bests = scan(layout, bytes, end(layout, bytes));
    }
    if bests != old {
        put_bests(layout, block, &bests);
    }
}

/// Adds an entry in the best fit of the longest unused ranges. Returns its offset, or `None` if there is no room.
pub(crate) fn insert(
    layout: &DirLayout,
    block: &mut impl Edit,
    entry: &NewEntry<'_>,
) -> Option<usize> {
    let size = layout.entry_size(entry.name.len());
    let bests = bests(layout, block.bytes());
    let room = *bests.iter().rev().find(|free| free.len >= size)?;
    let end = room.offset + room.len;
    if room.offset < layout.header() || end > block.bytes().len() {
        return None;
    }
    let rest = Free { offset: room.offset + size, len: room.len - size };
    let head = if rest.len > 0 { 4 } else { 0 };
    let bytes = block.edit(room.offset..room.offset + size + head);
    put_entry(layout, bytes, room.offset, entry);
    if rest.len > 0 {
        put16(bytes, size, UNUSED);
        put16(bytes, size + 2, rest.len as u16);
        block.set16(end - 2, rest.offset as u16);
    }
    update_bests(layout, block, &[room], rest);
    Some(room.offset)
}

/// Removes the last `len` bytes of an unused range for the hash index of block form. Must be called after the index was
/// written over the end of the range.
pub(crate) fn take_end(layout: &DirLayout, block: &mut impl Edit, free: Free, len: usize) {
    let rest = Free { len: free.len.saturating_sub(len), ..free };
    put_unused(block, rest);
    update_bests(layout, block, &[free], rest);
}

/// Returns the unused range that ends at `at`.
pub(crate) fn unused_before(layout: &DirLayout, block: &[u8], at: usize) -> Option<Free> {
    let offset = usize::from(be16(block, at.checked_sub(2)?));
    if offset < layout.header() || offset >= at || !offset.is_multiple_of(ALIGN) {
        return None;
    }
    let is_unused = be16(block, offset) == UNUSED;
    (is_unused && usize::from(be16(block, offset + 2)) == at - offset)
        .then_some(Free { offset, len: at - offset })
}

/// Marks a range unused, joined with adjacent unused ranges. `end` is the end of the entries.
pub(crate) fn release(layout: &DirLayout, block: &mut impl Edit, range: Free, end: usize) {
    let bytes = block.bytes();
    let behind = range.offset + range.len;
    let before = if range.offset > layout.header() {
        unused_before(layout, bytes, range.offset)
    } else {
        None
    };
    let after = match item_at(layout, bytes, behind, end) {
        Some(DataItem::Unused(free)) => free,
        _ => Free { offset: behind, len: 0 },
    };
    let before = before.unwrap_or(Free { offset: range.offset, len: 0 });
    let whole = Free { offset: before.offset, len: before.len + range.len + after.len };
    put_unused(block, whole);
    update_bests(layout, block, &[before, after], whole);
}

/// Changes the inode and type of an entry, which was found by [`entry_at`].
pub(crate) fn replace(
    layout: &DirLayout,
    block: &mut impl Edit,
    offset: usize,
    entry: &NewEntry<'_>,
) {
    put64(block.edit(offset..offset + 8), 0, entry.ino.0);
    if layout.ftype {
        let at = offset + 9 + entry.name.len();
        block.edit(at..at + 1)[0] = super::file_type_code(entry.file_type);
    }
}

/// Checks everything after the header.
pub(super) fn verify(
    layout: &DirLayout,
    geometry: &Geometry,
    block: &[u8],
) -> Result<(), Corruption> {
    let table = if is_block_form(layout, block) {
        Some(leaf::verify_block_table(layout, block)?)
    } else {
        None
    };
    let end = table.map_or(layout.size(), |table| table.start);
    let leads_to_inode = |ino| geometry.split_ino(ino).is_some();
    let entries = verify_items(layout, leads_to_inode, block, end)?;
    match table {
        Some(table) => verify_index(layout, block, &table, entries),
        None => Ok(()),
    }
}

/// Checks entries and unused ranges. Returns the number of entries.
fn verify_items(
    layout: &DirLayout,
    leads_to_inode: impl Fn(Ino) -> bool,
    block: &[u8],
    end: usize,
) -> Result<usize, Corruption> {
    let fault = |problem: &str, at: usize| Corruption::new(NAME, format!("{problem} at byte {at}"));
    let (mut at, mut entries, mut after_unused) = (layout.header(), 0, false);
    let mut longest = Bests::default();
    while at < end {
        let Some(item) = item_at(layout, block, at, end) else {
            return Err(fault("an invalid entry or unused range", at));
        };
        let len = match item {
            DataItem::Entry(entry) => {
                verify_entry(layout, &leads_to_inode, block, &entry)?;
                entries += 1;
                after_unused = false;
                entry.size
            }
            DataItem::Unused(_) if after_unused => {
                return Err(fault("two unused ranges in a row", at));
            }
            DataItem::Unused(free) => {
                enter(&mut longest, free);
                after_unused = true;
                free.len
            }
        };
        let tag = usize::from(be16(block, at + len - 2));
        if tag != at {
            return Err(fault("wrong tag", at).mismatch(at, tag));
        }
        at += len;
    }
    verify_bests(layout, block, end, &longest)?;
    Ok(entries)
}

fn verify_entry(
    layout: &DirLayout,
    leads_to_inode: impl Fn(Ino) -> bool,
    block: &[u8],
    entry: &Dirent<'_>,
) -> Result<(), Corruption> {
    let fault =
        |problem: &str| Corruption::new(NAME, format!("{problem} at byte {}", entry.offset));
    if entry.name.is_empty() {
        return Err(fault("an entry without a name"));
    }
    if has_slash_or_nul(entry.name) {
        return Err(fault("a name with '/' or NUL"));
    }
    if !leads_to_inode(entry.ino) {
        return Err(fault("an entry with an invalid inode number").mismatch("an inode", entry.ino));
    }
    if layout.ftype {
        let code = block[entry.offset + 9 + entry.name.len()];
        if code >= FILE_TYPE_CODES {
            return Err(fault("type of the entry").mismatch("0 to 8", code));
        }
    }
    Ok(())
}

/// Returns whether a name contains a forbidden byte. Tests eight bytes at a time, because every entry of a block is
/// checked when the block is written.
fn has_slash_or_nul(name: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);
    // The first set top bit is at the lowest zero byte; higher ones may be false positives.
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & TOPS != 0;
    let is_bad = |bytes: &[u8; 8]| {
        let word = u64::from_ne_bytes(*bytes);
        has_zero(word) || has_zero(word ^ SLASHES)
    };
    match name.last_chunk::<8>() {
        Some(end) => is_bad(end) || name.as_chunks::<8>().0.iter().any(is_bad),
        None => name.iter().any(|&byte| byte == b'/' || byte == 0),
    }
}

/// Checks the list of the longest unused ranges: each must exist, and their lengths must be the longest.
fn verify_bests(
    layout: &DirLayout,
    block: &[u8],
    end: usize,
    longest: &Bests,
) -> Result<(), Corruption> {
    let listed = bests(layout, block);
    for (i, (free, expected)) in listed.iter().zip(longest).enumerate() {
        let fault = |what: &str| Corruption::new(NAME, format!("{what} of bestfree[{i}]"));
        if free.len != expected.len {
            return Err(fault("length").mismatch(expected.len, free.len));
        }
        let is_there = match free.len {
            0 => free.offset == 0,
            len => {
                free.offset >= layout.header()
                    && free.offset + len <= end
                    && unused_before(layout, block, free.offset + len) == Some(*free)
            }
        };
        let is_twice = free.len > 0 && listed[..i].contains(free);
        if !is_there || is_twice {
            return Err(fault("offset").mismatch("an unused range", free.offset));
        }
    }
    Ok(())
}

/// Checks that the hash index of block form has as many entries as the block.
fn verify_index(
    layout: &DirLayout,
    block: &[u8],
    table: &Table,
    entries: usize,
) -> Result<(), Corruption> {
    let live = leaf::live(block, table);
    let fault = |problem: &str| Corruption::new("directory block", problem);
    if live.clone().count() != entries {
        return Err(fault("entries of the hash index").mismatch(entries, live.count()));
    }
    for entry in live {
        let (number, offset) = layout.split_address(entry.address);
        if number != 0 || entry_at(layout, &block[..table.start], offset).is_none() {
            return Err(fault("its hash index refers to an offset without an entry")
                .mismatch("an entry", entry.address));
        }
    }
    Ok(())
}

/// Sets the magic number of block form or of plain data.
pub(crate) fn set_block_form(layout: &DirLayout, block: &mut impl Edit, is_block: bool) {
    let pair = if is_block { super::magic::BLOCK } else { super::magic::DATA };
    block.set32(0, pair[layout.version()]);
}

/// Like [`verify`], without checking inode numbers. Returns the number of entries.
#[cfg(test)]
pub(super) fn verify_structure(layout: &DirLayout, block: &[u8]) -> Result<usize, Corruption> {
    verify_items(layout, |_| true, block, layout.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_no_name_can_have_are_found_wherever_they_are() {
        for len in 1..=30 {
            let name: Vec<u8> =
                (0..len).map(|at| [1, 0x7f, 0x80, 0xff, b'.', b'0'][at % 6]).collect();
            assert!(!has_slash_or_nul(&name), "{name:?}");
            for at in 0..len {
                for byte in [0, b'/'] {
                    let mut name = name.clone();
                    name[at] = byte;
                    assert!(has_slash_or_nul(&name), "{name:?}");
                }
            }
        }
    }
}
