//! (being written)

use fuse_device::abi::ReadIn;
use fuse_device::{Errno, Reply};
use vfs::Ino;

use crate::Adapter;

impl Adapter<'_> {
    pub(crate) fn readdir(&self, _: Ino, _: &ReadIn, _: &mut Reply<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn readdirplus(&self, _: Ino, _: &ReadIn, _: &mut Reply<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
}
