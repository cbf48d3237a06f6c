//! Reasons for which the body of an operation ends early.

use vfs::Error;
use vfs::fault::Corruption;

/// Result of the body of an operation and of everything it calls.
pub type Outcome<T> = Result<T, Interrupt>;

/// The body of an operation cannot continue, because it failed or because it must start again with groups that it could
/// not wait for. Only this crate can create or recognise a restart: code in between passes it on and cannot mistake it
/// for a lack of space.
#[derive(Debug)]
pub struct Interrupt(Cause);

#[derive(Debug)]
enum Cause {
    Failed(Error),
    Restart,
}

impl Interrupt {
    /// Start the operation again.
    pub(crate) const RESTART: Self = Self(Cause::Restart);

    /// Returns the error, unless this is a restart.
    pub fn failure(&self) -> Option<&Error> {
        match &self.0 {
            Cause::Failed(error) => Some(error),
            Cause::Restart => None,
        }
    }

    /// Returns whether the body failed due to lack of space.
    pub fn is_no_space(&self) -> bool {
        matches!(self.failure(), Some(Error::NoSpace))
    }

    /// Maps the error, unless this is a restart.
    #[must_use]
    pub fn map_failure(self, change: impl FnOnce(Error) -> Error) -> Self {
        match self.0 {
            Cause::Failed(error) => Self(Cause::Failed(change(error))),
            Cause::Restart => self,
        }
    }

    /// Returns the error; `None` for a restart.
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

impl From<vfs::fault::Error> for Interrupt {
    fn from(error: vfs::fault::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Corruption> for Interrupt {
    fn from(damage: Corruption) -> Self {
        Error::from(damage).into()
    }
}
