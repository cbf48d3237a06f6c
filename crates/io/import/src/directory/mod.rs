//! Host directories as sources.
//!
//! [`DirectorySource`] returns everything in a directory; [`HostTree`] returns single files to sources that get their
//! names elsewhere. Both, and [`HostFile`], are independent of the host. They use one module per family of hosts:
//! `unix` reads all attributes that Unix has, on several threads; `portable` uses the standard library, for example on
//! Windows. On hosts without files (wasm32-unknown-unknown) every open fails.
//!
//! The module of a family of hosts provides:
//!
//! - `Root`, a directory, with `open`, `open_file` and `shown_path`;
//! - `Files`, all files in it, in order, with `start`, `next` and `names_min`;
//! - `find`, one file of it by its path, and `xattrs`, its extended attributes;
//! - `state_of`, the state that detects changes of an open file.

mod file;
mod found;
mod links;
#[cfg(not(unix))]
mod portable;
mod stream;
#[cfg(unix)]
mod unix;

use std::path::Path;
use std::sync::Arc;

#[cfg(not(unix))]
use portable as family;
#[cfg(unix)]
use unix as family;

use crate::{SourceError, Xattr};
pub(crate) use file::HostFile;
pub(crate) use found::FoundFile;
pub use stream::DirectorySource;

/// Action for error messages about attributes.
const READ_ATTRIBUTES: &str = "read the attributes of";

/// A host directory for look-ups of files by path.
#[derive(Clone, Debug)]
pub(crate) struct HostTree(Arc<family::Root>);

impl HostTree {
    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        Ok(Self(Arc::new(family::Root::open(path, Vec::new())?)))
    }

    /// Returns the file at a path in the form of `Entry::path`, if it exists. Follows symbolic links on the way, but
    /// not at the end. With `wants_contents` it determines the holes of a regular file.
    pub(crate) fn find(
        &self,
        path: &[u8],
        wants_contents: bool,
    ) -> Result<Option<FoundFile>, SourceError> {
        family::find(&self.0, path, wants_contents)
    }

    /// Returns the extended attributes of the file at a path, which is not a symbolic link. Empty on hosts without
    /// them.
    pub(crate) fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>, SourceError> {
        family::xattrs(&self.0, path)
    }
}
