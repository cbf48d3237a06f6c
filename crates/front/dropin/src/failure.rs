//! Failures of programs.

use std::fmt::Display;

/// Message for standard error, and exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) status: u8,
}

/// Result of a program: its exit status.
pub(crate) type Ended = Result<u8, Failure>;

/// Exit statuses of a program for failures, as documented in its manual page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statuses {
    /// Invalid arguments.
    pub(crate) usage: u8,
    /// Other failures.
    pub(crate) failed: u8,
}

/// Message of e2fsprogs for a file system without free blocks. Callers search messages for it.
pub(crate) const NO_BLOCKS: &str = "Could not allocate block in ext2 filesystem";
/// Message of e2fsprogs for a file system without free inodes.
pub(crate) const NO_INODES: &str = "Could not allocate inode in ext2 filesystem";

/// Statuses of most programs: 1 for all failures.
pub(crate) const STATUSES: Statuses = Statuses { usage: 1, failed: 1 };

impl Statuses {
    /// Creates a failure for invalid arguments.
    pub(crate) fn usage(self, message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: self.usage }
    }

    /// Creates a failure of an operation.
    pub(crate) fn failed(self, message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: self.failed }
    }

    /// Creates a failure from a library error, with advice.
    pub(crate) fn of(self, error: &diskwright::Error) -> Failure {
        self.failed(error.with_advice())
    }

    /// Creates a failure for an unsupported option of the original.
    pub(crate) fn refused(self, option: impl Display, why: &str) -> Failure {
        self.usage(format_args!("{option} is not supported: {why}"))
    }
}
