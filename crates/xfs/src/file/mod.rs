//! Contents of regular files and targets of symbolic links.

mod read;
mod symlink;

use vfs::{AllocateMode, Error, Ino, Result};

use crate::Xfs;
use crate::inode::Handle;
use crate::op::Op;

pub(crate) use read::{extent_map, read};
pub(crate) use symlink::readlink;

impl Xfs {
    pub(crate) fn write_file(&self, _ino: Ino, _offset: u64, _data: &[u8]) -> Result<()> {
        Err(Error::unsupported("files", ""))
    }

    pub(crate) fn allocate_range(
        &self,
        _ino: Ino,
        _offset: u64,
        _len: u64,
        _mode: AllocateMode,
    ) -> Result<()> {
        Err(Error::unsupported("files", ""))
    }

    pub(crate) fn resize_file(&self, _ino: Ino, _size: u64) -> Result<()> {
        Err(Error::unsupported("files", ""))
    }
}

impl Op<'_> {
    /// Writes the target of a new symbolic link, 1 to 1024 bytes: into the inode or blocks.
    pub(crate) fn init_symlink(&mut self, _link: &mut Handle, _target: &[u8]) -> Result<()> {
        Err(Error::unsupported("files", ""))
    }

    /// Frees all of the data fork, of an inode that goes.
    pub(crate) fn drop_data(&mut self, _handle: &mut Handle) -> Result<()> {
        Err(Error::unsupported("files", ""))
    }
}
