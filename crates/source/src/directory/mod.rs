//! Directories of the host as sources.
//!
//! [`DirectorySource`] gives all that is in one, and [`HostTree`] single files of it to sources that know the names
//! from elsewhere. Both are the same on every host, as is a [`HostFile`], and stand on what each family of hosts has of
//! its own: `unix` reads what Unix knows of files, on several threads; `portable` what the standard library tells, which
//! is what there is on Windows. Where there are no files (wasm32-unknown-unknown) opening any directory fails.
//!
//! Of a family of hosts is wanted here:
//!
//! - `Root`, a directory, with `open`, `open_file` and `shown_path`;
//! - `Files`, all that is in one, in order, with `start`, `next` and `names_min`;
//! - `find`, one file of it by its path, and `xattrs`, its extended attributes;
//! - `state_of`, what shows that an open file is still as it was listed.

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
pub(crate) use found::Found;
pub use stream::DirectorySource;

/// What is done where attributes are asked for, in messages.
const READ_ATTRIBUTES: &str = "read the attributes of";

/// A directory of the host in which files are looked for by their paths.
#[derive(Clone, Debug)]
pub(crate) struct HostTree(Arc<family::Root>);

impl HostTree {
    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        Ok(Self(Arc::new(family::Root::open(path, Vec::new())?)))
    }

    /// The file at a path, in the form of `Entry::path`, or none. Symbolic links on the way are followed;
    /// the one at its end is the file. `wants_contents` is to find the holes of a regular file.
    pub(crate) fn find(
        &self,
        path: &[u8],
        wants_contents: bool,
    ) -> Result<Option<Found>, SourceError> {
        family::find(&self.0, path, wants_contents)
    }

    /// The extended attributes of the file at a path, which is no symbolic link. None where the host has no such.
    pub(crate) fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>, SourceError> {
        family::xattrs(&self.0, path)
    }
}
