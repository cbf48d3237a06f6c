//! Directories of the host as sources.
//!
//! [`DirectorySource`] gives all that is in one, and [`HostTree`] single files of it to sources that know the names
//! from elsewhere. Each family of hosts has its own of both: `unix` reads what Unix knows of files, on several
//! threads; `portable` what the standard library tells, which is what there is on Windows. Where there are no files
//! (wasm32-unknown-unknown) opening any directory fails.

use crate::{EntryKind, FileId, Metadata};

mod links;
#[cfg(not(unix))]
mod portable;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
use portable as host;
#[cfg(unix)]
use unix as host;

pub use host::DirectorySource;
pub(crate) use host::{HostFile, HostTree};

/// A file that was found by its path.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) kind: EntryKind,
    pub(crate) metadata: Metadata,
    pub(crate) id: FileId,
    pub(crate) links: u64,
}
