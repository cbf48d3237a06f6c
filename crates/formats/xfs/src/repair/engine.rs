//! Changes through the engine, once the trees of space are right. The staging is opened as an image without a log and
//! without other users.

use disk::BlockDevice;
use operations::repair::Action;
use operations::{Mode, Outcome, RunOperations};
use vfs::{Error, Ino, Result};

use super::RepairJob;
use crate::XfsCore;
use crate::inode::Handle;
use crate::op::Op;
use crate::volume::read_superblock;

/// Size of the metadata cache, in bytes.
const CACHE_BYTES: usize = 64 << 20;

impl RepairJob {
    /// Writes bytes of the image as one step. If the staging refuses any of them because it cannot be read, none is
    /// written.
    pub(super) fn write_step(&self, writes: &[(u64, &[u8])], actions: Vec<Action>) -> bool {
        let written = writes.iter().try_for_each(|(byte, data)| self.staging.write_at(*byte, data));
        match written.and_then(|()| self.staging.end_step(actions)) {
            Ok(is_step) => is_step,
            Err(_) => {
                self.staging.abandon();
                false
            }
        }
    }
}

/// The staging, opened for changes.
pub(super) struct Session<'j> {
    job: &'j RepairJob,
    pub(super) fs: XfsCore,
}

impl<'j> Session<'j> {
    /// Opens the staging. `None` if the engine cannot use it: a lower level is not repaired yet, or it has features
    /// that cannot be written.
    pub(super) fn open(job: &'j RepairJob) -> Option<Self> {
        Self::try_open(job).ok().map(|fs| Self { job, fs })
    }

    fn try_open(job: &RepairJob) -> Result<XfsCore> {
        let device: std::sync::Arc<dyn BlockDevice> = job.staging.clone();
        let sb = read_superblock(&*device)?;
        if let Some(reason) = sb.unmaintained() {
            return Err(Error::unsupported(
                reason,
                "diskwright repair handles such images without the engine",
            ));
        }
        let fs = XfsCore::with_device(device, None, CACHE_BYTES, Mode::InProgress)?;
        // The count of free realtime extents is written with each step. Without its files, no realtime extent is
        // allocated or freed.
        match fs.load_realtime(false) {
            Ok(()) | Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        fs.load_unlinked_lists()?;
        Ok(fs)
    }

    /// Makes a change that is a separate step. If it fails, nothing changes. Returns whether it was made.
    pub(super) fn step(
        &mut self,
        actions: Vec<Action>,
        change: impl FnOnce(&XfsCore) -> Result<()>,
    ) -> bool {
        let done = change(&self.fs).and_then(|()| {
            self.fs.engine.checkpoint()?;
            self.fs.flush_superblock()?;
            Ok(self.fs.engine.checkpoint()?)
        });
        if done.is_ok() && self.job.staging.end_step(actions).is_ok() {
            return true;
        }
        self.job.staging.abandon();
        // The engine's memory no longer matches the staging.
        if let Ok(fs) = Self::try_open(self.job) {
            self.fs = fs;
        }
        false
    }
}

/// Maximum number of changes in one step, while none fails.
const AT_ONCE: usize = 64;

impl Session<'_> {
    /// Makes the same change for many items, several in a step. Returns those for which it failed.
    pub(super) fn steps<'t, T>(
        &mut self,
        all: &'t [T],
        actions: impl Fn(&T) -> Vec<Action>,
        change: impl Fn(&XfsCore, &T) -> Result<()>,
    ) -> Vec<&'t T> {
        let mut failed = Vec::new();
        for some in all.chunks(AT_ONCE) {
            let of_all = some.iter().flat_map(&actions).collect();
            if self.step(of_all, |fs| some.iter().try_for_each(|one| change(fs, one))) {
                continue;
            }
            failed.extend(some.iter().filter(|one| !self.step(actions(one), |fs| change(fs, one))));
        }
        failed
    }
}

/// Changes an inode in an operation of its own.
pub(super) fn change(
    fs: &XfsCore,
    ino: Ino,
    change: impl Fn(&mut Op<'_>, &mut Handle) -> Outcome<()>,
) -> Result<()> {
    let _lock = fs.locks.exclusive(&[ino]);
    let before = fs.load(ino)?;
    fs.atomically(|op| {
        let mut handle = before.clone();
        change(op, &mut handle)?;
        op.stage(handle);
        Ok(())
    })
}

/// Changes two inodes in one operation.
pub(super) fn change_two(
    fs: &XfsCore,
    (first, second): (Ino, Ino),
    change: impl Fn(&mut Op<'_>, &mut Handle, &mut Handle) -> Outcome<()>,
) -> Result<()> {
    if first == second {
        return Err(Error::Invalid("the two inodes must differ"));
    }
    let _lock = fs.locks.exclusive(&[first, second]);
    let before = (fs.load(first)?, fs.load(second)?);
    fs.atomically(|op| {
        let mut handles = before.clone();
        change(op, &mut handles.0, &mut handles.1)?;
        op.stage(handles.0);
        op.stage(handles.1);
        Ok(())
    })
}
