//! Inactivating inodes without names, and keeping those that are open.

use operations::opens::OpenInodes;
use operations::orphans::{InactivateInodes, Inactivation};
use operations::{Outcome, RunOperations};
use vfs::{FileType, Ino, Result, Timestamp};

use super::Listed;
use crate::XfsCore;
use crate::format::inode::{Fork, ForkFormat, Time};
use crate::inode::Handle;
use crate::map::{is_realtime, may_share};
use crate::op::Op;
use crate::xattr::parent::NamedLink;

impl Op<'_> {
    /// Removes a name from an inode, which must be locked, and inactivates it if that was its last name and it is not
    /// open. A directory has only one name. The result must be passed to [`operations::orphans::inactivate`] once the
    /// operation has committed.
    pub(crate) fn take_name(
        &mut self,
        before: &Handle,
        link: NamedLink<'_>,
        time: Option<Timestamp>,
    ) -> Outcome<Inactivation> {
        let mut handle = before.clone();
        let links = if handle.inode.is_dir() { 0 } else { handle.inode.nlink() - 1 };
        let is_open = self.fs.unlinked.table.is_open(handle.ino());
        if links == 0 && !is_open && self.can_end_at_once(&handle)? {
            if !self.end_inode(handle)? {
                return Err(before.corrupt("inode", "it has more blocks than counted").into());
            }
            return Ok(Inactivation::Freed);
        }
        self.remove_parent(&mut handle, link)?;
        handle.inode.set_nlink(links);
        if let Some(time) = time {
            handle.inode.set_time(Time::Change, time);
        }
        let ino = handle.ino();
        if links == 0 {
            self.add_unlinked(&handle);
        }
        self.stage(handle);
        Ok(if links == 0 { Inactivation::Orphan(ino) } else { Inactivation::Kept })
    }

    /// Returns whether one operation can free all that belongs to an inode.
    fn can_end_at_once(&mut self, handle: &Handle) -> Outcome<bool> {
        let most = self.fs.changes_per_op();
        let data = match (handle.inode.format(), handle.inode.file_type()) {
            (ForkFormat::Local | ForkFormat::Device, _) => 0,
            // The number of shared pieces is known only from the trees.
            _ if may_share(handle) => u64::MAX,
            // Each extent may be converted, and end in two realtime extents that are freed separately.
            _ if is_realtime(handle, Fork::Data) => {
                handle.inode.extents(Fork::Data).saturating_mul(3).saturating_add(2)
            }
            (_, Some(FileType::Regular)) => handle.inode.extents(Fork::Data),
            _ => handle.inode.nblocks(),
        };
        match u64::from(most).checked_sub(data) {
            Some(left) => self.attr_blocks_fit(handle, left as u32),
            None => Ok(false),
        }
    }

    /// Frees an inode and everything that belongs to it when the operation commits, or as much as one operation can.
    /// Returns whether that was all.
    pub(super) fn end_inode(&mut self, mut handle: Handle) -> Outcome<bool> {
        let mut budget = self.fs.changes_per_op();
        let is_all = self.drop_data(&mut handle, &mut budget)?
            && self.drop_attrs(&mut handle, &mut budget)?;
        if is_all {
            self.forget_unlinked(&handle);
            self.free_inode(handle);
        } else {
            self.stage(handle);
        }
        Ok(is_all)
    }
}

impl InactivateInodes for XfsCore {
    type Place = Listed;

    fn opens(&self) -> &OpenInodes<Listed> {
        &self.unlinked.table
    }

    /// Inodes of the realtime device, of quotas and of the metadata directory tree.
    fn is_own(&self, handle: &Handle) -> bool {
        let raw = &self.volume.sb.raw;
        let own = [raw.rbmino, raw.rsumino, raw.uquotino, raw.gquotino, raw.pquotino];
        handle.inode.is_metadata() || own.iter().any(|own| own.get() == handle.ino().0)
    }

    fn free_orphan(&self, ino: Ino) -> Result<()> {
        loop {
            let before = self.load(ino)?;
            if before.inode.nlink() > 0 {
                return Err(before.corrupt("list of unlinked inodes", "an inode with links"));
            }
            if self.atomically_freeing(|op| op.end_inode(before.clone()))? {
                return Ok(());
            }
        }
    }
}
