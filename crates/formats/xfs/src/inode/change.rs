//! Changing extended attributes and flags.

use operations::Outcome;
use operations::RunOperations;
use operations::reserve::Claim;
use vfs::{Ino, Result};

use crate::XfsCore;
use crate::inode::Handle;
use crate::op::Op;

impl XfsCore {
    pub(crate) fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.change_inode(ino, Claim::Ordinary, |op, handle| {
            handle.protection().check_change()?;
            op.set_attr(handle, name, value)
        })
    }

    pub(crate) fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change_inode(ino, Claim::Freeing, |op, handle| {
            handle.protection().check_change()?;
            op.remove_attr(handle, name)
        })
    }

    /// Changes an inode in its own operation.
    pub(super) fn change_inode(
        &self,
        ino: Ino,
        claim: Claim,
        change: impl Fn(&mut Op<'_>, &mut Handle) -> Outcome<()>,
    ) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let before = self.load_ordinary(ino)?;
        let change = |op: &mut Op<'_>| {
            let mut handle = before.clone();
            change(op, &mut handle)?;
            op.stage(handle);
            Ok(())
        };
        self.atomically_with(claim, change, |()| Ok(()))
    }
}
