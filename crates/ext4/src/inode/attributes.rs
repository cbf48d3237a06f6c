//! Attributes of inodes, as everyone sees them.

use transaction::Corruption;
use vfs::{Attributes, DeviceNumber, FileType, Result, SetAttributes};

use crate::Ext4;
use crate::format::inode::{Inode, Time};
use crate::op::{Handle, Op};

impl Ext4 {
    /// The attributes of an inode.
    pub(crate) fn attributes_of(&self, handle: &Handle) -> Result<Attributes> {
        let inode = &handle.inode;
        let Some(file_type) = inode.file_type() else {
            return Err(Corruption::new("inode", "impossible file type")
                .of_inode(handle.ino().0)
                .mismatch("a POSIX file type", format_args!("mode {:#o}", inode.mode()))
                .into());
        };
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        Ok(Attributes {
            ino: handle.ino(),
            generation: inode.generation(),
            file_type,
            permissions: inode.permissions(),
            links: u32::from(inode.links_count()),
            uid: inode.uid(),
            gid: inode.gid(),
            size: inode.size(),
            blocks_512: inode.blocks_512(self.volume.geometry.block_size()),
            device: if is_device { inode.device() } else { DeviceNumber::default() },
            atime: inode.time(Time::Access),
            mtime: inode.time(Time::Modify),
            ctime: inode.time(Time::Change),
            crtime: inode.crtime(),
        })
    }

    pub(crate) fn change_attributes(&self, ino: vfs::Ino, change: &SetAttributes) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let mut handle = self.load(ino)?;
        apply(&mut handle.inode, change);
        let mut op = Op::begin(self)?;
        op.stage(handle);
        op.commit()
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
