//! Attributes in the inode itself.
//!
//! {total size be16, count u8, 0}, then for each entry {name length u8, value length u8, flags u8, name, value},
//! without padding. The total size includes the header.

use engine::Corruption;

use super::super::bytes::{be16, put16};

/// Size of the header in bytes.
pub(crate) const HEADER_SIZE: usize = 4;
/// Number of bytes of an entry before its name.
const ENTRY_SIZE: usize = 3;
/// Maximum number of entries.
pub(crate) const COUNT_MAX: u8 = u8::MAX;
/// Maximum length of a value, in bytes.
pub(crate) const VALUE_LEN_MAX: usize = 255;

/// Returns the size of an entry in bytes.
pub(crate) const fn entry_size(name_len: usize, value_len: usize) -> usize {
    ENTRY_SIZE + name_len + value_len
}

/// An entry and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortformEntry<'f> {
    /// Its byte offset in the fork.
    pub at: usize,
    /// Its namespace.
    pub flags: u8,
    /// Its name.
    pub name: &'f [u8],
    /// Its value.
    pub value: &'f [u8],
}

impl ShortformEntry<'_> {
    /// Returns its size in bytes.
    pub(crate) fn size(&self) -> usize {
        entry_size(self.name.len(), self.value.len())
    }

    /// Returns the byte offset of its value in the fork.
    pub(crate) fn value_at(&self) -> usize {
        self.at + ENTRY_SIZE + self.name.len()
    }
}

fn damage(problem: &'static str) -> Corruption {
    Corruption::new("attributes in the inode", problem)
}

/// Returns the number of bytes in use: the header and all entries.
pub(crate) fn total(fork: &[u8]) -> Result<usize, Corruption> {
    if fork.len() < HEADER_SIZE {
        return Err(damage("no space for their header"));
    }
    let total = usize::from(be16(fork, 0));
    if (HEADER_SIZE..=fork.len()).contains(&total) {
        return Ok(total);
    }
    let expected = format!("{HEADER_SIZE} to {}", fork.len());
    Err(damage("their size").mismatch(expected, total))
}

/// Returns the number of entries. The fork must be valid for `total`.
pub(crate) fn count(fork: &[u8]) -> u8 {
    fork[2]
}

/// Returns all entries. Invalid contents give an error as the last item.
pub(crate) fn entries(fork: &[u8]) -> Result<ShortformEntries<'_>, Corruption> {
    let total = total(fork)?;
    Ok(ShortformEntries { bytes: &fork[..total], at: HEADER_SIZE, left: count(fork) })
}

/// Iterator over entries.
pub(crate) struct ShortformEntries<'f> {
    bytes: &'f [u8],
    at: usize,
    left: u8,
}

impl<'f> Iterator for ShortformEntries<'f> {
    type Item = Result<ShortformEntry<'f>, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let entry = parse(self.bytes, self.at);
        match &entry {
            Some(entry) => {
                self.at += entry.size();
                self.left -= 1;
            }
            None => self.left = 0,
        }
        Some(entry.ok_or_else(|| damage("an entry extends past their end or has no name")))
    }
}

fn parse(bytes: &[u8], at: usize) -> Option<ShortformEntry<'_>> {
    let &[name_len, value_len, flags, ref rest @ ..] = bytes.get(at..)? else { return None };
    let (name, rest) = rest.split_at_checked(name_len.into())?;
    let value = rest.get(..value_len.into())?;
    (!name.is_empty()).then_some(ShortformEntry { at, flags, name, value })
}

/// Returns the first entry that `is_it` accepts.
pub(crate) fn find(
    fork: &[u8],
    is_it: impl Fn(&ShortformEntry<'_>) -> bool,
) -> Result<Option<ShortformEntry<'_>>, Corruption> {
    for entry in entries(fork)? {
        let entry = entry?;
        if is_it(&entry) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Initializes a fork without entries.
pub(crate) fn init(fork: &mut [u8]) {
    fork[..HEADER_SIZE].fill(0);
    put16(fork, 0, HEADER_SIZE as u16);
}

/// Appends an entry. Returns false without a change if there is no room: the fork is full, the count is at its maximum,
/// or a length does not fit its field.
#[must_use]
pub(crate) fn append(fork: &mut [u8], total: usize, flags: u8, name: &[u8], value: &[u8]) -> bool {
    let end = total + entry_size(name.len(), value.len());
    let (Ok(name_len), Ok(value_len)) = (u8::try_from(name.len()), u8::try_from(value.len()))
    else {
        return false;
    };
    if end > fork.len() || count(fork) == COUNT_MAX {
        return false;
    }
    let value_at = total + ENTRY_SIZE + name.len();
    fork[total..total + ENTRY_SIZE].copy_from_slice(&[name_len, value_len, flags]);
    fork[total + ENTRY_SIZE..value_at].copy_from_slice(name);
    fork[value_at..end].copy_from_slice(value);
    put16(fork, 0, end as u16);
    fork[2] += 1;
    true
}

/// Removes the entry of `size` bytes at `at`, which must come from [`find`].
pub(crate) fn remove(fork: &mut [u8], at: usize, size: usize) {
    let total = usize::from(be16(fork, 0));
    fork.copy_within(at + size..total, at);
    fork[total - size..total].fill(0);
    put16(fork, 0, (total - size) as u16);
    fork[2] -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go() {
        let mut fork = vec![0; 40];
        init(&mut fork);
        assert!(append(&mut fork, 4, 0, b"one", b"1"));
        assert!(append(&mut fork, 11, 2, b"two", b""));
        assert!(!append(&mut fork, 17, 2, b"three", &[0; 16]));
        assert!(append(&mut fork, 17, 4, b"three", &[7; 15]));
        assert_eq!(total(&fork).unwrap(), 40);
        let two = find(&fork, |e| e.name == b"two").unwrap().unwrap();
        let (at, size) = (two.at, two.size());
        remove(&mut fork, at, size);
        let names: Vec<_> = entries(&fork).unwrap().map(|e| e.unwrap().name.to_vec()).collect();
        assert_eq!(names, [b"one".to_vec(), b"three".to_vec()]);
        assert_eq!(fork[34..], [0; 6]);
    }

    #[test]
    fn damage_is_found() {
        assert!(entries(&[0; 3]).is_err());
        assert!(entries(&[0, 5, 0, 0]).is_err());
        assert!(entries(&[0, 6, 1, 0, 1, 1]).unwrap().next().unwrap().is_err());
        let mut past_end = entries(&[0, 8, 2, 0, 1, 9, 0, 0]).unwrap();
        assert!(past_end.next().unwrap().is_err() && past_end.next().is_none());
    }
}
