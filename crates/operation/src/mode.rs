//! What may be done to an open file system.

use vfs::{Error, Result};

/// What may be done to an open file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing may be changed.
    ReadOnly,
    /// It is still being made and nobody relies on it yet: it may be changed, without a log.
    InProgress,
    /// It may be changed; changes become durable in its log, if it has one.
    Writable,
}

impl Mode {
    /// Whether the file system may be changed.
    ///
    /// # Errors
    /// `ReadOnly` if not.
    pub fn check_writable(self) -> Result<()> {
        match self {
            Self::ReadOnly => Err(Error::ReadOnly("it was opened for reading")),
            Self::InProgress | Self::Writable => Ok(()),
        }
    }

    /// Whether its label may be changed.
    ///
    /// # Errors
    /// `ReadOnly`; `Invalid` while it is being made.
    pub fn check_relabel(self) -> Result<()> {
        self.check_writable()?;
        match self {
            Self::InProgress => Err(Error::Invalid("who makes an image chooses its label")),
            Self::ReadOnly | Self::Writable => Ok(()),
        }
    }
}
