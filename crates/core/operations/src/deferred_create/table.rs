//! Deferred names of one directory.
//!
//! They are divided into parts by ranges of their hashes. Parts are applied one at a time, so each leaf is touched once
//! for many names. Each part assigns inodes from runs of its own, so blocks of the inode table are touched together,
//! too.
//!
//! A record keeps its index in its part until the whole part is applied; applied records are only marked.

use vfs::{Ino, NewInode, Timestamp};

use super::filter::Filter;
use super::places::Places;
use super::ranges::{Ranges, Sample};
use super::run::InodeRun;

/// A deferred file: everything needed to create it, except its name.
#[derive(Clone, Copy, Debug)]
pub struct DeferredFile {
    /// Hash of the name.
    pub key: u64,
    /// Reserved inode.
    pub ino: Ino,
    /// Generation that was reported.
    pub generation: u32,
    name_start: u32,
    name_len: u8,
    is_applied: bool,
    /// Attributes requested by the caller.
    pub new: NewInode,
}

/// Order in which the files of a part are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOrder {
    /// By the hashes of their names: one or two operations touch each leaf of the part.
    Hashes,
    /// By creation, which is also the order of their inodes: each block of inodes is touched by one or two operations.
    Made,
}

/// Files whose hashes are in one range.
#[derive(Default)]
pub(super) struct HashRange {
    records: Vec<DeferredFile>,
    /// Index of each record by its key.
    places: Places,
    names: Vec<u8>,
    /// Number of records not applied yet.
    deferred: usize,
    /// Reserved inodes of the part that were not assigned.
    run: Option<InodeRun>,
}

/// Records of the assigned inodes of a run: those from `first` on, in ascending order of the inodes of `run`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOwner {
    pub(super) dir: Ino,
    pub(super) part: u32,
    first: u32,
    run: InodeRun,
}

impl RunOwner {
    /// Returns the record index of an inode of the run.
    pub(super) fn record(&self, ino: Ino) -> Option<usize> {
        Some(self.first as usize + self.run.rank(ino)?)
    }
}

/// The deferred names of a directory, and information about its other names.
pub(super) struct DeferredDirectory<H> {
    pub(super) generation: u32,
    pub(super) hasher: H,
    pub(super) parts: Vec<HashRange>,
    /// Hash ranges of the parts.
    ranges: Ranges,
    /// Sample of recently created names.
    sample: Sample,
    /// Filter of all names of the directory, including deferred ones. If it is `None`, nothing is deferred.
    pub(super) filter: Option<Filter>,
    /// Number of deferred names.
    pub(super) deferred: usize,
    /// Total bytes of the deferred names.
    pub(super) name_bytes: usize,
    /// Directory time set by the last deferred name; `None` if nothing is deferred.
    pub(super) time: Option<Timestamp>,
    /// Number of names created since the last other change.
    pub(super) streak: usize,
    /// Space promised to the deferred names, by group.
    promises: Vec<(u32, u32)>,
    /// Sum of the promised space.
    promised: u64,
}

impl<H> DeferredDirectory<H> {
    pub(super) fn new(generation: u32, hasher: H) -> Self {
        Self {
            generation,
            hasher,
            parts: vec![HashRange::default()],
            ranges: Ranges::default(),
            sample: Sample::default(),
            filter: None,
            deferred: 0,
            name_bytes: 0,
            time: None,
            streak: 0,
            promises: Vec::new(),
            promised: 0,
        }
    }

    /// Splits the directory into `parts` parts, if these are more than before and nothing is deferred.
    pub(super) fn part(&mut self, parts: usize) {
        if parts > self.parts.len() && self.deferred == 0 {
            self.part_again(parts);
        }
    }

    #[cold]
    fn part_again(&mut self, parts: usize) {
        let ranges = Ranges::of(&self.sample, parts);
        // If the hashes of many names agree, fewer ranges are possible.
        let is_more = ranges.count() >= parts.min(self.parts.len() * 2);
        if is_more && self.parts.iter().all(|part| part.run.is_none()) {
            self.parts.resize_with(ranges.count(), HashRange::default);
            self.ranges = ranges;
        }
    }

    /// Records a name that the directory has from now on.
    pub(super) fn note(&mut self, key: u64) {
        self.sample.note(key);
        if let Some(filter) = &mut self.filter {
            filter.add(key);
        }
    }

    /// Returns the space promised to the deferred names.
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    /// Adds space of a group that is promised to the deferred names.
    pub(super) fn add_promise(&mut self, group: u32, count: u32) {
        self.promised += u64::from(count);
        self.promises.push((group, count));
    }

    /// Removes and returns all promises.
    pub(super) fn take_promises(&mut self) -> Vec<(u32, u32)> {
        self.promised = 0;
        std::mem::take(&mut self.promises)
    }

    /// Returns whether a name certainly does not exist in the directory, deferred or not.
    pub(super) fn is_new(&self, key: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_have(key))
    }

    /// Returns the part of a name.
    pub(super) fn part_of(&self, key: u64) -> usize {
        self.ranges.find(key)
    }

    /// Returns a deferred file with this hash, and whether it has this name.
    pub(super) fn find(&self, key: u64, name: &[u8]) -> Option<(DeferredFile, bool)> {
        let part = &self.parts[self.part_of(key)];
        let is_deferred = |at: usize| part.records[at].key == key && !part.records[at].is_applied;
        let record = part.records[part.places.find(key, is_deferred)?];
        Some((record, part.name(&record) == name))
    }

    /// Returns the part with the most deferred names.
    pub(super) fn largest(&self) -> usize {
        (0..self.parts.len()).max_by_key(|&part| self.parts[part].deferred).unwrap_or(0)
    }

    /// Returns whether a part has an unassigned inode.
    pub(super) fn has_inode(&self, part: usize) -> bool {
        self.parts[part].run.is_some_and(|run| !run.is_empty())
    }

    /// Gives a run of inodes to a part that has none. Returns the owner of the run.
    pub(super) fn give(&mut self, dir: Ino, part: usize, run: InodeRun) -> RunOwner {
        let first = self.parts[part].records.len() as u32;
        self.parts[part].run = Some(run);
        RunOwner { dir, part: part as u32, first, run }
    }

    /// Adds a deferred file whose name takes `bytes` bytes. Returns `None` if its part has no inode for it.
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
        part.records.push(DeferredFile {
            key,
            ino,
            generation,
            name_start,
            name_len,
            is_applied: false,
            new,
        });
        part.deferred += 1;
        self.deferred += 1;
        self.name_bytes += bytes;
        if new.parent_time.is_some() {
            self.time = new.parent_time;
        }
        self.note(key);
        Some(ino)
    }

    /// Returns a record if its file is deferred.
    pub(super) fn record(&self, part: usize, at: usize) -> Option<&DeferredFile> {
        self.parts[part].records.get(at).filter(|record| !record.is_applied)
    }

    /// Returns the indexes of the deferred records of a part.
    pub(super) fn places(&self, part: usize, order: BatchOrder) -> Vec<u32> {
        let records = &self.parts[part].records;
        let is_deferred = |&at: &u32| !records[at as usize].is_applied;
        let mut places: Vec<u32> = (0..records.len() as u32).filter(is_deferred).collect();
        if order == BatchOrder::Hashes {
            places.sort_unstable_by_key(|&at| records[at as usize].key);
        }
        places
    }

    /// Marks a file as applied. `bytes_of` returns the number of bytes for a name of a given length.
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
        of.deferred -= 1;
        self.deferred -= 1;
        self.name_bytes -= bytes_of(record.name_len.into());
        if self.deferred == 0 {
            // The directory has this time now, and a later change of the directory may set a newer one.
            self.time = None;
        }
    }

    /// Removes the records of a part without deferred files. Returns the remaining inodes of its last run.
    pub(super) fn clear(&mut self, part: usize) -> Option<InodeRun> {
        let part = &mut self.parts[part];
        debug_assert_eq!(part.deferred, 0);
        part.records.clear();
        part.places.clear();
        part.names.clear();
        part.run.take().filter(|run| !run.is_empty())
    }

    /// Returns the memory of the filter in bytes.
    pub(super) fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::bytes)
    }
}

impl HashRange {
    /// Returns the number of deferred records.
    pub(super) fn deferred(&self) -> usize {
        self.deferred
    }

    /// Returns the name of a record.
    pub(super) fn name(&self, record: &DeferredFile) -> &[u8] {
        let start = record.name_start as usize;
        self.names.get(start..start + usize::from(record.name_len)).unwrap_or_default()
    }

    /// Returns the inodes of all records, in the order of their indexes.
    pub(super) fn inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.records.iter().map(|record| record.ino)
    }
}
