//! Implements the operation core's inode traits.

use operations::inode::{InodeHandle, Inodes};
use operations::locks::InodeLocks;
use vfs::{Error, FileType, Ino, Protection, Result, SetAttributes, Timestamp};

use crate::XfsCore;
use crate::format::inode::Time;
use crate::inode::Handle;
use crate::op::Op;

impl InodeHandle for Handle {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn generation(&self) -> u32 {
        self.inode.generation()
    }

    fn file_type(&self) -> Result<FileType> {
        self.file_type()
    }

    fn is_dir(&self) -> bool {
        self.inode.is_dir()
    }

    fn links(&self) -> u32 {
        self.inode.nlink()
    }

    fn set_links(&mut self, links: u32) {
        self.inode.set_nlink(links);
    }

    fn protection(&self) -> Protection {
        self.protection()
    }

    fn set_mtime(&mut self, time: Timestamp) {
        self.inode.set_time(Time::Modify, time);
    }

    fn set_ctime(&mut self, time: Timestamp) {
        self.inode.set_time(Time::Change, time);
    }

    fn apply(&mut self, change: &SetAttributes) {
        let inode = &mut self.inode;
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

    fn corrupt(&self, structure: &'static str, problem: &'static str) -> Error {
        self.corrupt(structure, problem)
    }
}

impl Inodes for XfsCore {
    type Inode = Handle;

    fn locks(&self) -> &InodeLocks {
        &self.locks
    }

    fn load(&self, ino: Ino) -> Result<Handle> {
        self.load_ordinary(ino)
    }

    fn provide_owners(&self, change: &SetAttributes) -> Result<()> {
        self.provide_quota(change.uid, change.gid, None)
    }

    fn stage(op: &mut Op<'_>, inode: Handle) {
        op.stage(inode);
    }
}
