//! Inodes that the kernel knows, and how often it was told of each.
//!
//! As long as it knows one, the file system keeps it (`FileSystem::open`): an unlinked file that is open,
//! a directory that is somebody's working directory. So no number is used again while the kernel could
//! still mean what it stood for before.

use fuse_device::Errno;
use vfs::{FileSystem, Ino};

/// The table. Sharded, so that threads seldom meet.
#[derive(Default)]
pub(crate) struct Known {}

impl Known {
    /// The kernel is told of an inode once more.
    pub(crate) fn tell(&self, fs: &dyn FileSystem, ino: Ino) -> vfs::Result<()> {
        let _ = (fs, ino);
        todo!()
    }

    /// The kernel was told of an inode that [`FileSystem::create_unlinked`] has opened.
    pub(crate) fn tell_opened(&self, ino: Ino) {
        let _ = ino;
        todo!()
    }

    /// The kernel forgets `nlookup` of the times.
    pub(crate) fn forget(&self, fs: &dyn FileSystem, ino: Ino, nlookup: u64) -> Result<(), Errno> {
        let _ = (fs, ino, nlookup);
        todo!()
    }
}
