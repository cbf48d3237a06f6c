//! Running an operation: from the start again where a group could not be waited for, and once more after
//! a checkpoint where the space that is free waits for one.

use smallvec::SmallVec;
use transaction::Engine;
use vfs::{Error, Result};

use crate::reserve::Claim;
use crate::{Mode, Outcome, Side};

/// Checkpoints that an operation which frees waits for, if others are first to take what each of them
/// makes usable.
const CHECKPOINTS_TO_FREE_MAX: u32 = 16;

/// An operation of a format: a transaction, and its sides in memory. Dropped before [`Operation::commit`],
/// it leaves no trace.
pub trait Operation {
    /// The number of a block group or an allocation group.
    type Group: Copy + Ord;

    /// Holds a group to the end of the operation.
    ///
    /// # Errors
    /// An interrupt to start again, if the group cannot be waited for.
    fn hold_group(&mut self, group: Self::Group) -> Outcome<()>;

    /// The groups that the operation holds, and the one it could not wait for, if there is one.
    fn groups_needed(&self) -> Option<SmallVec<[Self::Group; 4]>>;

    /// Does what was put off to the end. After an error the operation must be dropped.
    ///
    /// # Errors
    /// What the body could have failed with.
    fn finish(&mut self) -> Outcome<()>;

    /// What it changes in memory, in the order in which that is kept ([`Side`] says why it is kept first).
    fn sides(&mut self) -> impl Side;

    /// Says that it changes nothing but times, which nobody needs to read contents back.
    fn set_minor(&mut self);

    /// Joins the transaction of a finished operation, whose sides have been kept, to the running checkpoint.
    fn commit(self);
}

/// A file system that runs operations.
pub trait RunOperations {
    /// Its operations.
    type Op<'a>: Operation
    where
        Self: 'a;

    /// Begins an operation that may take of the reserve what `claim` says.
    ///
    /// # Errors
    /// `Device` once something could not be written.
    fn begin(&self, claim: Claim) -> Result<Self::Op<'_>>;

    /// The engine below.
    fn engine(&self) -> &Engine;

    /// What may be done to it. While it is being made, nothing is kept back.
    fn mode(&self) -> Mode;

    /// Whether blocks are free that only a checkpoint makes usable.
    fn has_busy(&self) -> bool;

    /// Runs `body` in an operation and commits it. `body` runs again from the start if a group was
    /// wanted that could not be waited for, or if space ran out while freed space waits for a checkpoint.
    ///
    /// # Errors
    /// What `body` fails with, or ending the operation. Nothing has changed then.
    fn atomically<R>(&self, body: impl FnMut(&mut Self::Op<'_>) -> Outcome<R>) -> Result<R> {
        self.atomically_with(Claim::Ordinary, body, |_| Ok(()))
    }

    /// As [`RunOperations::atomically`], for what gives space back or ends what a crash left: it may take
    /// the reserve, and waits for space that a checkpoint makes usable as often as there is some.
    ///
    /// # Errors
    /// As [`RunOperations::atomically`].
    fn atomically_freeing<R>(
        &self,
        body: impl FnMut(&mut Self::Op<'_>) -> Outcome<R>,
    ) -> Result<R> {
        self.atomically_with(Claim::Freeing, body, |_| Ok(()))
    }

    /// As [`RunOperations::atomically`], and runs `last` when nothing of the operation can fail any more,
    /// just before it commits: for what could not be taken back.
    ///
    /// # Errors
    /// As [`RunOperations::atomically`], and what `last` returns.
    fn atomically_then<R>(
        &self,
        body: impl FnMut(&mut Self::Op<'_>) -> Outcome<R>,
        last: impl FnMut(&R) -> Result<()>,
    ) -> Result<R> {
        self.atomically_with(Claim::Ordinary, body, last)
    }

    /// Runs `body` in an operation that changes nothing and is dropped.
    ///
    /// # Errors
    /// What `body` fails with; `NoSpace` if it asked for groups out of order.
    fn observe<R>(&self, body: impl FnOnce(&mut Self::Op<'_>) -> Outcome<R>) -> Result<R> {
        let mut op = self.begin(Claim::Ordinary)?;
        body(&mut op).map_err(|interrupt| interrupt.into_failure().unwrap_or(Error::NoSpace))
    }

    /// As the others, with a claim to the reserve.
    ///
    /// # Errors
    /// As [`RunOperations::atomically_then`].
    fn atomically_with<R>(
        &self,
        claim: Claim,
        mut body: impl FnMut(&mut Self::Op<'_>) -> Outcome<R>,
        mut last: impl FnMut(&R) -> Result<()>,
    ) -> Result<R> {
        let claim = if self.mode() == Mode::InProgress { Claim::Unbounded } else { claim };
        let mut groups = SmallVec::<[_; 4]>::new();
        let mut checkpoints_left =
            if claim == Claim::Freeing { CHECKPOINTS_TO_FREE_MAX } else { 1 };
        loop {
            let mut op = self.begin(claim)?;
            let outcome = groups.iter().try_for_each(|&group| op.hold_group(group));
            let outcome = outcome.and_then(|()| {
                let value = body(&mut op)?;
                op.finish()?;
                last(&value)?;
                Ok(value)
            });
            let failure = match outcome {
                Ok(value) => {
                    op.sides().keep();
                    op.commit();
                    return Ok(value);
                }
                Err(interrupt) => interrupt.into_failure(),
            };
            if failure.is_none()
                && let Some(needed) = op.groups_needed()
            {
                groups.extend(needed);
                groups.sort_unstable();
                groups.dedup();
                continue;
            }
            drop(op);
            let failure = failure.unwrap_or(Error::NoSpace);
            let is_short = matches!(failure, Error::NoSpace);
            if !is_short || checkpoints_left == 0 || !self.has_busy() {
                return Err(failure);
            }
            checkpoints_left -= 1;
            self.engine().checkpoint()?;
        }
    }
}

/// Makes everything done so far durable but times of inodes that changed alone. Nothing where nothing may be
/// changed.
///
/// # Errors
/// `Device`.
pub fn sync_data<F: RunOperations>(fs: &F) -> Result<()> {
    if fs.mode() == Mode::ReadOnly {
        return Ok(());
    }
    Ok(fs.engine().sync_data()?)
}

/// Makes everything done so far durable. Nothing where nothing may be changed.
///
/// # Errors
/// `Device`.
pub fn sync<F: RunOperations>(fs: &F) -> Result<()> {
    if fs.mode() == Mode::ReadOnly {
        return Ok(());
    }
    Ok(fs.engine().sync()?)
}
