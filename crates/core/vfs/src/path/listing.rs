//! Directory entries, validated before they become parts of paths.
//!
//! Formats return names as stored on disk. This module detects invalid names, additional `.` and `..` entries, and
//! duplicates. It reports each with its entry, so that a caller can continue with the valid ones.

use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

use super::{NamedRef, Order};
use crate::{Cookie, Corruption, DirEntry, FileSystem, FileType, Ino, NAME_LEN_MAX, Result};

/// Number of entries in a batch of a walk in the directory's own order. A power of two.
const BATCH_ENTRIES: usize = 4096;

/// Checks whether a name is valid in a path.
pub(super) fn check_name(dir: Ino, name: &[u8]) -> Result<()> {
    let problem = match fault_of(name) {
        None => return Ok(()),
        Some(fault) => fault.problem(),
    };
    Err(Corruption::new("directory entry", problem).of_inode(dir.0).into())
}

fn fault_of(name: &[u8]) -> Option<NameFault> {
    match () {
        () if name.is_empty() => Some(NameFault::Empty),
        () if name.len() > NAME_LEN_MAX => Some(NameFault::Long),
        () if name.contains(&b'/') => Some(NameFault::Slash),
        () if name.contains(&0) => Some(NameFault::Nul),
        () => None,
    }
}

/// Defect of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameFault {
    Empty,
    Long,
    Slash,
    Nul,
    /// A `.` or `..` in addition to the one that every directory has.
    Stray,
    /// An earlier entry has the same name.
    Twin,
}

impl NameFault {
    const fn problem(self) -> &'static str {
        match self {
            Self::Empty => "empty name",
            Self::Long => "name longer than 255 bytes",
            Self::Slash => "name contains \"/\"",
            Self::Nul => "name contains a NUL byte",
            Self::Stray => "a second entry \".\" or \"..\"",
            Self::Twin => "a second entry with this name",
        }
    }
}

/// Names of a directory in one buffer, and the cookie at which the listing continues.
pub(super) struct NameBuffer {
    order: Order,
    names: Vec<u8>,
    entries: Vec<ListedRecord>,
    delivered: usize,
    resume: Option<Cookie>,
    /// True for `.` and `..` that were returned already.
    has_dots: [bool; 2],
    /// Scratch memory of the search for duplicates.
    hashes: Vec<u64>,
}

struct ListedRecord {
    start: usize,
    len: u8,
    ino: Ino,
    file_type: Option<FileType>,
    fault: Option<NameFault>,
}

/// An entry of a listing.
pub(super) struct ListedName<'l> {
    pub(super) name: &'l [u8],
    pub(super) ino: Ino,
    pub(super) file_type: Option<FileType>,
    fault: Option<NameFault>,
}

impl<'l> ListedName<'l> {
    /// Returns the entry, if it is valid in a path.
    ///
    /// # Errors
    /// `Corrupt` with the defect of this entry of `dir`.
    pub(super) fn sound(self, dir: Ino) -> Result<NamedRef<'l>> {
        let Self { name, ino, file_type, fault } = self;
        match fault {
            None => Ok(NamedRef { name, ino, file_type }),
            Some(fault) => {
                let damage = Corruption::new("directory entry", fault.problem());
                Err(damage.of_inode(dir.0).into())
            }
        }
    }
}

impl NameBuffer {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            names: Vec::new(),
            entries: Vec::new(),
            delivered: 0,
            resume: Some(Cookie::default()),
            has_dots: [false; 2],
            hashes: Vec::new(),
        }
    }

    /// Returns the number of entries in the batch.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there may be a further batch.
    pub(super) fn has_more(&self) -> bool {
        self.resume.is_some()
    }

    /// Reads the next batch, if there is one. A sorted listing is one batch.
    ///
    /// # Errors
    /// If the directory cannot be read. The entries read before the error form the last batch.
    pub(super) fn fill(&mut self, fs: &dyn FileSystem, dir: Ino) -> Result<()> {
        let Some(from) = self.resume.take() else { return Ok(()) };
        self.names.clear();
        self.entries.clear();
        self.delivered = 0;
        let is_sorted = self.order == Order::Sorted;
        let batch = if is_sorted { usize::MAX } else { BATCH_ENTRIES };
        let mut resume = None;
        let mut take = |entry: DirEntry<'_>| {
            self.take(&entry);
            if self.entries.len() < batch {
                return ControlFlow::Continue(());
            }
            resume = Some(entry.next);
            ControlFlow::Break(())
        };
        let listed = if is_sorted {
            // All entries are read in one call, so cookies are not needed.
            fs.for_each_entry(dir, &mut take)
        } else {
            fs.readdir(dir, from, &mut take)
        };
        if is_sorted {
            self.sort();
        } else {
            self.mark_twins_by_hash();
        }
        listed?;
        self.resume = resume;
        Ok(())
    }

    /// Adds an entry to the batch, except the first `.` and `..`.
    fn take(&mut self, entry: &DirEntry<'_>) {
        let dots = match entry.name {
            b"." => Some(0),
            b".." => Some(1),
            _ => None,
        };
        let mut fault = fault_of(entry.name);
        if let Some(nth) = dots {
            if !std::mem::replace(&mut self.has_dots[nth], true) {
                return;
            }
            fault = Some(NameFault::Stray);
        }
        let name = &entry.name[..entry.name.len().min(NAME_LEN_MAX)];
        let (start, len) = (self.names.len(), name.len() as u8);
        self.names.extend_from_slice(name);
        let (ino, file_type) = (entry.ino, entry.file_type);
        self.entries.push(ListedRecord { start, len, ino, file_type, fault });
    }

    /// Sorts the entries by name; entries with the same name keep the directory's order.
    fn sort(&mut self) {
        let names = &self.names;
        let name = |item: &ListedRecord| &names[item.start..item.start + usize::from(item.len)];
        // The sort compares all entries that become neighbours, so it finds all duplicates.
        let mut has_twins = false;
        self.entries.sort_unstable_by(|a, b| {
            name(a).cmp(name(b)).then_with(|| {
                has_twins = true;
                a.start.cmp(&b.start)
            })
        });
        if !has_twins {
            return;
        }
        for second in 1..self.entries.len() {
            let is_twin = name(&self.entries[second]) == name(&self.entries[second - 1]);
            if is_twin {
                self.entries[second].fault.get_or_insert(NameFault::Twin);
            }
        }
    }

    /// Finds duplicate names within the batch, at a lower cost than sorting. Duplicates in different batches are not
    /// found.
    fn mark_twins_by_hash(&mut self) {
        const INDEX: u64 = BATCH_ENTRIES as u64 - 1;
        let (names, entries) = (&self.names, &mut self.entries);
        let name = |item: &ListedRecord| &names[item.start..item.start + usize::from(item.len)];
        self.hashes.clear();
        self.hashes.extend(entries.iter().zip(0..).map(|(item, index)| {
            let mut hasher = DefaultHasher::new();
            hasher.write(name(item));
            hasher.finish() & !INDEX | index
        }));
        self.hashes.sort_unstable();
        let hashes = &self.hashes;
        for (at, &hash) in hashes.iter().enumerate() {
            let alike =
                hashes[..at].iter().rev().take_while(|&&other| other | INDEX == hash | INDEX);
            let item = &entries[(hash & INDEX) as usize];
            if alike.clone().any(|other| name(&entries[(other & INDEX) as usize]) == name(item)) {
                entries[(hash & INDEX) as usize].fault.get_or_insert(NameFault::Twin);
            }
        }
    }

    /// Returns whether the batch has a further entry.
    pub(super) fn is_ready(&self) -> bool {
        self.delivered < self.entries.len()
    }

    /// Returns the next entry of the batch.
    pub(super) fn next(&mut self) -> Option<ListedName<'_>> {
        let item = self.entries.get(self.delivered)?;
        self.delivered += 1;
        let name = &self.names[item.start..item.start + usize::from(item.len)];
        Some(ListedName { name, ino: item.ino, file_type: item.file_type, fault: item.fault })
    }
}
