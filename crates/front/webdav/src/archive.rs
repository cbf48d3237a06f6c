//! Archives of directories, which the caller of the server writes.

use std::fmt::Debug;
use std::io;

use vfs::FileSystem;

/// Writer of archives.
pub trait ArchiveSource: Debug + Send + Sync {
    /// Starts an archive of the directory at a path.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn start(&self, fs: &dyn FileSystem, path: &[u8]) -> io::Result<Box<dyn Archive>>;
}

/// A tar archive that is written in steps.
pub trait Archive: Send {
    /// Appends the next part, of about 1 MiB at most, to `out`. Returns false if the archive is complete.
    ///
    /// # Errors
    /// If a file cannot be read.
    fn step(&mut self, fs: &dyn FileSystem, out: &mut Vec<u8>) -> io::Result<bool>;
}
