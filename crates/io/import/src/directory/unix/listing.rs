//! The sorted names of one directory, with low memory use.
//!
//! Names are NUL-terminated in one arena. A record per name has 16 bytes: a sort key, and a word with the offset,
//! length and type of the name. The key is the eight bytes that follow the common prefix of all names, so comparisons
//! rarely read the arena.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::os;

/// Low bits of [`NameRecord::place`] with the type (0 unknown, 1 directory, 2 other).
const TYPE_BITS: u32 = 2;
/// Bits of [`NameRecord::place`] with the length of the name; Linux names have at most 255 bytes.
const LEN_BITS: u32 = 16;

/// Type of an entry according to its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    Unknown,
    Directory,
    Other,
}

/// The names of a directory in byte order, without `.` and `..`.
#[derive(Debug)]
pub(super) struct SortedNames {
    arena: Vec<u8>,
    records: Vec<NameRecord>,
}

#[derive(Clone, Copy, Debug)]
struct NameRecord {
    key: u64,
    place: u64,
}

impl NameRecord {
    fn new(start: usize, len: usize, hint: Hint) -> Self {
        let hint = match hint {
            Hint::Unknown => 0,
            Hint::Directory => 1,
            Hint::Other => 2,
        };
        let place = (start as u64) << (TYPE_BITS + LEN_BITS) | (len as u64) << TYPE_BITS | hint;
        Self { key: 0, place }
    }

    fn name(self, arena: &[u8]) -> &[u8] {
        let start = (self.place >> (TYPE_BITS + LEN_BITS)) as usize;
        let len = (self.place >> TYPE_BITS & ((1 << LEN_BITS) - 1)) as usize;
        &arena[start..start + len]
    }
}

impl SortedNames {
    /// Lists an open directory. `buffer` is scratch space; its capacity is the read size.
    pub(super) fn read(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<Self, Errno> {
        let mut listing = Self { arena: Vec::new(), records: Vec::new() };
        os::list(fd, buffer, |name, file_type| {
            if name != b"." && name != b".." {
                let hint = match file_type {
                    FileType::Unknown => Hint::Unknown,
                    FileType::Directory => Hint::Directory,
                    _ => Hint::Other,
                };
                listing.push(name, hint);
            }
        })?;
        listing.sort();
        Ok(listing)
    }

    fn push(&mut self, name: &[u8], hint: Hint) {
        self.records.push(NameRecord::new(self.arena.len(), name.len(), hint));
        self.arena.extend_from_slice(name);
        self.arena.push(0);
    }

    fn sort(&mut self) {
        let Some(first) = self.records.first() else { return };
        let first = first.name(&self.arena);
        let mut shared = first.len();
        for record in &self.records {
            let name = record.name(&self.arena);
            let same = first[..shared].iter().zip(name).take_while(|(a, b)| a == b).count();
            shared = same;
        }
        let arena = &self.arena;
        for record in &mut self.records {
            let rest = &record.name(arena)[shared..];
            let mut key = [0; 8];
            let len = rest.len().min(8);
            key[..len].copy_from_slice(&rest[..len]);
            record.key = u64::from_be_bytes(key);
        }
        // Keys are padded with zeros, which names cannot contain, so different keys sort as the names do.
        self.records.sort_unstable_by(|a, b| {
            a.key.cmp(&b.key).then_with(|| a.name(arena).cmp(b.name(arena)))
        });
        // A directory that changes while it is listed may return a name twice.
        self.records.dedup_by(|a, b| a.key == b.key && a.name(arena) == b.name(arena));
    }

    /// Returns the number of names.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the name at `index`.
    pub(super) fn name(&self, index: usize) -> &[u8] {
        self.records[index].name(&self.arena)
    }

    /// Returns the name at `index` for a system call.
    pub(super) fn c_name(&self, index: usize) -> &CStr {
        let name = self.name(index);
        let start = name.as_ptr() as usize - self.arena.as_ptr() as usize;
        CStr::from_bytes_until_nul(&self.arena[start..=start + name.len()]).unwrap_or_default()
    }

    /// Returns the type at `index` according to the directory.
    pub(super) fn hint(&self, index: usize) -> Hint {
        match self.records[index].place & ((1 << TYPE_BITS) - 1) {
            1 => Hint::Directory,
            2 => Hint::Other,
            _ => Hint::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_come_in_byte_order(
            prefix in "[ab]{0,12}",
            names in prop::collection::btree_set(prop::collection::vec(1u8..=255, 1..14), 0..60),
            seed in any::<u64>(),
        ) {
            let names: BTreeSet<Vec<u8>> =
                names.into_iter().map(|name| [prefix.as_bytes(), &name].concat()).collect();
            let mut shuffled: Vec<_> = names.iter().collect();
            shuffled.sort_by_key(|name| name.iter().fold(seed, |h, &b| {
                (h ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
            }));
            let mut listing = SortedNames { arena: Vec::new(), records: Vec::new() };
            for (i, name) in shuffled.iter().enumerate() {
                listing.push(name, if i % 2 == 0 { Hint::Directory } else { Hint::Unknown });
                if i % 5 == 0 {
                    // Listed twice.
                    listing.push(name, if i % 2 == 0 { Hint::Directory } else { Hint::Unknown });
                }
            }
            listing.sort();
            let sorted: Vec<_> = (0..listing.len()).map(|i| listing.name(i).to_vec()).collect();
            prop_assert_eq!(sorted, names.iter().cloned().collect::<Vec<_>>());
            for i in 0..listing.len() {
                prop_assert_eq!(listing.c_name(i).to_bytes(), listing.name(i));
                let at = shuffled.iter().position(|name| *name == listing.name(i)).unwrap();
                prop_assert_eq!(listing.hint(i) == Hint::Directory, at % 2 == 0);
            }
        }
    }
}
