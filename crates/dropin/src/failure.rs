//! Why a program ends without having done what it was asked for.

use std::fmt::Display;

/// What is said on standard error, and the status to end with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) status: u8,
}

/// Result of a program: the status to end with.
pub(crate) type Ended = Result<u8, Failure>;

/// Which statuses a program has for what goes wrong, as its manual page says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statuses {
    /// The arguments make no sense.
    pub(crate) usage: u8,
    /// Anything else.
    pub(crate) failed: u8,
}

/// The phrase of e2fsprogs for a file system without free blocks. Callers search messages for it.
pub(crate) const NO_BLOCKS: &str = "Could not allocate block in ext2 filesystem";
/// The phrase of e2fsprogs for a file system without free inodes.
pub(crate) const NO_INODES: &str = "Could not allocate inode in ext2 filesystem";

/// Of programs in which all that goes wrong is 1: most of them.
pub(crate) const STATUSES: Statuses = Statuses { usage: 1, failed: 1 };

impl Statuses {
    /// The arguments make no sense.
    pub(crate) fn usage(self, message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: self.usage }
    }

    /// It could not be done.
    pub(crate) fn failed(self, message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: self.failed }
    }

    /// The same of what the library says, with what to do next.
    pub(crate) fn of(self, error: &diskwright::Error) -> Failure {
        self.failed(error.with_advice())
    }

    /// An option of the namesake that is not supported.
    pub(crate) fn refused(self, option: impl Display, why: &str) -> Failure {
        self.usage(format_args!("{option} is not supported: {why}"))
    }
}
