//! Access mode of an open file system.

use vfs::{Error, Result};

/// Access mode of an open file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No changes are permitted.
    ReadOnly,
    /// An image in progress: changes are permitted and not logged, because nothing relies on the image yet.
    InProgress,
    /// Changes are permitted and become durable in the log, if there is one.
    Writable,
}

impl Mode {
    /// Checks that changes are permitted.
    ///
    /// # Errors
    /// `ReadOnly` if not.
    pub fn check_writable(self) -> Result<()> {
        match self {
            Self::ReadOnly => Err(Error::ReadOnly("it was opened for reading")),
            Self::InProgress | Self::Writable => Ok(()),
        }
    }

    /// Checks that the label may be changed.
    ///
    /// # Errors
    /// `ReadOnly`; `Invalid` for an image in progress.
    pub(crate) fn check_relabel(self) -> Result<()> {
        self.check_writable()?;
        match self {
            Self::InProgress => {
                Err(Error::Invalid("the label of an image in progress is chosen by its creator"))
            }
            Self::ReadOnly | Self::Writable => Ok(()),
        }
    }
}
