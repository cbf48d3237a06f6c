//! Applying files that wait: names into leaves, inodes into the inode table.

use std::sync::atomic::Ordering;

use operation::RunOperations;
use operation::inode::{InodeHandle, load_dir};
use operation::names::Entry;
use vfs::{FileType, Ino, Result, Timestamp};

use super::Shared;
use super::table::Record;
use crate::Ext4;
use crate::alloc::reserved::InodeRun;

/// Files of one operation.
const BATCH: usize = 64;

/// The same with a small journal, which counts on few blocks of each operation.
const BATCH_SMALL: usize = 4;

/// Blocks of a checkpoint from which on a journal is not small.
const LOG_BLOCKS_LARGE: usize = 4096;

/// Files that one operation applies: copies, so that nothing is locked meanwhile.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    names: Vec<u8>,
    /// Where the name of each record ends.
    ends: Vec<usize>,
    /// Places of the records in the order of their inodes.
    by_inode: Vec<usize>,
    time: Option<Timestamp>,
}

impl Batch {
    fn fill(&mut self, directory: &Shared, part: usize, places: &[u32]) {
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

    /// Records in the order of their inodes.
    fn by_inode(&self) -> impl Iterator<Item = &Record> {
        self.by_inode.iter().map(|&at| &self.records[at])
    }

    /// Entries with the hashes of their names.
    fn entries(&self) -> impl Iterator<Item = (u32, Entry<'_>)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let names = starts.zip(&self.ends).map(|(start, &end)| &self.names[start..end]);
        self.records.iter().zip(names).map(|(record, name)| {
            let entry = Entry { name, ino: record.ino, file_type: FileType::Regular };
            (record.major_hash(), entry)
        })
    }
}

impl Ext4 {
    /// Applies everything that waits in a directory, which must be locked exclusively, and lets go of what was kept
    /// for it.
    pub(super) fn apply_directory(&self, dir: Ino, directory: &Shared) -> Result<()> {
        let parts = directory.lock().parts.len();
        for part in 0..parts {
            self.apply_part(dir, directory, part)?;
        }
        Ok(())
    }

    /// Applies a part of a directory, which must be locked exclusively.
    pub(super) fn apply_part(&self, dir: Ino, directory: &Shared, part: usize) -> Result<()> {
        let order = directory.lock().in_order(part);
        let places: Vec<u32> = order.into_iter().map(|(_, at)| at).collect();
        self.apply(dir, directory, part, &places)
    }

    /// Lets go of what was kept for files of a part if none of them waits; and for the directory.
    pub(super) fn tidy(&self, dir: Ino, directory: &Shared, part: usize) {
        let mut directory = directory.lock();
        if directory.parts[part].waiting() > 0 {
            return;
        }
        let inodes = directory.parts[part].inodes();
        self.waiting.forget_runs(dir, part, inodes.map(InodeRun::id_of));
        if let Some(left) = directory.clear(part) {
            // Perhaps none of its inodes was given out.
            self.waiting.forget_runs(dir, part, std::iter::once(left.id()));
            left.left().for_each(|ino| self.let_go_of_inode(ino));
        }
        if directory.waiting == 0 {
            let promises = directory.take_promises();
            promises.iter().for_each(|&(group, count)| self.volume.groups.release(group, count));
        }
    }

    /// Applies files of a part of a directory, which must be locked exclusively, in the order of their hashes.
    pub(super) fn apply(
        &self,
        dir: Ino,
        directory: &Shared,
        part: usize,
        places: &[u32],
    ) -> Result<()> {
        let is_small = self.engine.log_blocks_max() < LOG_BLOCKS_LARGE;
        let mut batch = Batch::default();
        for places in places.chunks(if is_small { BATCH_SMALL } else { BATCH }) {
            batch.fill(directory, part, places);
            if batch.records.is_empty() {
                continue;
            }
            self.apply_batch(dir, &batch)?;
            let mut directory = directory.lock();
            places.iter().for_each(|&at| directory.note_applied(part, at as usize));
            if directory.waiting == 0 {
                self.waiting.dirs_waiting.fetch_sub(1, Ordering::Relaxed);
            }
            drop(directory);
            self.waiting.gates.leave(dir, batch.records.len());
            batch.records.iter().for_each(|record| self.let_go_of_inode(record.ino));
        }
        self.tidy(dir, directory, part);
        Ok(())
    }

    fn apply_batch(&self, dir: Ino, batch: &Batch) -> Result<()> {
        let before = load_dir(self, dir)?;
        self.atomically_freeing(|op| {
            let mut parent = before;
            op.add_in_order(&mut parent, batch.entries())?;
            for record in batch.by_inode() {
                op.take_reserved(record.ino)?;
            }
            op.expect_staged(batch.records.len() + 1);
            for record in batch.by_inode() {
                op.stage_new(self.new_file(record.ino, record.generation, &record.new)?);
            }
            parent.touch(batch.time);
            op.stage_dir(parent, &before)
        })
    }

    /// Lets others have an inode that was kept, or that is used by now.
    fn let_go_of_inode(&self, ino: Ino) {
        if let Some((group, index)) = self.volume.geometry.place_of(ino) {
            self.volume.groups.let_go_of_inode(group, index);
        }
    }
}
