//! Links and their counts. In images with parent pointers, each link is also recorded in the inode it leads to.

use operations::Outcome;
use operations::names::LinkEffects;
use vfs::{Result, Timestamp};

use crate::XfsCore;
use crate::inode::Handle;
use crate::op::Op;
use crate::orphan::Inactivation;
use crate::xattr::parent::NamedLink;

impl<'n> From<(&Handle, &'n [u8])> for NamedLink<'n> {
    /// Returns the link of the entry with this name in a directory.
    fn from((dir, name): (&Handle, &'n [u8])) -> Self {
        Self { dir: dir.ino(), generation: dir.inode.generation(), name }
    }
}

impl LinkEffects for XfsCore {
    /// `XFS_MAXLINK`.
    const LINKS_MAX: u32 = i32::MAX as u32;

    fn check_project(&self, dir: &Handle, inode: &Handle) -> Result<()> {
        self.check_project(dir, inode)
    }

    fn add_parent(op: &mut Op<'_>, inode: &mut Handle, link: (&Handle, &[u8])) -> Outcome<()> {
        op.add_parent(inode, link.into())
    }

    fn replace_parent(
        op: &mut Op<'_>,
        inode: &mut Handle,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) -> Outcome<()> {
        op.replace_parent(inode, from.into(), to.into())
    }

    fn take_name(
        op: &mut Op<'_>,
        before: &Handle,
        link: (&Handle, &[u8]),
        time: Option<Timestamp>,
    ) -> Outcome<Inactivation> {
        op.take_name(before, link.into(), time)
    }

    fn add_orphan(op: &mut Op<'_>, inode: &Handle) {
        op.add_unlinked(inode);
    }

    fn remove_orphan(op: &mut Op<'_>, inode: &Handle) {
        op.remove_unlinked(inode);
    }
}
