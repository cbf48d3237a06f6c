//! (being written)

use fuse_device::abi::{CopyFileRangeIn, FallocateIn, LseekIn, ReadIn, WriteIn};
use fuse_device::{Errno, Reply};
use vfs::Ino;

use crate::Adapter;

impl Adapter<'_> {
    pub(crate) fn read(&self, _: Ino, _: &ReadIn, _: &mut Reply<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn write(
        &self,
        _: Ino,
        _: &WriteIn,
        _: &[u8],
        _: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn fallocate(&self, _: Ino, _: &FallocateIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn lseek(&self, _: Ino, _: &LseekIn, _: &mut Reply<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn copy_file_range(
        &self,
        _: Ino,
        _: &CopyFileRangeIn,
        _: bool,
        _: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn fsync(&self, _: Ino) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn syncfs(&self) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
}
