//! Projects: an id in each inode, by which the space of a directory hierarchy is counted.
//!
//! A directory with the flag `PROJINHERIT` passes its project to new inodes in it, and the flag to new directories
//! ([`crate::inode::file_attributes`]). All other new inodes get project 0. An inode of another project cannot get a
//! name in such a directory, so all inodes of the hierarchy have the same project.

use vfs::{Error, Result};

use crate::Ext4Core;
use crate::format::inode::{Inode, flags};
use crate::inode::Handle;

impl Ext4Core {
    /// Returns the project of new inodes in `parent`.
    pub(crate) fn project_below(&self, parent: &Handle) -> u32 {
        let inherits = self.volume.projects && parent.has_flag(flags::PROJINHERIT);
        if inherits { parent.inode.projid() } else { 0 }
    }

    /// Sets the project that a new inode inherits from `parent`. The type of `child` must be set.
    pub(crate) fn inherit_project(&self, parent: &Handle, child: &mut Inode) {
        if !self.volume.projects || !parent.has_flag(flags::PROJINHERIT) {
            return;
        }
        child.set_projid(parent.inode.projid());
    }

    /// Checks whether an inode may get a name in `dir`. An inode of another project must not.
    pub(crate) fn check_project(&self, dir: &Handle, inode: &Handle) -> Result<()> {
        let is_bound = self.volume.projects && dir.has_flag(flags::PROJINHERIT);
        if is_bound && dir.inode.projid() != inode.inode.projid() {
            return Err(Error::OtherProject);
        }
        Ok(())
    }
}
