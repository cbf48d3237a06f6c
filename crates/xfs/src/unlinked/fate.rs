//! What becomes of inodes without names, and of those that are open.

use vfs::{Error, FileType, Ino, NewInode, Result, Timestamp};

use crate::Xfs;
use crate::attr::parent::Link;
use crate::bmap::may_share;
use crate::format::inode::{Fork, Format, Time};
use crate::inherit::inherit_flags;
use crate::inode::Handle;
use crate::op::Op;

/// What an operation leaves of an inode that it took a name from.
#[must_use = "an inode that is not open any more is freed by Xfs::reap"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// All: it has other names.
    Kept,
    /// Nothing: it is free.
    Freed,
    /// All: somebody had it open, and it is freed when it is closed; or it is too much to be freed in the
    /// operation that took the name. It is on its list.
    Unlinked(Ino),
}

impl Op<'_> {
    /// Takes a name from an inode, whose lock is held, and ends it if that was the last one and nobody
    /// has it open. A directory has only one. The result is for [`Xfs::reap`], once the operation has
    /// committed.
    pub(crate) fn take_name(
        &mut self,
        before: &Handle,
        link: Link<'_>,
        time: Option<Timestamp>,
    ) -> Result<Fate> {
        let mut handle = before.clone();
        let links = if handle.inode.is_dir() { 0 } else { handle.inode.nlink() - 1 };
        let is_open = self.fs.unlinked.table.is_open(handle.ino());
        if links == 0 && !is_open && self.can_end_at_once(&handle)? {
            if !self.end_inode(handle)? {
                return Err(before.corrupt("inode", "it has more in blocks than it counts"));
            }
            return Ok(Fate::Freed);
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
        Ok(if links == 0 { Fate::Unlinked(ino) } else { Fate::Kept })
    }

    /// Whether one operation can free all that belongs to an inode.
    fn can_end_at_once(&mut self, handle: &Handle) -> Result<bool> {
        let most = self.fs.changes_per_op();
        let data = match (handle.inode.format(), handle.inode.file_type()) {
            (Format::Local | Format::Device, _) => 0,
            // What it shares may be in many pieces, of which only the trees know.
            _ if may_share(handle) => u64::MAX,
            (_, Some(FileType::Regular)) => handle.inode.extents(Fork::Data),
            _ => handle.inode.nblocks(),
        };
        match u64::from(most).checked_sub(data) {
            Some(left) => self.attr_blocks_fit(handle, left as u32),
            None => Ok(false),
        }
    }

    /// Frees an inode and everything that belongs to it when the operation commits, or as much as one
    /// operation can. Whether that was all.
    pub(super) fn end_inode(&mut self, mut handle: Handle) -> Result<bool> {
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

impl Xfs {
    /// Frees an inode that was closed before it was known to have lost its last name. Its lock must
    /// still be held.
    ///
    /// The operation that removed the name has happened, so nothing that fails here makes it fail: the
    /// inode stays on its list then, and is freed when the file system is closed.
    pub(crate) fn reap(&self, fate: Fate) {
        match fate {
            Fate::Unlinked(ino) if !self.unlinked.table.is_open(ino) => {
                let _ = self.free_unlinked(ino);
            }
            _ => {}
        }
    }

    /// Frees an inode without names, which is on its list, in as many operations as it takes. Its lock
    /// must be held.
    fn free_unlinked(&self, ino: Ino) -> Result<()> {
        loop {
            let before = self.load(ino)?;
            if before.inode.nlink() > 0 {
                return Err(before.corrupt("list of unlinked inodes", "an inode with names"));
            }
            if self.atomically_freeing(|op| op.end_inode(before.clone()))? {
                return Ok(());
            }
        }
    }

    /// Counts a reference to an inode in use, unless it is the file system's own.
    pub(crate) fn open_inode(&self, ino: Ino) -> Result<()> {
        let _lock = self.locks.shared(ino);
        self.load(ino)?;
        if self.is_own(ino) {
            return Err(Error::NotFound);
        }
        self.unlinked.table.open(ino)
    }

    /// Whether an inode is one that no name may lead to: of the realtime device, or quotas.
    fn is_own(&self, ino: Ino) -> bool {
        let raw = &self.volume.sb.raw;
        let own = [raw.rbmino, raw.rsumino, raw.uquotino, raw.gquotino, raw.pquotino];
        own.iter().any(|own| own.get() == ino.0)
    }

    /// Gives a reference back, and frees the inode if it was the last one and there is no name.
    pub(crate) fn close_inode(&self, ino: Ino) -> Result<()> {
        if self.unlinked.table.close(ino)?.is_some() {
            return Ok(());
        }
        let _lock = self.locks.exclusive(&[ino]);
        if self.unlinked.table.close_last(ino)? {
            // What fails here leaves it on its list, to be freed when the file system is closed.
            let _ = self.free_unlinked(ino);
        }
        Ok(())
    }

    /// Makes a regular file without a name near `dir`, open once.
    pub(crate) fn create_open(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.check_writable()?;
        let parent = {
            let _lock = self.locks.shared(dir);
            self.load_dir(dir)?
        };
        parent.protection().check_addition()?;
        let ino = self.atomically(|op| {
            let mut file = op.allocate_inode(&parent, false)?;
            op.set_new(&mut file.inode, FileType::Regular, new);
            self.inherit_project(&parent, &mut file.inode);
            inherit_flags(&parent, &mut file.inode);
            file.inode.set_nlink(0);
            op.add_unlinked(&file);
            let ino = file.ino();
            op.stage(file);
            Ok(ino)
        })?;
        self.unlinked.table.open(ino)?;
        Ok(ino)
    }

    /// Frees all inodes without names, open or not; returns how many. For the end, when nobody can close
    /// them any more.
    pub(crate) fn reap_all(&self) -> Result<u64> {
        let mut freed = 0;
        for ino in self.unlinked.table.close_all() {
            let _lock = self.locks.exclusive(&[ino]);
            self.free_unlinked(ino)?;
            freed += 1;
        }
        Ok(freed)
    }
}
