//! Link counts, and inactivation of an inode that loses its last link.

use operations::Outcome;
use operations::names::LinkEffects;
use vfs::{Error, Result, Timestamp};

use crate::Ext4Core;
use crate::format::inode::{Time, flags};
use crate::inode::Handle;
use crate::op::Op;
use crate::orphan::Inactivation;

/// Link count of a directory with more subdirectories than the field can count.
const LINKS_UNCOUNTED: u16 = 1;

impl LinkEffects for Ext4Core {
    /// `EXT4_LINK_MAX`.
    const LINKS_MAX: u32 = 65_000;

    fn check_project(&self, dir: &Handle, inode: &Handle) -> Result<()> {
        self.check_project(dir, inode)
    }

    /// A directory with too many subdirectories has a link count of 1.
    fn add_subdirectory(&self, parent: &mut Handle) -> Result<()> {
        let links = parent.inode.links_count();
        if links == LINKS_UNCOUNTED {
            return Ok(());
        }
        let links = if u32::from(links) < Self::LINKS_MAX {
            links + 1
        } else if self.volume.dir_nlink() && parent.has_flag(flags::INDEX) {
            LINKS_UNCOUNTED
        } else {
            return Err(Error::TooManyLinks);
        };
        parent.inode.set_links_count(links);
        Ok(())
    }

    fn take_name(
        op: &mut Op<'_>,
        before: &Handle,
        _link: (&Handle, &[u8]),
        time: Option<Timestamp>,
    ) -> Outcome<Inactivation> {
        let mut gone = *before;
        let links = gone.inode.links_count();
        gone.inode.set_links_count(if gone.inode.is_dir() { 0 } else { links - 1 });
        if let Some(time) = time {
            gone.inode.set_time(Time::Change, time);
        }
        op.let_go(gone)
    }

    fn add_orphan(op: &mut Op<'_>, inode: &Handle) {
        op.add_orphan(inode);
    }

    fn remove_orphan(op: &mut Op<'_>, inode: &Handle) {
        op.remove_orphan(inode);
    }
}
