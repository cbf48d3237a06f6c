//! Errors of workloads.

use std::io;

/// Reason why a workload ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system in this process returned an error.
    #[error("{operation}: {source}")]
    FileSystem {
        /// The operation.
        operation: &'static str,
        /// The error.
        source: vfs::Error,
    },
    /// The kernel, or an executed program, returned an error.
    #[error("{operation}: {source}")]
    Host {
        /// The operation.
        operation: String,
        /// The error.
        source: io::Error,
    },
    /// The target does not support the workload; other targets can continue.
    #[error("{0}")]
    Unsupported(String),
    /// The state of the file system after the workload is wrong.
    #[error("wrong result: {0}")]
    Wrong(String),
    /// The user cancelled the run.
    #[error("interrupted")]
    Interrupted,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error from a system call or an executed program.
    pub fn host(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Host { operation: operation.into(), source: source.into() }
    }
}
