//! Inactivation of inodes without names, and open inodes.

use std::sync::atomic::Ordering;

use operations::opens::OpenInodes;
use operations::orphans::{InactivateInodes, Inactivation};
use operations::{Outcome, RunOperations};

use vfs::{Ino, Result};

use super::OrphanLocation;
use crate::Ext4Core;
use crate::file::CHANGES_PER_OP_MAX;
use crate::format::features::Incompat;
use crate::format::inode::{ROOT_INO, flags};
use crate::inode;
use crate::inode::Handle;
use crate::op::Op;
use crate::xattr::ValueInodes;

impl Op<'_> {
    /// Writes an inode that has just lost a name and whose lock is held. If that was the last name, abandons it. The
    /// caller passes the result to [`operations::orphans::inactivate`] after the commit.
    pub(crate) fn let_go(&mut self, handle: Handle) -> Outcome<Inactivation> {
        if handle.inode.links_count() > 0 {
            self.stage(handle);
            return Ok(Inactivation::Kept);
        }
        self.abandon(handle)
    }

    /// Abandons an inode whose link count has just become 0 and whose lock is held. If it is not open, frees as much of
    /// it as fits into this operation; an inode with anything left becomes an orphan. The caller must pass the result
    /// to [`operations::orphans::inactivate`] after the commit.
    pub(crate) fn abandon(&mut self, mut handle: Handle) -> Outcome<Inactivation> {
        let ino = handle.ino();
        if self.fs.orphans.is_open(ino) {
            self.add_orphan(&handle);
            self.stage(handle);
            return Ok(Inactivation::Orphan(ino));
        }
        let block_size = self.fs.volume.geometry.block_size();
        let has_blocks = handle.inode.blocks_512(block_size) > 0;
        let must_wait =
            has_blocks && self.fs.orphans.records_all() || self.may_have_values(&handle)?;
        if !must_wait && self.free_contents(&mut handle, None)? {
            self.remove_orphan(&handle);
            self.free_inode(handle);
            return Ok(Inactivation::Freed);
        }
        self.add_orphan(&handle);
        self.stage(handle);
        Ok(Inactivation::Orphan(ino))
    }

    /// Frees as much of an inode's contents as fits into one operation. Returns whether that was everything. `values`
    /// as for [`Op::release_attributes`].
    fn free_contents(
        &mut self,
        file: &mut Handle,
        values: Option<&ValueInodes<'_>>,
    ) -> Outcome<bool> {
        let mut budget = CHANGES_PER_OP_MAX;
        if !self.remove_blocks(file, 0..u32::MAX, &mut budget)? {
            return Ok(false);
        }
        self.release_attributes(file, values)?;
        Ok(true)
    }

    /// Returns whether attribute values may be in separate inodes, which must be locked before the operation begins.
    fn may_have_values(&self, file: &Handle) -> Outcome<bool> {
        let fs = self.fs;
        if !fs.volume.sb.features.incompat(Incompat::EA_INODE) {
            return Ok(false);
        }
        Ok(file.inode.file_acl() != 0 || fs.refers_to_values(file)?)
    }
}

impl Ext4Core {
    /// Continues a truncation that is complete as far as readers can see. Its result does not depend on errors here:
    /// the file stays an orphan, and [`Ext4Core::resume_truncation`] completes it.
    pub(crate) fn end_truncation_or_note(&self, ino: Ino) {
        if self.end_truncation(ino).is_err() {
            self.orphans.interrupted.store(true, Ordering::Relaxed);
        }
    }

    /// Completes a truncation that failed half way, before the file changes again: otherwise old data past the size
    /// could become visible. Returns whether there was one. The caller holds the inode's lock.
    pub(crate) fn resume_truncation(&self, file: &Handle) -> Result<bool> {
        let may_be = self.orphans.interrupted.load(Ordering::Relaxed);
        let is_cut = may_be
            && file.inode.links_count() > 0
            && self.orphans.table.place(file.ino()).is_some();
        if is_cut {
            self.end_truncation(file.ino())?;
        }
        Ok(is_cut)
    }
}

impl InactivateInodes for Ext4Core {
    type Place = OrphanLocation;

    fn opens(&self) -> &OpenInodes<OrphanLocation> {
        &self.orphans.table
    }

    /// Returns whether an inode belongs to the file system itself (journal, orphan file and so on), so that no name may
    /// lead to it.
    fn is_own(&self, handle: &Handle) -> bool {
        let (sb, ino) = (&self.volume.sb, handle.ino());
        let raw = &sb.raw;
        let own = [
            raw.journal_inum,
            raw.orphan_file_inum,
            raw.usr_quota_inum,
            raw.grp_quota_inum,
            raw.prj_quota_inum,
        ];
        own.iter().any(|own| u64::from(own.get()) == ino.0)
            || ino.0 < u64::from(sb.first_ino) && ino != ROOT_INO
            || handle.has_flag(flags::EA_INODE)
    }

    fn free_orphan(&self, ino: Ino) -> Result<()> {
        let mut is_done = false;
        while !is_done {
            let before = inode::load_unlinked(self, ino)?;
            let values = self.attributes_guard(&[&before])?;
            is_done = self.atomically_freeing(|op| {
                let mut handle = before;
                if !op.free_contents(&mut handle, values.as_ref())? {
                    op.stage(handle);
                    return Ok(false);
                }
                op.remove_orphan(&handle);
                op.free_inode(handle);
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// A truncation that was not completed leaves a file with names among the orphans.
    fn has_names(&self, ino: Ino) -> Result<bool> {
        Ok(inode::load_unlinked(self, ino)?.inode.links_count() > 0)
    }

    fn end_named_orphan(&self, ino: Ino) -> Result<()> {
        self.end_truncation(ino)
    }
}
