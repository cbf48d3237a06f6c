//! Changing attributes, ordinary and extended ones.

use vfs::reserve::Claim;
use vfs::{Ino, Result, SetAttributes};

use crate::Xfs;
use crate::format::inode::{Inode, Time};
use crate::inode::Handle;
use crate::op::Op;

impl Xfs {
    pub(crate) fn change_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()> {
        self.change_inode(ino, Claim::Ordinary, |_, handle| {
            change.check(handle.protection())?;
            apply(&mut handle.inode, change);
            Ok(())
        })
    }

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

    /// Changes an inode in an operation of its own.
    pub(super) fn change_inode(
        &self,
        ino: Ino,
        claim: Claim,
        change: impl Fn(&mut Op<'_>, &mut Handle) -> Result<()>,
    ) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let before = self.load(ino)?;
        let change = |op: &mut Op<'_>| {
            let mut handle = before.clone();
            change(op, &mut handle)?;
            op.stage(handle);
            Ok(())
        };
        self.atomically_with(claim, change, |()| Ok(()))
    }
}

fn apply(inode: &mut Inode, change: &SetAttributes) {
    if let Some(permissions) = change.permissions {
        inode.set_permissions(permissions);
    }
    if let Some(uid) = change.uid {
        inode.set_uid(uid);
    }
    if let Some(gid) = change.gid {
        inode.set_gid(gid);
    }
    let times = [
        (Time::Access, change.atime),
        (Time::Modify, change.mtime),
        (Time::Change, change.ctime),
        (Time::Create, change.crtime),
    ];
    for (which, time) in times {
        if let Some(time) = time {
            inode.set_time(which, time);
        }
    }
}
