//! Applying deferred files: writing their names into directories and their inodes into place.

use std::sync::atomic::Ordering;

use vfs::{Ino, Result};

use super::batch::Batch;
use super::{DeferCreates, SharedDirectory};

/// Maximum number of files that one operation applies.
const BATCH: usize = 64;

/// The same with a small log, which assumes few blocks for each operation.
const BATCH_SMALL: usize = 4;

/// Minimum size of checkpoints, in blocks, of a log that is not small.
const LOG_BLOCKS_LARGE: usize = 4096;

/// Applies all deferred files of a directory, which must be locked exclusively, and releases its reservations.
pub(super) fn apply_directory<F: DeferCreates>(
    fs: &F,
    dir: Ino,
    directory: &SharedDirectory<F::Hasher>,
) -> Result<()> {
    let parts = directory.lock().parts.len();
    (0..parts).try_for_each(|part| apply_part(fs, dir, directory, part))
}

/// Applies a part of a directory, which must be locked exclusively.
pub(super) fn apply_part<F: DeferCreates>(
    fs: &F,
    dir: Ino,
    directory: &SharedDirectory<F::Hasher>,
    part: usize,
) -> Result<()> {
    let places = directory.lock().places(part, F::ORDER);
    apply(fs, dir, (directory, part), &places)
}

/// Releases the reserved inodes of a part if none of its files is deferred, and the promised space of the directory if
/// nothing is deferred in it.
pub(super) fn tidy<F: DeferCreates>(
    fs: &F,
    dir: Ino,
    directory: &SharedDirectory<F::Hasher>,
    part: usize,
) {
    let mut directory = directory.lock();
    if directory.parts[part].deferred() > 0 {
        return;
    }
    let inodes = directory.parts[part].inodes();
    fs.deferred().forget_runs(dir, part, inodes.map(F::run_id));
    if let Some(left) = directory.clear(part) {
        // Possibly no inode of the run was assigned, so no record leads to it.
        fs.deferred().forget_runs(dir, part, std::iter::once(F::run_id(left.base())));
        left.left().for_each(|ino| fs.let_go_of_inode(ino));
    }
    if directory.deferred == 0 {
        let promises = directory.take_promises();
        promises.iter().for_each(|&(group, count)| fs.release(group, count));
    }
}

/// Applies files of a part of a directory, which must be locked exclusively.
pub(super) fn apply<F: DeferCreates>(
    fs: &F,
    dir: Ino,
    (directory, part): (&SharedDirectory<F::Hasher>, usize),
    places: &[u32],
) -> Result<()> {
    let deferred = fs.deferred();
    let is_small = fs.engine().log_blocks_max() < LOG_BLOCKS_LARGE;
    let mut batch = Batch::default();
    for places in places.chunks(if is_small { BATCH_SMALL } else { BATCH }) {
        batch.fill(directory, part, places);
        if batch.records().is_empty() {
            continue;
        }
        fs.apply_batch(dir, &batch)?;
        let mut directory = directory.lock();
        for &at in places {
            directory.note_applied((part, at as usize), |len| fs.bytes_of_name(len));
        }
        if directory.deferred == 0 {
            deferred.dirs_deferred.fetch_sub(1, Ordering::Relaxed);
        }
        drop(directory);
        deferred.gates.leave(dir, batch.records().len());
        batch.records().iter().for_each(|record| fs.let_go_of_inode(record.ino));
    }
    tidy(fs, dir, directory, part);
    Ok(())
}
