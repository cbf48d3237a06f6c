//! The entries of a directory on their way into a path.
//!
//! Formats deliver names as they lie in the image. Here they are checked, because a path is made of
//! them: a name that no directory can hold, a second `.` or `..`, and a name that is there twice are
//! told from sound entries, one by one, so that a caller can go on with the others.

use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

use super::{NamedRef, Order};
use crate::{Cookie, Corruption, DirEntry, FileSystem, FileType, Ino, NAME_LEN_MAX, Result};

/// Entries of a directory that a walk in the directory's own order holds at a time. A power of two.
const BATCH_ENTRIES: usize = 4096;

/// What a directory entry must be for a path to be made of it.
pub(super) fn check_name(dir: Ino, name: &[u8]) -> Result<()> {
    let problem = match fault_of(name) {
        None => return Ok(()),
        Some(fault) => fault.problem(),
    };
    Err(Corruption::new("directory entry", problem).of_inode(dir.0).into())
}

fn fault_of(name: &[u8]) -> Option<Fault> {
    match () {
        () if name.is_empty() => Some(Fault::Empty),
        () if name.len() > NAME_LEN_MAX => Some(Fault::Long),
        () if name.contains(&b'/') => Some(Fault::Slash),
        () if name.contains(&0) => Some(Fault::Nul),
        () => None,
    }
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Empty,
    Long,
    Slash,
    Nul,
    /// A `.` or `..` beside the one that every directory has.
    Stray,
    /// An entry before it has the same name.
    Twin,
}

impl Fault {
    const fn problem(self) -> &'static str {
        match self {
            Self::Empty => "empty name",
            Self::Long => "name longer than 255 bytes",
            Self::Slash => "name contains \"/\"",
            Self::Nul => "name contains a NUL byte",
            Self::Stray => "a second entry \".\" or \"..\"",
            Self::Twin => "a second entry of this name",
        }
    }
}

/// Names of a directory, all in one piece of memory, and where the listing goes on.
pub(super) struct Listing {
    order: Order,
    names: Vec<u8>,
    entries: Vec<Item>,
    delivered: usize,
    resume: Option<Cookie>,
    /// Whether `.` and `..` have come.
    has_dots: [bool; 2],
    /// Scratch of the search for twins.
    hashes: Vec<u64>,
}

struct Item {
    start: usize,
    len: u8,
    ino: Ino,
    file_type: Option<FileType>,
    fault: Option<Fault>,
}

/// An entry that a listing delivers.
pub(super) struct Entry<'l> {
    pub(super) name: &'l [u8],
    pub(super) ino: Ino,
    pub(super) file_type: Option<FileType>,
    fault: Option<Fault>,
}

impl<'l> Entry<'l> {
    /// The entry, if a path can be made of it.
    ///
    /// # Errors
    /// `Corrupt`: what is wrong with this entry of `dir`.
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

impl Listing {
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

    /// Entries of the batch.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there may be a further batch.
    pub(super) fn has_more(&self) -> bool {
        self.resume.is_some()
    }

    /// Reads the next batch (sorted: everything), if there is more.
    ///
    /// # Errors
    /// If the directory cannot be read. What it delivered before is the batch then, the last one.
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
            // They come all at once, so nobody needs cookies.
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

    /// Keeps an entry, unless it is the `.` or `..` that every directory has.
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
            fault = Some(Fault::Stray);
        }
        let name = &entry.name[..entry.name.len().min(NAME_LEN_MAX)];
        let (start, len) = (self.names.len(), name.len() as u8);
        self.names.extend_from_slice(name);
        let (ino, file_type) = (entry.ino, entry.file_type);
        self.entries.push(Item { start, len, ino, file_type, fault });
    }

    /// Sorts the entries by name, those of one name as the directory lists them.
    fn sort(&mut self) {
        let names = &self.names;
        let name = |item: &Item| &names[item.start..item.start + usize::from(item.len)];
        // A sort has compared all that end up side by side, so that it knows whether any are equal.
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
                self.entries[second].fault.get_or_insert(Fault::Twin);
            }
        }
    }

    /// Finds entries of one batch that have the same name, which is cheaper than sorting them. Those
    /// in two batches of one directory are not found.
    fn mark_twins_by_hash(&mut self) {
        const INDEX: u64 = BATCH_ENTRIES as u64 - 1;
        let (names, entries) = (&self.names, &mut self.entries);
        let name = |item: &Item| &names[item.start..item.start + usize::from(item.len)];
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
                entries[(hash & INDEX) as usize].fault.get_or_insert(Fault::Twin);
            }
        }
    }

    /// Whether the batch has another entry.
    pub(super) fn is_ready(&self) -> bool {
        self.delivered < self.entries.len()
    }

    /// The next entry of the batch.
    pub(super) fn next(&mut self) -> Option<Entry<'_>> {
        let item = self.entries.get(self.delivered)?;
        self.delivered += 1;
        let name = &self.names[item.start..item.start + usize::from(item.len)];
        Some(Entry { name, ino: item.ino, file_type: item.file_type, fault: item.fault })
    }
}
