//! Execution of operations: a restart if a group could not be waited for, and a retry after a checkpoint if the free
//! space is busy.

use engine::{Engine, Txn};
use smallvec::SmallVec;
use vfs::{Error, Result};

use crate::reserve::Claim;
use crate::{InMemoryUndo, Mode, Outcome};

/// Maximum number of checkpoints that a freeing operation waits for, in case other operations take the space that each
/// of them makes usable.
const CHECKPOINTS_TO_FREE_MAX: u32 = 16;

/// An operation of a format: a transaction and its changes in memory. Dropping it before [`Operation::commit`] leaves
/// no trace.
pub trait Operation {
    /// The number of a block group or an allocation group.
    type Group: Copy + Ord;

    /// Holds a group until the operation ends.
    ///
    /// # Errors
    /// An interrupt to start again, if the group cannot be waited for.
    fn hold_group(&mut self, group: Self::Group) -> Outcome<()>;

    /// Returns the groups that the operation holds together with the one it could not wait for, or `None` if there is
    /// none.
    fn groups_needed(&self) -> Option<SmallVec<[Self::Group; 4]>>;

    /// Executes deferred work at the end of the body. After an error the operation must be dropped.
    ///
    /// # Errors
    /// Returns the errors of the body.
    fn finish(&mut self) -> Outcome<()>;

    /// Returns the changes in memory, in the order in which they are kept (see [`InMemoryUndo`] for the reason why
    /// before the transaction).
    fn undos(&mut self) -> impl InMemoryUndo;

    /// Marks the operation as minor: it changes nothing but times, which are not needed to read contents.
    fn set_minor(&mut self);

    /// Joins the transaction of a finished operation, whose changes in memory were kept, to the running checkpoint.
    fn commit(self);
}

/// A file system that runs operations.
pub trait RunOperations {
    /// The operations of the file system.
    type Op<'a>: Operation
    where
        Self: 'a;

    /// Returns an operation that may use the part of the reserve that `claim` permits. Implementations are inlined, so that
    /// the operation is not moved.
    fn operation<'a>(&'a self, txn: Txn<'a>, claim: Claim) -> Self::Op<'a>;

    /// Returns the engine.
    fn engine(&self) -> &Engine;

    /// Returns the access mode. An image in progress has no reserve.
    fn mode(&self) -> Mode;

    /// Returns whether there are busy blocks, which a checkpoint makes usable.
    fn has_busy(&self) -> bool;

    /// Runs `body` in an operation and commits it. `body` runs again from the start if a group could not be waited for,
    /// or if space ran out while freed blocks are busy.
    ///
    /// # Errors
    /// Returns the errors of `body` and of the end of the operation. Nothing has changed then.
    fn atomically<R>(&self, body: impl FnMut(&mut Self::Op<'_>) -> Outcome<R>) -> Result<R> {
        self.atomically_with(Claim::Ordinary, body, |_| Ok(()))
    }

    /// Like [`RunOperations::atomically`], for operations that free space or finish recovery. They may use the reserve,
    /// and wait for several checkpoints if blocks are busy.
    ///
    /// # Errors
    /// Returns the errors of [`RunOperations::atomically`].
    fn atomically_freeing<R>(
        &self,
        body: impl FnMut(&mut Self::Op<'_>) -> Outcome<R>,
    ) -> Result<R> {
        self.atomically_with(Claim::Freeing, body, |_| Ok(()))
    }

    /// Like [`RunOperations::atomically`], but runs `last` just before the commit, when nothing else of the operation
    /// can fail. For actions that cannot be undone.
    ///
    /// # Errors
    /// Returns the errors of [`RunOperations::atomically`] and of `last`.
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
    /// Returns the errors of `body`; `NoSpace` if it requested groups out of order.
    fn observe<R>(&self, body: impl FnOnce(&mut Self::Op<'_>) -> Outcome<R>) -> Result<R> {
        let mut op = self.operation(self.engine().begin()?, Claim::Ordinary);
        body(&mut op).map_err(|interrupt| interrupt.into_failure().unwrap_or(Error::NoSpace))
    }

    /// Common implementation, with a claim to the reserve.
    ///
    /// # Errors
    /// Returns the errors of [`RunOperations::atomically_then`].
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
            let mut op = self.operation(self.engine().begin()?, claim);
            let outcome = groups.iter().try_for_each(|&group| op.hold_group(group));
            let outcome = outcome.and_then(|()| {
                let value = body(&mut op)?;
                op.finish()?;
                last(&value)?;
                Ok(value)
            });
            let failure = match outcome {
                Ok(value) => {
                    op.undos().keep();
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

/// Makes all completed changes durable, except inodes of which only times changed. Does nothing on a read-only file
/// system.
///
/// # Errors
/// `Device`.
pub(crate) fn sync_data<F: RunOperations>(fs: &F) -> Result<()> {
    if fs.mode() == Mode::ReadOnly {
        return Ok(());
    }
    Ok(fs.engine().sync_data()?)
}

/// Makes all completed changes durable. Does nothing on a read-only file system.
///
/// # Errors
/// `Device`.
pub fn sync<F: RunOperations>(fs: &F) -> Result<()> {
    if fs.mode() == Mode::ReadOnly {
        return Ok(());
    }
    Ok(fs.engine().sync()?)
}
