//! What becomes of inodes without names, and of those that are open.

use std::sync::atomic::Ordering;

use vfs::{Error, FileType, Ino, NewInode, Result};

use crate::Ext4;
use crate::file::CHANGES_PER_OP_MAX;
use crate::format::features::Incompat;
use crate::format::inode::flags;
use crate::fs::ROOT_INO;
use crate::inode::file_attributes::inherit_flags;
use crate::op::{Handle, Op};
use crate::read;
use crate::xattr::ValueInodes;

/// What an operation leaves of an inode whose last name it removed.
#[must_use = "a doomed inode is freed by Ext4::reap"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// All: it has other names.
    Kept,
    /// Nothing: it is free.
    Freed,
    /// All: somebody had it open, and it is freed when it is closed.
    Open(Ino),
    /// An orphan, to be freed by operations of their own.
    Doomed(Ino),
}

impl Op<'_> {
    /// Writes an inode that has just lost a name and whose lock is held, or ends it if that was the
    /// last one. The result is for [`Ext4::reap`], once the operation has committed.
    pub(crate) fn let_go(&mut self, handle: Handle) -> Result<Fate> {
        if handle.inode.links_count() > 0 {
            self.stage(handle);
            return Ok(Fate::Kept);
        }
        self.abandon(handle)
    }

    /// Ends an inode whose link count has just become 0 and whose lock is held. If nobody has it
    /// open, as much of it is freed as fits this operation; what is left then is an orphan, and the
    /// caller must hand the result to [`Ext4::reap`] once the operation has committed.
    pub(crate) fn abandon(&mut self, mut handle: Handle) -> Result<Fate> {
        let ino = handle.ino();
        if self.fs.orphans.is_open(ino) {
            self.add_orphan(&handle);
            self.stage(handle);
            return Ok(Fate::Open(ino));
        }
        let block_size = self.fs.volume.geometry.block_size();
        let has_blocks = handle.inode.blocks_512(block_size) > 0;
        let must_wait =
            has_blocks && self.fs.orphans.records_all() || self.may_have_values(&handle)?;
        if !must_wait && self.free_contents(&mut handle, None)? {
            self.remove_orphan(&handle);
            self.free_inode(handle);
            return Ok(Fate::Freed);
        }
        self.add_orphan(&handle);
        self.stage(handle);
        Ok(Fate::Doomed(ino))
    }

    /// Frees as much as fits one operation of what belongs to an inode; whether that is all. `values`
    /// as for [`Op::release_attributes`].
    fn free_contents(
        &mut self,
        file: &mut Handle,
        values: Option<&ValueInodes<'_>>,
    ) -> Result<bool> {
        let mut budget = CHANGES_PER_OP_MAX;
        if !self.remove_blocks(file, 0..u32::MAX, &mut budget)? {
            return Ok(false);
        }
        self.release_attributes(file, values)?;
        Ok(true)
    }

    /// Whether attributes may lie in inodes of their own, which must be locked before an operation
    /// begins.
    fn may_have_values(&self, file: &Handle) -> Result<bool> {
        let fs = self.fs;
        if !fs.volume.sb.features.incompat(Incompat::EA_INODE) {
            return Ok(false);
        }
        Ok(file.inode.file_acl() != 0 || fs.refers_to_values(file)?)
    }
}

impl Ext4 {
    /// Frees the inode that an operation has left behind. Its lock must still be held.
    ///
    /// The operation that removed the name has happened, so nothing that fails here makes it fail:
    /// the inode stays an orphan then, and is freed when the file system is closed or opened next.
    pub(crate) fn reap(&self, fate: Fate) {
        let ino = match fate {
            Fate::Kept | Fate::Freed => return,
            // Whoever closed it before it was known as an orphan has left it to this.
            Fate::Open(ino) if self.orphans.is_open(ino) => return,
            Fate::Open(ino) | Fate::Doomed(ino) => ino,
        };
        let _ = self.free_orphan(ino);
    }

    /// Frees an orphan without names, in as many operations as it takes.
    fn free_orphan(&self, ino: Ino) -> Result<()> {
        let mut is_done = false;
        while !is_done {
            let before = read::inode::load_unlinked(self, ino)?;
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

    /// Counts a reference to an inode in use, unless it is the file system's own.
    pub(crate) fn open_inode(&self, ino: Ino) -> Result<()> {
        let _lock = self.locks.shared(ino);
        let handle = self.load(ino)?;
        if self.is_own(&handle) {
            return Err(Error::NotFound);
        }
        self.orphans.table.open(ino)
    }

    /// Whether an inode is one that no name may lead to: journal, orphan file and the like.
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

    /// Gives a reference back, and frees the inode if it was the last one and there is no name.
    pub(crate) fn close_inode(&self, ino: Ino) -> Result<()> {
        if self.orphans.table.close(ino)?.is_some() {
            return Ok(());
        }
        let _lock = self.locks.exclusive(&[ino]);
        if !self.orphans.table.close_last(ino)? {
            return Ok(());
        }
        let handle = read::inode::load_unlinked(self, ino)?;
        if handle.inode.links_count() > 0 {
            // A truncation that failed left it among the orphans: its name keeps it.
            return Ok(());
        }
        self.reap(Fate::Doomed(ino));
        Ok(())
    }

    /// Makes a regular file without a name near `dir`, open once.
    pub(crate) fn create_orphan(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.check_writable()?;
        let parent = {
            let _lock = self.locks.shared(dir);
            self.load_dir(dir)?
        };
        parent.protection().check_addition()?;
        self.provide_quota(Some(new.uid), Some(new.gid), Some(self.project_below(&parent)))?;
        let ino = self.atomically(|op| {
            let mut file = op.allocate_inode(&parent, false)?;
            crate::create::set_new(&mut file.inode, FileType::Regular, new);
            inherit_flags(&parent, &mut file.inode);
            self.inherit_project(&parent, &mut file.inode);
            file.inode.set_links_count(0);
            op.init_map(&mut file);
            op.add_orphan(&file);
            op.stage_new(file);
            Ok(file.ino())
        })?;
        self.orphans.table.open(ino)?;
        Ok(ino)
    }

    /// Ends all orphans, open or not. For the end, when nobody can close them any more.
    pub(crate) fn reap_all(&self) -> Result<()> {
        for ino in self.orphans.table.close_all() {
            self.end_orphan(ino)?;
        }
        Ok(())
    }

    /// Frees an orphan, or ends the truncation of one with names; whether it was freed.
    pub(super) fn end_orphan(&self, ino: Ino) -> Result<bool> {
        let _lock = self.locks.exclusive(&[ino]);
        let handle = read::inode::load_unlinked(self, ino)?;
        if handle.inode.links_count() == 0 {
            self.free_orphan(ino)?;
            return Ok(true);
        }
        self.end_truncation(ino)?;
        Ok(false)
    }

    /// Goes on with a truncation that has happened as far as anybody can see. What fails here does
    /// not make it fail: the file stays an orphan, and [`Ext4::resume_truncation`] ends it.
    pub(crate) fn end_truncation_or_note(&self, ino: Ino) {
        if self.end_truncation(ino).is_err() {
            self.orphans.interrupted.store(true, Ordering::Relaxed);
        }
    }

    /// Ends a truncation that failed half way, before a file is changed again: what it left past the
    /// size must not come back. Whether there was one. The inode's lock must be held.
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
