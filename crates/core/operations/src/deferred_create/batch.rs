//! A batch of files that one operation applies. They are copies, so that no lock is held during the operation.

use vfs::{FileType, Timestamp};

use super::SharedDirectory;
use super::table::DeferredFile;
use crate::names::Entry;

/// Files of one directory that one operation applies, sorted by the hashes of their names.
#[derive(Default)]
pub struct Batch {
    records: Vec<DeferredFile>,
    names: Vec<u8>,
    /// End of each record's name.
    ends: Vec<usize>,
    /// Indexes of the records, sorted by inode.
    by_inode: Vec<usize>,
    time: Option<Timestamp>,
}

impl Batch {
    pub(super) fn fill<H>(&mut self, directory: &SharedDirectory<H>, part: usize, places: &[u32]) {
        self.records.clear();
        self.names.clear();
        self.ends.clear();
        let directory = directory.lock();
        for &at in places {
            let Some(record) = directory.record(part, at as usize) else { continue };
            self.records.push(*record);
            self.names.extend_from_slice(directory.parts[part].name(record));
            self.ends.push(self.names.len());
        }
        self.time = directory.time;
        self.by_inode.clear();
        self.by_inode.extend(0..self.records.len());
        self.by_inode.sort_unstable_by_key(|&at| self.records[at].ino);
    }

    /// Returns the records, sorted by the hashes of their names.
    pub fn records(&self) -> &[DeferredFile] {
        &self.records
    }

    /// Returns the directory's new times; `None` leaves them unchanged.
    pub fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// Returns the records with their names, sorted by inode.
    pub fn by_inode(&self) -> impl Iterator<Item = (&DeferredFile, &[u8])> {
        self.by_inode.iter().map(|&at| (&self.records[at], self.name(at)))
    }

    /// Returns the directory entries with the hashes of their names, sorted by hash.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry<'_>)> {
        (0..).zip(&self.records).map(|(at, record)| {
            let file_type = FileType::Regular;
            (record.key, Entry { name: self.name(at), ino: record.ino, file_type })
        })
    }

    fn name(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.names[start..self.ends[at]]
    }
}
