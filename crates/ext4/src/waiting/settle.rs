//! What others see of files that wait, and having them applied.

use std::sync::Arc;
use vfs::{Attributes, Error, Ino, Result, Timestamp};

use super::Shared;
use super::gate::Quiet;
use crate::Ext4;
use crate::dir;
use crate::inode;
use operation::inode::look_at_dir;

/// Files that are applied together or the directory counts as one in which files are not only made.
const APPLIED_MANY: usize = 64;

impl Ext4 {
    /// Files that were made and wait in memory to be entered into their directories, as
    /// [`OpenOptions::waiting`](crate::OpenOptions) allows.
    pub fn files_waiting(&self) -> usize {
        self.waiting.files()
    }

    /// Applies what waits in a directory, and lets nothing wait there meanwhile. No inode may be locked.
    pub(crate) fn quiet(&self, dir: Ino) -> Result<Quiet<'_>> {
        if self.waiting.policy.is_none() {
            return Ok(Quiet::NOTHING_WAITS);
        }
        let (quiet, may_wait) = self.waiting.gates.quiet(dir);
        if may_wait {
            let _lock = self.locks.exclusive(&[dir]);
            if let Some(directory) = self.waiting.dirs.get(dir) {
                self.apply_all_of(dir, &directory)?;
            }
        }
        Ok(quiet)
    }

    /// As [`Ext4::quiet`], for what a name leads to if that is a directory: its times are about to change. No inode may
    /// be locked.
    pub(crate) fn quiet_named(&self, (dir, name): (Ino, &[u8])) -> Result<Option<Quiet<'_>>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let found = look_at_dir(self, dir, |dir| dir::lookup(self, dir, name));
        // Whatever is wrong with the name is for others to say.
        found.map_or(Ok(None), |ino| self.quiet(ino).map(Some))
    }

    /// Applies what waits in a directory, which must be locked exclusively. If that is little, waiting does not pay.
    fn apply_all_of(&self, dir: Ino, directory: &Shared) -> Result<()> {
        let waiting = directory.lock().waiting;
        if waiting == 0 {
            return Ok(());
        }
        self.apply_directory(dir, directory)?;
        if waiting < APPLIED_MANY {
            directory.lock().streak = 0;
        }
        Ok(())
    }

    /// Applies a file that waits, if it does. No inode may be locked.
    pub(crate) fn settle(&self, ino: Ino) -> Result<()> {
        if self.waiting.by_inode(ino).is_none() {
            return Ok(());
        }
        self.settle_waiting(ino)
    }

    #[cold]
    fn settle_waiting(&self, ino: Ino) -> Result<()> {
        let Some((dir, ..)) = self.waiting.by_inode(ino) else { return Ok(()) };
        let _lock = self.locks.exclusive(&[dir]);
        // Somebody else may have applied it meanwhile.
        let Some((now, directory, part, at, _)) = self.waiting.by_inode(ino) else { return Ok(()) };
        if now == dir {
            directory.lock().streak = 0;
            self.apply(dir, &directory, part, &[at as u32])?;
        }
        Ok(())
    }

    /// As [`Ext4::settle`] and [`Ext4::quiet`]: for what may be a file or a directory.
    pub(crate) fn settle_all_of(&self, ino: Ino) -> Result<Quiet<'_>> {
        self.settle(ino)?;
        self.quiet(ino)
    }

    /// Applies everything that waits. No inode may be locked.
    pub(crate) fn settle_all(&self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut dirs: Vec<(Ino, Shared)> = Vec::new();
        self.waiting.dirs.for_each(|dir, directory| dirs.push((dir, Arc::clone(directory))));
        for (dir, directory) in dirs {
            let _lock = self.locks.exclusive(&[dir]);
            self.apply_all_of(dir, &directory)?;
        }
        Ok(())
    }

    /// Runs what may want space or inodes; and again, after all that waits was applied, if these seem to be short:
    /// more is kept for what waits than it needs.
    pub(crate) fn with_all<R>(&self, mut run: impl FnMut() -> Result<R>) -> Result<R> {
        match run() {
            Err(Error::NoSpace | Error::NoInodes) if !self.waiting.is_empty() => {
                self.settle_all()?;
                run()
            }
            other => other,
        }
    }

    /// Counts a reference to a file that waits. False if it does not.
    pub(crate) fn open_waiting(&self, ino: Ino) -> Result<bool> {
        let Some((_, directory, part, at, _)) = self.waiting.by_inode(ino) else {
            return Ok(false);
        };
        // It waits as long as this is locked, so it cannot lose its name meanwhile.
        let directory = directory.lock();
        if directory.record(part, at).is_none_or(|record| record.ino != ino) {
            return Ok(false);
        }
        operation::orphans::InactivateInodes::opens(self).open(ino)?;
        Ok(true)
    }

    /// The attributes of a file that waits.
    pub(crate) fn waiting_attributes(&self, ino: Ino) -> Result<Option<Attributes>> {
        let Some((.., record)) = self.waiting.by_inode(ino) else { return Ok(None) };
        let handle = self.new_file(ino, record.generation, &record.new)?;
        inode::attributes(self, &handle).map(Some)
    }

    /// The time that files which wait give their directory. It must be locked.
    pub(crate) fn waiting_time(&self, dir: Ino) -> Option<Timestamp> {
        if !self.waiting.gates.may_wait(dir) {
            return None;
        }
        let directory = self.waiting.dirs.get(dir)?;
        let directory = directory.lock();
        directory.time.filter(|_| directory.waiting > 0)
    }
}
