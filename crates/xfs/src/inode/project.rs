//! Projects: an id of each inode by which the space of a whole hierarchy is counted.
//!
//! A directory with the flag `PROJINHERIT` gives its project to what is made in it, and its flag to
//! directories; everything else is made in project 0. Nothing of another project gets a name there,
//! so that the hierarchy stays one project's.

use vfs::{Error, Result};

use crate::Xfs;
use crate::format::inode::{Inode, flags};
use crate::inode::Handle;

impl Xfs {
    /// Gives a new inode, whose type is set, the project that `parent` has for it.
    pub(crate) fn inherit_project(&self, parent: &Handle, child: &mut Inode) {
        if parent.inode.flags() & flags::PROJINHERIT == 0 {
            return;
        }
        child.set_projid(parent.inode.projid());
        if child.is_dir() {
            child.set_flags(child.flags() | flags::PROJINHERIT);
        }
    }

    /// Whether an inode may get a name in `dir`: not one of another project.
    pub(crate) fn check_project(&self, dir: &Handle, inode: &Handle) -> Result<()> {
        let is_bound = dir.inode.flags() & flags::PROJINHERIT != 0;
        if is_bound && dir.inode.projid() != inode.inode.projid() {
            return Err(Error::OtherProject);
        }
        Ok(())
    }
}
