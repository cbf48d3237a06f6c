//! Projects: an id of each inode by which the space of a whole hierarchy is counted.
//!
//! A directory with the flag `PROJINHERIT` gives its project to what is made in it, and its flag to
//! directories ([`crate::inode::file_attributes`]); everything else is made in project 0. Nothing of
//! another project gets a name there, so that the hierarchy stays one project's.

use vfs::{Error, Result};

use crate::Ext4;
use crate::format::inode::{Inode, flags};
use crate::inode::Handle;

impl Ext4 {
    /// The project of what is made in `parent`.
    pub(crate) fn project_below(&self, parent: &Handle) -> u32 {
        let inherits = self.volume.projects && parent.has_flag(flags::PROJINHERIT);
        if inherits { parent.inode.projid() } else { 0 }
    }

    /// Gives a new inode, whose type is set, the project that `parent` has for it.
    pub(crate) fn inherit_project(&self, parent: &Handle, child: &mut Inode) {
        if !self.volume.projects || !parent.has_flag(flags::PROJINHERIT) {
            return;
        }
        child.set_projid(parent.inode.projid());
    }

    /// Whether an inode may get a name in `dir`: not one of another project.
    pub(crate) fn check_project(&self, dir: &Handle, inode: &Handle) -> Result<()> {
        let is_bound = self.volume.projects && dir.has_flag(flags::PROJINHERIT);
        if is_bound && dir.inode.projid() != inode.inode.projid() {
            return Err(Error::OtherProject);
        }
        Ok(())
    }
}
