//! New inodes.

use operations::Outcome;
use operations::names::MakeInodes;
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, Result};

use crate::XfsCore;
use crate::format::inode::{Inode, Time, flags};
use crate::inode::Handle;
use crate::inode::inherit::inherit_flags;
use crate::op::Op;

impl MakeInodes for XfsCore {
    /// The format's `XFS_SYMLINK_MAXLEN` includes a NUL.
    fn symlink_len_max(&self) -> usize {
        1023
    }

    fn admit_new(&self, dir: &Handle, file_type: FileType, new: &NewInode) -> Result<()> {
        if file_type == FileType::Symlink && dir.inode.flags() & flags::NOSYMLINKS != 0 {
            return Err(Error::NotPermitted(
                "the directory does not allow symbolic links (nosymlinks)",
            ));
        }
        self.provide_quota(Some(new.uid), Some(new.gid), Some(self.project_below(dir)))
    }

    fn new_inode(
        op: &mut Op<'_>,
        parent: &Handle,
        file_type: FileType,
        new: &NewInode,
    ) -> Outcome<Handle> {
        let mut child = op.allocate_inode(parent, file_type == FileType::Directory)?;
        let inode = &mut child.inode;
        op.fs.set_new(inode, file_type, new);
        op.fs.inherit_project(parent, inode);
        inherit_flags(&op.fs.volume.geometry, parent, inode);
        Ok(child)
    }

    fn new_whiteout(op: &mut Op<'_>, dir: &Handle, new: &NewInode) -> Outcome<Handle> {
        let mut whiteout = Self::new_inode(op, dir, FileType::CharDevice, new)?;
        let fits = whiteout.inode.set_device(DeviceNumber::default());
        debug_assert!(fits, "0:0 is a device number in every format");
        Ok(whiteout)
    }

    fn set_device(inode: &mut Handle, device: DeviceNumber) -> Result<()> {
        if inode.inode.set_device(device) {
            return Ok(());
        }
        Err(Error::Invalid("a device number has at most 14 bits of major and 18 of minor"))
    }

    /// A new inode's data fork is already empty.
    fn init_file(_op: &mut Op<'_>, _file: &mut Handle) {}

    fn init_dir(op: &mut Op<'_>, dir: &mut Handle, parent: Ino) -> Outcome<()> {
        op.init_dir(dir, parent)
    }

    fn init_symlink(op: &mut Op<'_>, link: &mut Handle, target: &[u8]) -> Outcome<()> {
        op.init_symlink(link, target)
    }

    fn stage_new(op: &mut Op<'_>, inode: Handle) {
        op.stage(inode);
    }
}

impl XfsCore {
    /// Sets the attributes requested for a new inode.
    pub(crate) fn set_new(&self, inode: &mut Inode, file_type: FileType, new: &NewInode) {
        inode.set_mode(file_type, new.permissions);
        inode.set_uid(new.uid);
        inode.set_gid(new.gid);
        inode.set_nlink(if file_type == FileType::Directory { 2 } else { 1 });
        for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
            inode.set_time(which, new.time);
        }
        self.reserve_attr_fork(inode, file_type);
    }
}
