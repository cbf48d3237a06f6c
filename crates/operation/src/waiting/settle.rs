//! What others see of files that wait, and having them applied.

use std::sync::Arc;

use vfs::{Attributes, Error, Ino, Result, Timestamp};

use super::apply::{apply, apply_directory};
use super::gate::Quiet;
use super::{LetFilesWait, Shared, Waiting};
use crate::inode::look_at_dir;

/// Files that are applied together or the directory counts as one in which files are not only made.
const APPLIED_MANY: usize = 64;

/// Applies what waits in a directory, and lets nothing wait there meanwhile. No inode may be locked.
///
/// # Errors
/// What applying brings.
pub fn quiet<F: LetFilesWait>(fs: &F, dir: Ino) -> Result<Quiet<'_>> {
    let waiting = fs.waiting();
    if waiting.policy.is_none() {
        return Ok(Quiet::NOTHING_WAITS);
    }
    let (quiet, may_wait) = waiting.gates.quiet(dir);
    if may_wait {
        let _lock = fs.locks().exclusive(&[dir]);
        if let Some(directory) = waiting.dirs.get(dir) {
            apply_all_of(fs, dir, &directory)?;
        }
    }
    Ok(quiet)
}

/// As [`quiet`], for what a name leads to if that is a directory: its times are about to change. No inode may be
/// locked.
///
/// # Errors
/// What applying brings.
pub fn quiet_named<'f, F: LetFilesWait>(
    fs: &'f F,
    (dir, name): (Ino, &[u8]),
) -> Result<Option<Quiet<'f>>> {
    if fs.waiting().is_empty() {
        return Ok(None);
    }
    let found = look_at_dir(fs, dir, |dir| fs.find_entry(dir, name));
    // Whatever is wrong with the name is for others to say.
    let Ok(Some(found)) = found else { return Ok(None) };
    quiet(fs, F::ino_of(&found)).map(Some)
}

/// Applies what waits in a directory, which must be locked exclusively. If that is little, waiting does not pay.
fn apply_all_of<F: LetFilesWait>(fs: &F, dir: Ino, directory: &Shared<F::Hasher>) -> Result<()> {
    let waiting = directory.lock().waiting;
    if waiting == 0 {
        return Ok(());
    }
    apply_directory(fs, dir, directory)?;
    if waiting < APPLIED_MANY {
        directory.lock().streak = 0;
    }
    Ok(())
}

/// Applies a file that waits, if it does. No inode may be locked.
///
/// # Errors
/// What applying brings.
pub fn settle<F: LetFilesWait>(fs: &F, ino: Ino) -> Result<()> {
    if fs.waiting().is_empty() { Ok(()) } else { settle_waiting(fs, ino) }
}

#[cold]
fn settle_waiting<F: LetFilesWait>(fs: &F, ino: Ino) -> Result<()> {
    let Some((dir, ..)) = by_inode(fs, ino) else { return Ok(()) };
    let _lock = fs.locks().exclusive(&[dir]);
    // Somebody else may have applied it meanwhile.
    let Some((now, directory, part, at, _)) = by_inode(fs, ino) else { return Ok(()) };
    if now == dir {
        directory.lock().streak = 0;
        apply(fs, dir, (&directory, part), &[at as u32])?;
    }
    Ok(())
}

/// As [`settle`] and [`quiet`]: for what may be a file or a directory.
///
/// # Errors
/// What applying brings.
pub fn settle_all_of<F: LetFilesWait>(fs: &F, ino: Ino) -> Result<Quiet<'_>> {
    settle(fs, ino)?;
    quiet(fs, ino)
}

/// Applies everything that waits. No inode may be locked.
///
/// # Errors
/// What applying brings.
pub fn settle_all<F: LetFilesWait>(fs: &F) -> Result<()> {
    if fs.waiting().is_empty() {
        return Ok(());
    }
    let mut dirs: Vec<(Ino, Shared<F::Hasher>)> = Vec::new();
    fs.waiting().dirs.for_each(|dir, directory| dirs.push((dir, Arc::clone(directory))));
    for (dir, directory) in dirs {
        let _lock = fs.locks().exclusive(&[dir]);
        apply_all_of(fs, dir, &directory)?;
    }
    Ok(())
}

/// Runs what may want space or inodes; and again, after all that waits was applied, if these seem to be short:
/// more is kept for what waits than it needs.
///
/// # Errors
/// What `run` fails with; what applying brings.
pub fn with_all<F: LetFilesWait, R>(fs: &F, mut run: impl FnMut() -> Result<R>) -> Result<R> {
    match run() {
        Err(Error::NoSpace | Error::NoInodes) if !fs.waiting().is_empty() => {
            settle_all(fs)?;
            run()
        }
        other => other,
    }
}

/// Counts a reference to a file that waits. False if it does not.
///
/// # Errors
/// If there are more references than can be counted.
pub fn open<F: LetFilesWait>(fs: &F, ino: Ino) -> Result<bool> {
    let Some((_, directory, part, at, _)) = by_inode(fs, ino) else { return Ok(false) };
    // It waits as long as this is locked, so it cannot lose its name meanwhile.
    let directory = directory.lock();
    if directory.record(part, at).is_none_or(|record| record.ino != ino) {
        return Ok(false);
    }
    fs.opens().open(ino)?;
    Ok(true)
}

/// The attributes of a file that waits; `None` if it does not.
///
/// # Errors
/// What reading brings.
pub fn attributes<F: LetFilesWait>(fs: &F, ino: Ino) -> Result<Option<Attributes>> {
    let Some((.., record)) = by_inode(fs, ino) else { return Ok(None) };
    fs.attributes_of(&record).map(Some)
}

fn by_inode<F: LetFilesWait>(fs: &F, ino: Ino) -> Option<super::Found<F::Hasher>> {
    if fs.waiting().is_empty() { None } else { fs.waiting().by_inode(F::run_id(ino), ino) }
}

impl<H> Waiting<H> {
    /// The time that files which wait give their directory. It must be locked.
    pub fn time(&self, dir: Ino) -> Option<Timestamp> {
        if !self.gates.may_wait(dir) {
            return None;
        }
        let directory = self.dirs.get(dir)?;
        let directory = directory.lock();
        directory.time.filter(|_| directory.waiting > 0)
    }
}
