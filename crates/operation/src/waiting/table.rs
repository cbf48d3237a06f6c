//! Names of one directory that wait.
//!
//! They are in parts by ranges of their hashes. A part is applied at a time, so its leaves are met together;
//! and it takes the numbers of its inodes from runs of its own, so blocks of the inode table are met together, too.
//!
//! A record stays at its place in its part until the whole part was applied; one that was applied is only marked.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use vfs::{Ino, NewInode, Timestamp};

use super::filter::Filter;
use super::places::Places;
use super::ranges::{Ranges, Sample};
use super::run::InodeRun;

/// Hashes keys that are mixed already, or nearly so.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// A file that waits: all that makes it but its name.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The hash of its name.
    pub key: u64,
    /// The inode that is kept for it.
    pub ino: Ino,
    /// What was said to be its generation.
    pub generation: u32,
    name_start: u32,
    name_len: u8,
    is_applied: bool,
    /// What its maker asked for.
    pub new: NewInode,
}

/// The order in which files of a part of a directory are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOrder {
    /// That of the hashes of their names: each leaf of the part is met by one operation or two.
    Hashes,
    /// That in which they were made, which is that of their inodes, too: so each block of inodes is.
    Made,
}

/// Files whose hashes are in a range.
#[derive(Default)]
pub(super) struct Part {
    records: Vec<Record>,
    /// Where each is, by its key.
    places: Places,
    names: Vec<u8>,
    /// Records that were not applied yet.
    waiting: usize,
    /// Inodes that are kept for the part and were not given out.
    run: Option<InodeRun>,
}

/// Where inodes of a run that were given out are: the records from `first` on, in ascending order of the inodes of
/// `run`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOwner {
    pub(super) dir: Ino,
    pub(super) part: u32,
    first: u32,
    run: InodeRun,
}

impl RunOwner {
    /// The record of an inode of the run.
    pub(super) fn record(&self, ino: Ino) -> Option<usize> {
        Some(self.first as usize + self.run.rank(ino)?)
    }
}

/// The names of a directory that wait, and what is known of the others.
pub(super) struct Directory<H> {
    pub(super) generation: u32,
    pub(super) hasher: H,
    pub(super) parts: Vec<Part>,
    /// Those of the parts.
    ranges: Ranges,
    /// Of all names that were made lately.
    sample: Sample,
    /// What all names of the directory, those that wait included, are in; `None` if it is not known. Then nothing
    /// waits.
    pub(super) filter: Option<Filter>,
    /// Names that wait.
    pub(super) waiting: usize,
    /// Bytes that their names take.
    pub(super) name_bytes: usize,
    /// The time that the last of them gives the directory; `None` if nothing waits.
    pub(super) time: Option<Timestamp>,
    /// Names that were made one by one since something else was done.
    pub(super) streak: usize,
    /// Units of space of groups that are promised to what waits.
    promises: Vec<(u32, u32)>,
    /// How many these are.
    promised: u64,
}

impl<H> Directory<H> {
    pub(super) fn new(generation: u32, hasher: H) -> Self {
        Self {
            generation,
            hasher,
            parts: vec![Part::default()],
            ranges: Ranges::default(),
            sample: Sample::default(),
            filter: None,
            waiting: 0,
            name_bytes: 0,
            time: None,
            streak: 0,
            promises: Vec::new(),
            promised: 0,
        }
    }

    /// Has so many parts, if these are more than before and nothing waits.
    pub(super) fn part(&mut self, parts: usize) {
        if parts > self.parts.len() && self.waiting == 0 {
            self.part_again(parts);
        }
    }

    #[cold]
    fn part_again(&mut self, parts: usize) {
        let ranges = Ranges::of(&self.sample, parts);
        // Where hashes of many names agree, there cannot be as many.
        let is_more = ranges.count() >= parts.min(self.parts.len() * 2);
        if is_more && self.parts.iter().all(|part| part.run.is_none()) {
            self.parts.resize_with(ranges.count(), Part::default);
            self.ranges = ranges;
        }
    }

    /// Notes a name that is in the directory from now on.
    pub(super) fn note(&mut self, key: u64) {
        self.sample.note(key);
        if let Some(filter) = &mut self.filter {
            filter.add(key);
        }
    }

    /// Units of space that are promised to what waits.
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    /// Notes space of a group that is promised to what waits.
    pub(super) fn add_promise(&mut self, group: u32, count: u32) {
        self.promised += u64::from(count);
        self.promises.push((group, count));
    }

    /// Forgets all promises: what they were.
    pub(super) fn take_promises(&mut self) -> Vec<(u32, u32)> {
        self.promised = 0;
        std::mem::take(&mut self.promises)
    }

    /// Whether a name is certainly not in the directory, and does not wait.
    pub(super) fn is_new(&self, key: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_have(key))
    }

    /// The part of a name.
    pub(super) fn part_of(&self, key: u64) -> usize {
        self.ranges.find(key)
    }

    /// The file of a name that waits, if there is one with this hash: and whether it has the name.
    pub(super) fn find(&self, key: u64, name: &[u8]) -> Option<(Record, bool)> {
        let part = &self.parts[self.part_of(key)];
        let waits = |at: usize| part.records[at].key == key && !part.records[at].is_applied;
        let record = part.records[part.places.find(key, waits)?];
        Some((record, part.name(&record) == name))
    }

    /// The part that has most names.
    pub(super) fn largest(&self) -> usize {
        (0..self.parts.len()).max_by_key(|&part| self.parts[part].waiting).unwrap_or(0)
    }

    /// Whether a part has an inode to give out.
    pub(super) fn has_inode(&self, part: usize) -> bool {
        self.parts[part].run.is_some_and(|run| !run.is_empty())
    }

    /// Gives inodes to a part that has none. Who owns those of the run from now on.
    pub(super) fn give(&mut self, dir: Ino, part: usize, run: InodeRun) -> RunOwner {
        let first = self.parts[part].records.len() as u32;
        self.parts[part].run = Some(run);
        RunOwner { dir, part: part as u32, first, run }
    }

    /// Adds a file that waits, whose name takes so many bytes. `None` if its part has no inode for it.
    pub(super) fn add(
        &mut self,
        (key, name, bytes): (u64, &[u8], usize),
        new: NewInode,
        generation: impl FnOnce(Ino) -> u32,
    ) -> Option<Ino> {
        let at = self.part_of(key);
        let part = &mut self.parts[at];
        let (name_start, name_len) = (u32::try_from(part.names.len()).ok()?, name.len() as u8);
        let ino = part.run.as_mut()?.take()?;
        part.names.extend_from_slice(name);
        part.places.add(key, part.records.len() as u32, |at| part.records[at].key);
        let generation = generation(ino);
        part.records.push(Record {
            key,
            ino,
            generation,
            name_start,
            name_len,
            is_applied: false,
            new,
        });
        part.waiting += 1;
        self.waiting += 1;
        self.name_bytes += bytes;
        if new.parent_time.is_some() {
            self.time = new.parent_time;
        }
        self.note(key);
        Some(ino)
    }

    /// A record that waits.
    pub(super) fn record(&self, part: usize, at: usize) -> Option<&Record> {
        self.parts[part].records.get(at).filter(|record| !record.is_applied)
    }

    /// Where the records of a part are that wait.
    pub(super) fn places(&self, part: usize, order: BatchOrder) -> Vec<u32> {
        let records = &self.parts[part].records;
        let waits = |&at: &u32| !records[at as usize].is_applied;
        let mut places: Vec<u32> = (0..records.len() as u32).filter(waits).collect();
        if order == BatchOrder::Hashes {
            places.sort_unstable_by_key(|&at| records[at as usize].key);
        }
        places
    }

    /// Notes that a file waits no more; `bytes_of` says how many a name of a length takes.
    pub(super) fn note_applied(
        &mut self,
        (part, at): (usize, usize),
        bytes_of: impl FnOnce(usize) -> usize,
    ) {
        let of = &mut self.parts[part];
        let Some(record) = of.records.get_mut(at).filter(|record| !record.is_applied) else {
            return;
        };
        record.is_applied = true;
        of.waiting -= 1;
        self.waiting -= 1;
        self.name_bytes -= bytes_of(record.name_len.into());
        if self.waiting == 0 {
            // The directory has it, and whatever changes the directory next may give it a later one.
            self.time = None;
        }
    }

    /// Forgets the records of a part none of which waits. What is left of its last run.
    pub(super) fn clear(&mut self, part: usize) -> Option<InodeRun> {
        let part = &mut self.parts[part];
        debug_assert_eq!(part.waiting, 0);
        part.records.clear();
        part.places.clear();
        part.names.clear();
        part.run.take().filter(|run| !run.is_empty())
    }

    /// Memory of the filter, in bytes.
    pub(super) fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::bytes)
    }
}

impl Part {
    /// Records that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The name of a record.
    pub(super) fn name(&self, record: &Record) -> &[u8] {
        let start = record.name_start as usize;
        self.names.get(start..start + usize::from(record.name_len)).unwrap_or_default()
    }

    /// All inodes of records, in ascending order of their places.
    pub(super) fn inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.records.iter().map(|record| record.ino)
    }
}
