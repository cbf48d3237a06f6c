//! Targets of workloads: a file system in this process, or a directory of a mounted one. The operations are the same
//! for both, so the same stream of operations can be timed on either.

#[cfg(target_os = "linux")]
mod host;
#[cfg(not(target_os = "linux"))]
#[path = "host_portable.rs"]
mod host;
mod in_process;

pub use host::Host;
pub use in_process::{InProcess, TIME};

use vfs::FileType;

use crate::error::Result;

/// Receives the name and the type of an entry. An error ends the listing.
pub type EachEntry<'a> = dyn FnMut(&[u8], Option<FileType>) -> Result<()> + 'a;

/// An entry of a listing in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: u64,
    /// Type in the entry, if the file system stores it there.
    pub file_type: Option<FileType>,
}

/// Receives an entry. An error ends the listing.
pub type EachListed<'a> = dyn FnMut(Listed<'_>) -> Result<()> + 'a;

/// The operations of workloads. Names are single components. Every method may be called from any thread.
///
/// Only [`Target::sync`] and [`Target::sync_file`] make changes durable.
pub trait Target: Send + Sync {
    /// An open directory.
    type Dir: Send + Sync;
    /// An open regular file.
    type File: Send + Sync;
    /// A position in a directory listing.
    type Listing: Send;

    /// Returns the workload's directory.
    fn top(&self) -> Result<Self::Dir>;

    /// Creates a directory.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Opens a directory.
    fn open_dir(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;

    /// Creates an empty file without opening it (`mknod`).
    fn make_file(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Creates or opens a file for reading and writing (`open` with `O_CREAT`), truncated if `truncate`.
    fn create(&self, dir: &Self::Dir, name: &[u8], truncate: bool) -> Result<Self::File>;

    /// Opens a file for reading and writing.
    fn open(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::File>;

    /// Closes a file.
    fn close(&self, file: Self::File) -> Result<()>;

    /// Sets the permissions of a file (`chmod`).
    fn set_permissions(&self, dir: &Self::Dir, name: &[u8], permissions: u16) -> Result<()>;

    /// Returns the permissions of a file.
    fn permissions(&self, dir: &Self::Dir, name: &[u8]) -> Result<u16>;

    /// Adds a name to a file in the same directory.
    fn link(&self, dir: &Self::Dir, from: &[u8], to: &[u8]) -> Result<()>;

    /// Renames an entry within a directory or into another one. An existing target is replaced.
    fn rename(&self, from: (&Self::Dir, &[u8]), to: (&Self::Dir, &[u8])) -> Result<()>;

    /// Removes a name of a file.
    fn unlink(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Returns the type and size of a file (`stat`).
    fn stat(&self, dir: &Self::Dir, name: &[u8]) -> Result<(FileType, u64)>;

    /// Reads into `buf`; fewer bytes only at the end of the file.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;

    /// Sets the size of a file.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()>;

    /// Lists a directory without `.` and `..`, in the order of `readdir`. The type is that in the entry, if the file
    /// system stores it there.
    fn list(&self, dir: &Self::Dir, each: &mut EachEntry<'_>) -> Result<()> {
        let mut listing = self.start_listing(dir)?;
        self.list_part(&mut listing, usize::MAX, &mut |entry| each(entry.name, entry.file_type))?;
        Ok(())
    }

    /// Starts a listing in parts. The directory may change between the parts: entries that exist all the time are
    /// listed exactly once.
    fn start_listing(&self, dir: &Self::Dir) -> Result<Self::Listing>;

    /// Lists the next entries without `.` and `..`: at least `wanted` and not many more, or all remaining ones. Returns
    /// false at the end. The position is undefined after an error.
    fn list_part(
        &self,
        listing: &mut Self::Listing,
        wanted: usize,
        each: &mut EachListed<'_>,
    ) -> Result<bool>;

    /// Makes a file durable.
    fn sync_file(&self, file: &Self::File) -> Result<()>;

    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
}
