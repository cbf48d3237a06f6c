//! Why a workload could not be run, or did something else than it should have.

use std::io;

/// Why a workload ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system in this process refused an operation.
    #[error("{operation}: {source}")]
    FileSystem {
        /// What was asked of it.
        operation: &'static str,
        /// What it said.
        source: vfs::Error,
    },
    /// The kernel, or a program that was run, refused something.
    #[error("{operation}: {source}")]
    Host {
        /// What was asked of it.
        operation: String,
        /// What it said.
        source: io::Error,
    },
    /// This target cannot do what the workload needs; the others can go on.
    #[error("{0}")]
    Unsupported(String),
    /// The file system is not as it should be after the workload.
    #[error("wrong result: {0}")]
    Wrong(String),
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a system call, or of a program that was run.
    pub fn host(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Host { operation: operation.into(), source: source.into() }
    }
}
