//! Names of one directory that wait.
//!
//! They are in parts by the upper bits of their hashes. A part is applied at a time, so its leaves are met together;
//! and it takes the numbers of its inodes from runs of its own, so blocks of the inode table are met together, too.
//!
//! A record stays at its place in its part until the whole part was applied; one that was applied is only marked.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use vfs::{Ino, NewInode, Timestamp};

use super::filter::Filter;
use super::places::Places;
use crate::alloc::reserved::InodeRun;
use crate::format::address::Group;
use crate::format::dirent::record_size;
use crate::format::hash::{NameHash, NameHasher};

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

/// The hash of a name as one number, in the order of the index.
pub(super) fn key(hash: NameHash) -> u64 {
    (u64::from(hash.major) << 32) | u64::from(hash.minor)
}

/// A file that waits: all that makes it but its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) key: u64,
    pub(super) ino: Ino,
    pub(super) generation: u32,
    name_start: u32,
    name_len: u8,
    is_applied: bool,
    pub(super) new: NewInode,
}

impl Record {
    /// What the index has of the hash of the name.
    pub(super) fn major_hash(&self) -> u32 {
        (self.key >> 32) as u32
    }
}

/// Files whose hashes have the same upper bits.
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
pub(super) struct Directory {
    pub(super) generation: u32,
    pub(super) hasher: NameHasher,
    pub(super) parts: Vec<Part>,
    /// What all names of the directory, those that wait included, are in; `None` if it is not known. Then nothing
    /// waits.
    pub(super) filter: Option<Filter>,
    /// Names that wait.
    pub(super) waiting: usize,
    /// Bytes of their entries.
    pub(super) entry_bytes: usize,
    /// The time that the last of them gives the directory; `None` if nothing waits.
    pub(super) time: Option<Timestamp>,
    /// Names that were made one by one since something else was done.
    pub(super) streak: usize,
    /// Clusters of groups that are promised to what waits.
    promises: Vec<(Group, u32)>,
    /// How many these are.
    promised: u64,
}

/// Clusters for blocks that do not follow from the number of names.
const SPACE_LEAST: u64 = 16;

impl Directory {
    pub(super) fn new(generation: u32, hasher: NameHasher, parts: usize) -> Self {
        let parts = (0..parts.next_power_of_two()).map(|_| Part::default()).collect();
        Self {
            generation,
            hasher,
            parts,
            filter: None,
            waiting: 0,
            entry_bytes: 0,
            time: None,
            streak: 0,
            promises: Vec::new(),
            promised: 0,
        }
    }

    /// Clusters, at most, that a directory of so many blocks may need for what waits and one more name.
    ///
    /// A leaf that is full is split for the first name in it. Both halves have room for a quarter of a block of
    /// entries at the least, so that much must come before either is split again. Nodes of the index and of the map
    /// of the directory have more than 32 entries for each that they are split for.
    pub(super) fn space_needed(&self, blocks: u64, block_size: u64) -> u64 {
        let first = blocks.min(self.waiting as u64 + 1);
        let entry_bytes = (self.entry_bytes + record_size(vfs::NAME_LEN_MAX)) as u64;
        let leaves = first + entry_bytes * 4 / block_size;
        leaves + leaves / 32 + SPACE_LEAST
    }

    /// Clusters that are promised to what waits.
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    /// Notes clusters that are promised to what waits.
    pub(super) fn add_promise(&mut self, group: Group, clusters: u32) {
        self.promised += u64::from(clusters);
        self.promises.push((group, clusters));
    }

    /// Forgets all promises: what they were.
    pub(super) fn take_promises(&mut self) -> Vec<(Group, u32)> {
        self.promised = 0;
        std::mem::take(&mut self.promises)
    }

    /// Whether a name is certainly not in the directory, and does not wait.
    pub(super) fn is_new(&self, key: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_have(key))
    }

    /// Whether a name that is new has all that it needs to wait.
    pub(super) fn is_provided(&self, key: u64, blocks: u64, block_size: u64) -> bool {
        self.has_inode(self.part_of(key)) && self.space_needed(blocks, block_size) <= self.promised
    }

    /// The part of a name.
    pub(super) fn part_of(&self, key: u64) -> usize {
        let bits = self.parts.len().trailing_zeros();
        if bits == 0 { 0 } else { (key >> (64 - bits)) as usize }
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

    /// Adds a file that waits. `None` if its part has no inode for it.
    pub(super) fn add(
        &mut self,
        key: u64,
        name: &[u8],
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
        self.entry_bytes += record_size(name.len());
        if new.parent_time.is_some() {
            self.time = new.parent_time;
        }
        if let Some(filter) = &mut self.filter {
            filter.add(key);
        }
        Some(ino)
    }

    /// A record that waits.
    pub(super) fn record(&self, part: usize, at: usize) -> Option<&Record> {
        self.parts[part].records.get(at).filter(|record| !record.is_applied)
    }

    /// The records of a part that wait, in the order of their hashes.
    pub(super) fn in_order(&self, part: usize) -> Vec<(u64, u32)> {
        let records = self.parts[part].records.iter().enumerate();
        let waiting = records.filter(|(_, record)| !record.is_applied);
        let mut order: Vec<_> = waiting.map(|(at, record)| (record.key, at as u32)).collect();
        order.sort_unstable();
        order
    }

    /// Notes that a file waits no more.
    pub(super) fn note_applied(&mut self, part: usize, at: usize) {
        let of = &mut self.parts[part];
        let Some(record) = of.records.get_mut(at).filter(|record| !record.is_applied) else {
            return;
        };
        record.is_applied = true;
        of.waiting -= 1;
        self.waiting -= 1;
        self.entry_bytes -= record_size(record.name_len.into());
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
