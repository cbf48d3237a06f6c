//! What becomes of inodes without names, and of those that are open.

use vfs::{Error, FileType, Ino, NewInode, Result};

use crate::Ext4;
use crate::format::inode::flags;
use crate::op::{Handle, Op};
use crate::read;

/// What an operation leaves of an inode whose last name it removed.
#[must_use = "a doomed inode is freed by Ext4::reap"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing: it is free.
    Freed,
    /// All: somebody has it open, and it is freed when it is closed.
    Open,
    /// An orphan, to be freed by operations of their own.
    Doomed(Ino),
}

impl Op<'_> {
    /// Ends an inode whose link count has just become 0 and whose lock is held. If nobody has it
    /// open, as much of it is freed as fits this operation; what is left then is an orphan, and the
    /// caller must hand the result to [`Ext4::reap`] once the operation has committed.
    pub(crate) fn abandon(&mut self, mut handle: Handle) -> Result<Fate> {
        let ino = handle.ino();
        if self.fs.orphans.is_open(ino) {
            self.add_orphan(&handle);
            self.stage(handle);
            return Ok(Fate::Open);
        }
        let block_size = self.fs.volume.geometry.block_size();
        let has_blocks = handle.inode.blocks_512(block_size) > 0;
        let may_free = !(has_blocks && self.fs.orphans.records_all());
        if may_free && self.free_contents(&mut handle)? {
            self.remove_orphan(&handle);
            self.free_inode(handle);
            return Ok(Fate::Freed);
        }
        self.add_orphan(&handle);
        self.stage(handle);
        Ok(Fate::Doomed(ino))
    }

    /// Frees as much as fits one operation of what belongs to an inode; whether that is all.
    fn free_contents(&mut self, file: &mut Handle) -> Result<bool> {
        let block_size = self.fs.volume.geometry.block_size();
        if has_map(self.fs, file)? && file.inode.blocks_512(block_size) > 0
            || file.inode.file_acl() != 0
        {
            return Err(Error::unsupported("freeing an inode with blocks", "wait for it"));
        }
        Ok(true)
    }
}

/// Whether `i_block` leads to blocks.
pub(super) fn has_map(fs: &Ext4, file: &Handle) -> Result<bool> {
    if file.has_flag(flags::INLINE_DATA) {
        return Ok(false);
    }
    Ok(match file.file_type()? {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => !read::file::is_fast(fs, file),
        _ => false,
    })
}

impl Ext4 {
    /// Frees the inode that an operation has left behind. Its lock must still be held. After an
    /// error the inode is an orphan still, which the next opening of the file system frees.
    pub(crate) fn reap(&self, fate: Fate) -> Result<()> {
        let Fate::Doomed(ino) = fate else { return Ok(()) };
        loop {
            let before = read::inode::load_unlinked(self, ino)?;
            let is_done = self.atomically(|op| {
                let mut handle = before;
                if !op.free_contents(&mut handle)? {
                    op.stage(handle);
                    return Ok(false);
                }
                op.remove_orphan(&handle);
                op.free_inode(handle);
                Ok(true)
            })?;
            if is_done {
                return Ok(());
            }
        }
    }

    /// Counts a reference to an inode in use.
    pub(crate) fn open_inode(&self, ino: Ino) -> Result<()> {
        let _lock = self.locks.shared(ino);
        self.load(ino)?;
        self.orphans.table.open(ino)
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
        self.reap(Fate::Doomed(ino))
    }

    /// Makes a regular file without a name near `dir`, open once.
    pub(crate) fn create_orphan(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.check_writable()?;
        let parent = {
            let _lock = self.locks.shared(dir);
            self.load_dir(dir)?
        };
        let ino = self.atomically(|op| {
            let mut file = op.allocate_inode(&parent, false)?;
            crate::create::set_new(&mut file.inode, FileType::Regular, new);
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
            self.reap(Fate::Doomed(ino))?;
            return Ok(true);
        }
        self.finish_truncation(handle)?;
        Ok(false)
    }

    /// Ends a truncation that a crash or a failing device has interrupted.
    fn finish_truncation(&self, file: Handle) -> Result<()> {
        let block_size = self.volume.geometry.block_size();
        if has_map(self, &file)? && file.inode.blocks_512(block_size) > 0 {
            return Err(Error::unsupported("freeing an inode with blocks", "wait for it"));
        }
        self.atomically(|op| {
            op.remove_orphan(&file);
            Ok(())
        })
    }
}
