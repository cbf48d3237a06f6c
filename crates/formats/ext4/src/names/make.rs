//! Creation of inodes.

use operations::Outcome;
use operations::names::MakeInodes;
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, Result};

use crate::Ext4Core;
use crate::format::extent;
use crate::format::inode::{I_BLOCK_SIZE, Inode, Time, flags};
use crate::inode::Handle;
use crate::inode::file_attributes::inherit_flags;
use crate::op::Op;

impl MakeInodes for Ext4Core {
    fn symlink_len_max(&self) -> usize {
        self.volume.block_size() - 1
    }

    /// Adds the owners of the new inode to the quota files if they are missing.
    fn admit_new(&self, dir: &Handle, _file_type: FileType, new: &NewInode) -> Result<()> {
        self.provide_quota(Some(new.uid), Some(new.gid), Some(self.project_below(dir)))
    }

    fn new_inode(
        op: &mut Op<'_>,
        parent: &Handle,
        file_type: FileType,
        new: &NewInode,
    ) -> Outcome<Handle> {
        let mut child = op.allocate_inode(parent, file_type == FileType::Directory)?;
        set_new(&mut child.inode, file_type, new);
        inherit_flags(parent, &mut child.inode);
        op.fs.inherit_project(parent, &mut child.inode);
        Ok(child)
    }

    /// A whiteout inherits a project, but no flags.
    fn new_whiteout(op: &mut Op<'_>, dir: &Handle, new: &NewInode) -> Outcome<Handle> {
        let mut whiteout = op.allocate_inode(dir, false)?;
        set_new(&mut whiteout.inode, FileType::CharDevice, new);
        op.fs.inherit_project(dir, &mut whiteout.inode);
        whiteout.inode.set_device(DeviceNumber::default());
        Ok(whiteout)
    }

    fn set_device(inode: &mut Handle, device: DeviceNumber) -> Result<()> {
        if inode.inode.set_device(device) {
            return Ok(());
        }
        Err(Error::Invalid("a device number has at most 12 bits of major and 20 of minor"))
    }

    fn init_file(op: &mut Op<'_>, file: &mut Handle) {
        op.fs.init_map(file);
    }

    fn init_dir(op: &mut Op<'_>, dir: &mut Handle, parent: Ino) -> Outcome<()> {
        op.fs.init_map(dir);
        op.init_dir(dir, parent)
    }

    fn init_symlink(op: &mut Op<'_>, link: &mut Handle, target: &[u8]) -> Outcome<()> {
        link.inode.set_size(target.len() as u64);
        if target.len() < I_BLOCK_SIZE {
            link.inode.i_block_mut()[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        op.fs.init_map(link);
        op.write_new_block(link, target)
    }

    fn stage_new(op: &mut Op<'_>, inode: Handle) {
        op.stage_new(inode);
    }
}

/// Sets the fields of a new inode that the caller specifies.
fn set_new(inode: &mut Inode, file_type: FileType, new: &NewInode) {
    inode.set_mode(file_type.mode_bits() | new.permissions & 0o7777);
    inode.set_uid(new.uid);
    inode.set_gid(new.gid);
    inode.set_links_count(if file_type == FileType::Directory { 2 } else { 1 });
    for which in [Time::Access, Time::Change, Time::Modify] {
        inode.set_time(which, new.time);
    }
    inode.set_crtime(new.time);
}

impl Ext4Core {
    /// Returns the handle of a new, empty regular file that inherits nothing.
    pub(crate) fn new_file(&self, ino: Ino, generation: u32, new: &NewInode) -> Result<Handle> {
        let geometry = &self.volume.geometry;
        let (group, index) = geometry.place_of(ino).ok_or(Error::NotFound)?;
        let place = geometry.inode_position(self.volume.groups.inode_table(group), index);
        let mut file = self.blank_inode(ino, generation, place);
        set_new(&mut file.inode, FileType::Regular, new);
        self.init_map(&mut file);
        Ok(file)
    }

    /// Gives a new inode an empty block map.
    pub(crate) fn init_map(&self, file: &mut Handle) {
        if self.volume.extents {
            file.inode.set_flag(flags::EXTENTS, true);
            let root = &mut file.inode.i_block_mut()[..extent::ENTRY_SIZE];
            extent::write_header(root, 0, extent::capacity(I_BLOCK_SIZE), 0);
        }
    }
}
