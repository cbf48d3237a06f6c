//! Shortform directories: the parent, and the entries in the order of the offsets that they would have in a block. They
//! keep these offsets when the directory becomes a block.

use engine::Corruption;
use smallvec::SmallVec;
use vfs::{FileType, Ino};

use super::{DirLayout, FILE_TYPE_CODES, file_type_of, leaf};
use crate::format::bytes::{be16, be32, be64};
use crate::format::geometry::Geometry;

const NAME: &str = "shortform directory";
/// Maximum inode number of 4 bytes (`XFS_DIR2_MAX_SHORT_INUM`); with a larger one, all take 8.
const SHORT_INO_MAX: u64 = u32::MAX as u64;
/// Maximum number of entries, because the count is a byte.
pub(crate) const COUNT_MAX: usize = 255;

/// The bytes of a rebuilt directory.
pub(crate) type Bytes = SmallVec<[u8; 512]>;

/// A verified shortform directory.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a> {
    bytes: &'a [u8],
    ino_size: usize,
    ftype: bool,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortEntry<'a> {
    /// Its offset if the directory were a block.
    pub offset: usize,
    /// Its name.
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// The code of its type; 0 if the directory does not store types.
    pub code: u8,
}

impl ShortEntry<'_> {
    /// Returns its type, if the directory stores it.
    pub(crate) fn file_type(&self) -> Option<FileType> {
        file_type_of(self.code)
    }
}

impl<'a> Short<'a> {
    /// Parses and checks a directory's bytes, as many as its size.
    pub fn parse(
        layout: &DirLayout,
        geometry: &Geometry,
        bytes: &'a [u8],
    ) -> Result<Self, Corruption> {
        let fault = |problem: &str| Corruption::new(NAME, problem);
        if bytes.len() < 6 {
            return Err(fault("size").mismatch("6 or more", bytes.len()));
        }
        let ino_size = if bytes[1] > 0 { 8 } else { 4 };
        let short = Self { bytes, ino_size, ftype: layout.ftype };
        if bytes.len() < short.header() {
            return Err(fault("size").mismatch(short.header(), bytes.len()));
        }
        if geometry.split_ino(short.parent()).is_none() {
            return Err(fault("its parent is not a valid inode number")
                .mismatch("an inode", short.parent()));
        }
        let (mut count, mut end, mut wide) = (0, short.header(), 0);
        let mut offset = layout.first_entry();
        while let Some((entry, next)) = short.entry_from(end) {
            check_entry(geometry, &entry, offset)?;
            offset = entry.offset + layout.entry_size(entry.name.len());
            wide += usize::from(entry.ino.0 > SHORT_INO_MAX);
            (count, end) = (count + 1, next);
        }
        if count != short.count() || end != bytes.len() {
            return Err(fault("entries within its size").mismatch(short.count(), count));
        }
        // In block form there must be room for the hashes of all entries, `.` and `..`.
        let whole = offset + (count + 2) * leaf::ENTRY_SIZE + leaf::TAIL_SIZE;
        if whole > layout.size() {
            let size = layout.size();
            let most = format_args!("at most {size} bytes as a block");
            return Err(fault("offset of the last entry").mismatch(most, whole));
        }
        wide += usize::from(short.parent().0 > SHORT_INO_MAX);
        if ino_size == 8 && wide != usize::from(bytes[1]) {
            return Err(fault("i8count").mismatch(wide, bytes[1]));
        }
        Ok(short)
    }

    const fn header(&self) -> usize {
        2 + self.ino_size
    }

    /// Returns the number of entries, without `.` and `..`.
    pub(crate) fn count(&self) -> usize {
        self.bytes[0].into()
    }

    /// Returns the inode of `..`.
    pub fn parent(&self) -> Ino {
        self.ino_at(2)
    }

    fn ino_at(&self, at: usize) -> Ino {
        if self.ino_size == 8 {
            Ino(be64(self.bytes, at))
        } else {
            Ino(be32(self.bytes, at).into())
        }
    }

    /// Returns the entry at byte `at`, and the offset of the next one.
    fn entry_from(&self, at: usize) -> Option<(ShortEntry<'a>, usize)> {
        let name_len = usize::from(*self.bytes.get(at)?);
        let name_end = at + 3 + name_len;
        let ino_at = name_end + usize::from(self.ftype);
        let end = ino_at + self.ino_size;
        if end > self.bytes.len() {
            return None;
        }
        let entry = ShortEntry {
            offset: be16(self.bytes, at + 1).into(),
            name: &self.bytes[at + 3..name_end],
            ino: self.ino_at(ino_at),
            code: if self.ftype { self.bytes[name_end] } else { 0 },
        };
        Some((entry, end))
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = ShortEntry<'a>> + Clone + use<'a> {
        let (short, mut at) = (*self, self.header());
        std::iter::from_fn(move || {
            let (entry, next) = short.entry_from(at)?;
            at = next;
            Some(entry)
        })
    }
}

fn check_entry(
    geometry: &Geometry,
    entry: &ShortEntry<'_>,
    offset_min: usize,
) -> Result<(), Corruption> {
    let fault = |problem: &str| Corruption::new(NAME, problem);
    if entry.name.is_empty() || entry.name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(fault("an empty name, or one with '/' or NUL"));
    }
    if geometry.split_ino(entry.ino).is_none() {
        return Err(fault("an entry with an invalid inode number").mismatch("an inode", entry.ino));
    }
    if entry.code >= FILE_TYPE_CODES {
        return Err(fault("type of an entry").mismatch("0 to 8", entry.code));
    }
    if entry.offset < offset_min {
        return Err(fault("offset of an entry")
            .mismatch(format_args!("{offset_min} or more"), entry.offset));
    }
    Ok(())
}

/// Returns the size of a directory in its inode, in bytes.
pub(crate) fn size<'a>(
    layout: &DirLayout,
    parent: Ino,
    entries: impl Iterator<Item = (&'a [u8], Ino)>,
) -> usize {
    let (mut size, mut count, mut wide) = (0, 0, parent.0 > SHORT_INO_MAX);
    for (name, ino) in entries {
        size += 3 + name.len() + usize::from(layout.ftype);
        count += 1;
        wide |= ino.0 > SHORT_INO_MAX;
    }
    2 + size + (count + 1) * if wide { 8 } else { 4 }
}

/// Returns a directory's bytes. There must be at most `COUNT_MAX` entries.
pub fn build<'a>(
    layout: &DirLayout,
    parent: Ino,
    entries: impl Iterator<Item = ShortEntry<'a>> + Clone,
) -> Bytes {
    let is_wide = |ino: Ino| usize::from(ino.0 > SHORT_INO_MAX);
    let wide = is_wide(parent) + entries.clone().map(|e| is_wide(e.ino)).sum::<usize>();
    let mut bytes = Bytes::new();
    let put_ino = |bytes: &mut Bytes, ino: Ino| {
        if wide > 0 {
            bytes.extend_from_slice(&ino.0.to_be_bytes());
        } else {
            bytes.extend_from_slice(&(ino.0 as u32).to_be_bytes());
        }
    };
    bytes.extend_from_slice(&[0, wide as u8]);
    put_ino(&mut bytes, parent);
    let mut count = 0_u8;
    for entry in entries {
        bytes.push(entry.name.len() as u8);
        bytes.extend_from_slice(&(entry.offset as u16).to_be_bytes());
        bytes.extend_from_slice(entry.name);
        if layout.ftype {
            bytes.push(entry.code);
        }
        put_ino(&mut bytes, entry.ino);
        count = count.saturating_add(1);
    }
    bytes[0] = count;
    bytes
}
