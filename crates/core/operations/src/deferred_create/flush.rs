//! Access to deferred files by other operations, and applying them on demand.

use std::sync::Arc;

use vfs::{Attributes, Error, Ino, Result, Timestamp};

use super::apply::{apply, apply_directory};
use super::gate::Flushed;
use super::{DeferCreates, DeferredCreates, SharedDirectory};
use crate::inode::look_at_dir;

/// If fewer files are applied together, the directory counts as one with mixed operations.
const APPLIED_MANY: usize = 64;

/// Applies the deferred files of a directory, and prevents new ones until the result is dropped. The caller must not
/// hold an inode lock.
///
/// # Errors
/// Returns the errors of applying.
pub(super) fn flush_dir<F: DeferCreates>(fs: &F, dir: Ino) -> Result<Flushed<'_>> {
    let deferred = fs.deferred();
    if deferred.policy.is_none() {
        return Ok(Flushed::NOTHING_DEFERRED);
    }
    let (flushed, may_have_names) = deferred.gates.block(dir);
    if may_have_names {
        let _lock = fs.locks().exclusive(&[dir]);
        if let Some(directory) = deferred.dirs.get(dir) {
            apply_all_of(fs, dir, &directory)?;
        }
    }
    Ok(flushed)
}

/// Like [`flush_dir`], for the inode of a name if it is a directory, whose times are about to change. The caller must
/// not hold an inode lock.
///
/// # Errors
/// Returns the errors of applying.
pub(super) fn flush_named_dir<'f, F: DeferCreates>(
    fs: &'f F,
    (dir, name): (Ino, &[u8]),
) -> Result<Option<Flushed<'f>>> {
    if fs.deferred().is_empty() {
        return Ok(None);
    }
    let found = look_at_dir(fs, dir, |dir| fs.find_entry(dir, name));
    // The caller's own look-up reports errors in the name.
    let Ok(Some(found)) = found else { return Ok(None) };
    flush_dir(fs, F::ino_of(&found)).map(Some)
}

/// Applies the deferred files of a directory, which must be locked exclusively. If they are few, deferral does not pay
/// and the streak starts again.
fn apply_all_of<F: DeferCreates>(
    fs: &F,
    dir: Ino,
    directory: &SharedDirectory<F::Hasher>,
) -> Result<()> {
    let deferred = directory.lock().deferred;
    if deferred == 0 {
        return Ok(());
    }
    apply_directory(fs, dir, directory)?;
    if deferred < APPLIED_MANY {
        directory.lock().streak = 0;
    }
    Ok(())
}

/// Applies a file if it is deferred. The caller must not hold an inode lock.
///
/// # Errors
/// Returns the errors of applying.
pub fn flush_file<F: DeferCreates>(fs: &F, ino: Ino) -> Result<()> {
    if fs.deferred().is_empty() { Ok(()) } else { flush_deferred(fs, ino) }
}

#[cold]
fn flush_deferred<F: DeferCreates>(fs: &F, ino: Ino) -> Result<()> {
    let Some((dir, ..)) = by_inode(fs, ino) else { return Ok(()) };
    let _lock = fs.locks().exclusive(&[dir]);
    // Another thread may have applied it in the meantime.
    let Some((now, directory, part, at, _)) = by_inode(fs, ino) else { return Ok(()) };
    if now == dir {
        directory.lock().streak = 0;
        apply(fs, dir, (&directory, part), &[at as u32])?;
    }
    Ok(())
}

/// Combines [`flush_file`] and [`flush_dir`], for an inode that may be a file or a directory.
///
/// # Errors
/// Returns the errors of applying.
pub(super) fn flush_inode<F: DeferCreates>(fs: &F, ino: Ino) -> Result<Flushed<'_>> {
    flush_file(fs, ino)?;
    flush_dir(fs, ino)
}

/// Applies all deferred files. The caller must not hold an inode lock.
///
/// # Errors
/// Returns the errors of applying.
pub(crate) fn flush_all<F: DeferCreates>(fs: &F) -> Result<()> {
    if fs.deferred().is_empty() {
        return Ok(());
    }
    let mut dirs: Vec<(Ino, SharedDirectory<F::Hasher>)> = Vec::new();
    fs.deferred().dirs.for_each(|dir, directory| dirs.push((dir, Arc::clone(directory))));
    for (dir, directory) in dirs {
        let _lock = fs.locks().exclusive(&[dir]);
        apply_all_of(fs, dir, &directory)?;
    }
    Ok(())
}

/// Runs an operation that may need space or inodes. If these run out, applies all deferred files, whose reservations
/// exceed their needs, and runs the operation again.
///
/// # Errors
/// Returns the errors of `run` and of applying.
pub(super) fn retry_after_flush<F: DeferCreates, R>(
    fs: &F,
    mut run: impl FnMut() -> Result<R>,
) -> Result<R> {
    match run() {
        Err(Error::NoSpace | Error::NoInodes) if !fs.deferred().is_empty() => {
            flush_all(fs)?;
            run()
        }
        other => other,
    }
}

/// Adds a reference to a deferred file. Returns false if the file is not deferred.
///
/// # Errors
/// If the number of references would overflow.
pub(super) fn open<F: DeferCreates>(fs: &F, ino: Ino) -> Result<bool> {
    let Some((_, directory, part, at, _)) = by_inode(fs, ino) else { return Ok(false) };
    // The file stays deferred while this is locked, so it cannot lose its name.
    let directory = directory.lock();
    if directory.record(part, at).is_none_or(|record| record.ino != ino) {
        return Ok(false);
    }
    fs.opens().open(ino)?;
    Ok(true)
}

/// Returns the attributes of a deferred file; `None` if the file is not deferred. The caller must not hold an inode
/// lock.
///
/// # Errors
/// Read errors.
pub(super) fn attributes<F: DeferCreates>(fs: &F, ino: Ino) -> Result<Option<Attributes>> {
    loop {
        let Some((dir, .., record)) = by_inode(fs, ino) else { return Ok(None) };
        match fs.attributes_of(&record) {
            // Another thread may be applying the file: its inode on disk is then already in use.
            Err(Error::Corrupt(_)) => {}
            result => return result.map(Some),
        }
        let _lock = fs.locks().shared(dir);
        match by_inode(fs, ino) {
            None => return Ok(None),
            Some((now, .., record)) if now == dir => return fs.attributes_of(&record).map(Some),
            Some(_) => {}
        }
    }
}

fn by_inode<F: DeferCreates>(fs: &F, ino: Ino) -> Option<super::FoundFile<F::Hasher>> {
    if fs.deferred().is_empty() { None } else { fs.deferred().by_inode(F::run_id(ino), ino) }
}

impl<H> DeferredCreates<H> {
    /// Returns the times of a directory that result from its deferred files. The directory must be locked.
    pub(crate) fn time(&self, dir: Ino) -> Option<Timestamp> {
        if !self.gates.may_have_names(dir) {
            return None;
        }
        let directory = self.dirs.get(dir)?;
        let directory = directory.lock();
        directory.time.filter(|_| directory.deferred > 0)
    }
}
