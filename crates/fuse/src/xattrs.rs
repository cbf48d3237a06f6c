//! (being written)

use fuse_device::abi::SetxattrIn;
use fuse_device::{Errno, Reply};
use vfs::Ino;

use crate::Adapter;

impl Adapter<'_> {
    pub(crate) fn getxattr(
        &self,
        _: Ino,
        _: &[u8],
        _: u32,
        _: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn listxattr(&self, _: Ino, _: u32, _: &mut Reply<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: &SetxattrIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn removexattr(&self, _: Ino, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
}
