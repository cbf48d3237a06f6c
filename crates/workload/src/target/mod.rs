//! What a workload works on: a file system in this process, or a directory of a mounted one. The
//! operations are the same for both, so that the same stream of them can be timed on either.

#[cfg(target_os = "linux")]
mod host;
#[cfg(not(target_os = "linux"))]
#[path = "host_elsewhere.rs"]
mod host;
mod in_process;

pub use host::Host;
pub use in_process::{InProcess, TIME};

use vfs::FileType;

use crate::error::Result;

/// Is told the name and the type of an entry. An error ends the listing.
pub type EachEntry<'a> = dyn FnMut(&[u8], Option<FileType>) -> Result<()> + 'a;

/// An entry of a directory, as a listing in parts has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The number of its inode.
    pub ino: u64,
    /// The type that the entry has, unless the file system does not keep it there.
    pub file_type: Option<FileType>,
}

/// Is told an entry. An error ends the listing.
pub type EachListed<'a> = dyn FnMut(Listed<'_>) -> Result<()> + 'a;

/// The operations that workloads are made of. Names are single components. Every method may be called
/// from any thread.
///
/// Nothing is made durable but by [`Target::sync`] and [`Target::sync_file`].
pub trait Target: Send + Sync {
    /// A directory in which names can be used.
    type Dir: Send + Sync;
    /// An open regular file.
    type File: Send + Sync;
    /// A place in the listing of a directory.
    type Listing: Send;

    /// The directory that the workload has for itself.
    fn top(&self) -> Result<Self::Dir>;

    /// Makes a directory.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Opens a directory.
    fn open_dir(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;

    /// Makes an empty file without opening it (`mknod`).
    fn make_file(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Makes or opens a file for reading and writing (`open` with `O_CREAT`), emptied if `truncate`.
    fn create(&self, dir: &Self::Dir, name: &[u8], truncate: bool) -> Result<Self::File>;

    /// Opens a file for reading and writing.
    fn open(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::File>;

    /// Closes a file.
    fn close(&self, file: Self::File) -> Result<()>;

    /// Sets the permissions of a file (`chmod`).
    fn set_permissions(&self, dir: &Self::Dir, name: &[u8], permissions: u16) -> Result<()>;

    /// The permissions of a file.
    fn permissions(&self, dir: &Self::Dir, name: &[u8]) -> Result<u16>;

    /// Gives a file another name in the same directory.
    fn link(&self, dir: &Self::Dir, from: &[u8], to: &[u8]) -> Result<()>;

    /// Gives what has a name another one instead, in the same or in another directory. What had that name
    /// before is removed.
    fn rename(&self, from: (&Self::Dir, &[u8]), to: (&Self::Dir, &[u8])) -> Result<()>;

    /// Removes a name of a file.
    fn unlink(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Self::Dir, name: &[u8]) -> Result<()>;

    /// The type and size of what a name stands for (`stat`).
    fn stat(&self, dir: &Self::Dir, name: &[u8]) -> Result<(FileType, u64)>;

    /// Reads into `buf`; fewer bytes only at the end of the file.
    fn read(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;

    /// Sets the size of a file.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()>;

    /// Lists a directory without `.` and `..`, in the order in which `readdir` has it. The type is that
    /// of the entry, unless the file system does not keep it there.
    fn list(&self, dir: &Self::Dir, each: &mut EachEntry<'_>) -> Result<()> {
        let mut listing = self.start_listing(dir)?;
        self.list_part(&mut listing, usize::MAX, &mut |entry| each(entry.name, entry.file_type))?;
        Ok(())
    }

    /// The start of a listing in parts. Between them the directory may change: entries that are there
    /// all the while come exactly once.
    fn start_listing(&self, dir: &Self::Dir) -> Result<Self::Listing>;

    /// Lists the next entries, `.` and `..` left out: at least `wanted` and not many more, or all that
    /// there are. False if the listing is at its end. Where it goes on is not certain after an error.
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
