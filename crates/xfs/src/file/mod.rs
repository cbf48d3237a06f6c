//! Contents of regular files and targets of symbolic links.

use std::ops::ControlFlow;

use vfs::{AllocateMode, Error, Ino, MappedExtent, Result};

use crate::Xfs;
use crate::inode::Handle;
use crate::op::Op;

/// Reads as [`vfs::FileSystem::read`] does.
pub(crate) fn read(_fs: &Xfs, _file: &Handle, _offset: u64, _buf: &mut [u8]) -> Result<usize> {
    Err(Error::unsupported("files", ""))
}

/// Reports runs as [`vfs::FileSystem::extent_map`] does.
pub(crate) fn extent_map(
    _fs: &Xfs,
    _file: &Handle,
    _offset: u64,
    _len: u64,
    _each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
) -> Result<()> {
    Err(Error::unsupported("files", ""))
}

/// The target of a symbolic link.
pub(crate) fn readlink(_fs: &Xfs, _link: &Handle) -> Result<Vec<u8>> {
    Err(Error::unsupported("files", ""))
}

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
