//! Table of mounts.
//!
//! ```
//! let mounts = diskwright::mounts::MountEntry::all()?;
//! assert!(mounts.iter().any(|mount| mount.point.as_os_str() == "/"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod entry;
mod nfs;
#[cfg(all(feature = "mount", feature = "serve"))]
mod nfs_record;
#[cfg(feature = "mount")]
pub(crate) mod state;
#[cfg(not(feature = "mount"))]
mod state;
#[cfg_attr(not(target_os = "linux"), path = "table_portable.rs")]
mod table;

use std::io;
#[cfg(all(feature = "mount", feature = "serve"))]
use std::path::Path;

pub use entry::{MountEntry, MountWay};
#[cfg(all(feature = "mount", feature = "serve"))]
pub(crate) use nfs_record::NfsRecord;

impl MountEntry {
    /// Returns all mounts visible to this process, oldest first.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn all() -> io::Result<Vec<Self>> {
        Ok(table::read()?.into_iter().map(Self::of_fuse).map(nfs::name_image).collect())
    }
}

/// Returns whether a mount with this source is visible to this process.
#[cfg(all(feature = "mount", feature = "serve"))]
pub(crate) fn is_mounted(source: &str) -> io::Result<bool> {
    Ok(table::read()?.iter().any(|entry| entry.source == Path::new(source)))
}
