//! Project IDs, for accounting the space of directory hierarchies.
//!
//! A directory with the flag `PROJINHERIT` passes its project on to new inodes in it, and the flag to new directories.
//! Otherwise new inodes get project 0. Inodes of another project cannot be linked into such a directory, so the
//! hierarchy stays in one project.

use vfs::{Error, Result};

use crate::XfsCore;
use crate::format::inode::{Inode, flags};
use crate::inode::Handle;

impl XfsCore {
    /// Sets the project that a new inode, whose type is set, inherits from `parent`.
    pub(crate) fn inherit_project(&self, parent: &Handle, child: &mut Inode) {
        if parent.inode.flags() & flags::PROJINHERIT == 0 {
            return;
        }
        child.set_projid(parent.inode.projid());
        if child.is_dir() {
            child.set_flags(child.flags() | flags::PROJINHERIT);
        }
    }

    /// Returns the project of new inodes in a directory.
    pub(crate) fn project_below(&self, dir: &Handle) -> u32 {
        if dir.inode.flags() & flags::PROJINHERIT == 0 { 0 } else { dir.inode.projid() }
    }

    /// Checks that an inode may be linked into `dir`: fails if its project differs.
    pub(crate) fn check_project(&self, dir: &Handle, inode: &Handle) -> Result<()> {
        let is_bound = dir.inode.flags() & flags::PROJINHERIT != 0;
        if is_bound && dir.inode.projid() != inode.inode.projid() {
            return Err(Error::OtherProject);
        }
        Ok(())
    }
}
