//! Changing attributes.

use vfs::{Result, SetAttributes};

use crate::Ext4;
use crate::format::inode::{Inode, Time};

impl Ext4 {
    pub(crate) fn change_attributes(&self, ino: vfs::Ino, change: &SetAttributes) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let mut handle = self.load(ino)?;
        change.check(handle.protection())?;
        self.provide_quota(change.uid, change.gid, None)?;
        apply(&mut handle.inode, change);
        self.atomically(|op| {
            op.stage(handle);
            Ok(())
        })
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
    let times =
        [(Time::Access, change.atime), (Time::Modify, change.mtime), (Time::Change, change.ctime)];
    for (which, time) in times {
        if let Some(time) = time {
            inode.set_time(which, time);
        }
    }
    if let Some(time) = change.crtime {
        inode.set_crtime(time);
    }
}
