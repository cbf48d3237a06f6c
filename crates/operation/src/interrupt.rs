//! Why the body of an operation ended early.

use fault::Corruption;
use vfs::Error;

/// What the body of an operation, and everything it calls, comes to.
pub type Outcome<T> = Result<T, Interrupt>;

/// The body of an operation cannot go on: because it failed, or because it must start again with groups
/// that it could not wait for. Only the core can make or see the second: code between the allocation that
/// asked for it and the core passes it on and can never take it for a lack of space.
#[derive(Debug)]
pub struct Interrupt(Cause);

#[derive(Debug)]
enum Cause {
    Failed(Error),
    Restart,
}

impl Interrupt {
    /// Start again.
    pub(crate) const RESTART: Self = Self(Cause::Restart);

    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&Error> {
        match &self.0 {
            Cause::Failed(error) => Some(error),
            Cause::Restart => None,
        }
    }

    /// Whether the body failed for want of space.
    pub fn is_no_space(&self) -> bool {
        matches!(self.failure(), Some(Error::NoSpace))
    }

    /// Changes the failure, if it is one.
    #[must_use]
    pub fn map_failure(self, change: impl FnOnce(Error) -> Error) -> Self {
        match self.0 {
            Cause::Failed(error) => Self(Cause::Failed(change(error))),
            Cause::Restart => self,
        }
    }

    /// The failure; `None` to start again.
    pub(crate) fn into_failure(self) -> Option<Error> {
        match self.0 {
            Cause::Failed(error) => Some(error),
            Cause::Restart => None,
        }
    }
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        Self(Cause::Failed(error))
    }
}

impl From<fault::Error> for Interrupt {
    fn from(error: fault::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Corruption> for Interrupt {
    fn from(damage: Corruption) -> Self {
        Error::from(damage).into()
    }
}
