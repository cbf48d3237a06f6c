//! Setting the size of a file.

use vfs::{Ino, Result};

use super::blocks_of;
use crate::Xfs;
use crate::format::address::FileBlock;
use crate::format::inode::{Fork, Format, flags, flags2};
use crate::inode::Handle;
use crate::op::Op;

impl Xfs {
    /// Sets the size. What lies past it is freed, in several operations if it is much: the first sets
    /// the size, so that what a failure leaves is space past the end, which the format allows.
    pub(crate) fn resize_file(&self, ino: Ino, size: u64) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        blocks_of(&self.volume.geometry, 0, size)?;
        let before = self.load_file(ino)?;
        before.protection().check_change()?;
        if size > before.inode.size() {
            return self.atomically(|op| op.grow_to(&before, size));
        }
        let mut done = self.atomically_freeing(|op| op.cut_to(&before, size))?;
        while !done {
            let before = self.load_file(ino)?;
            done = self.atomically_freeing(|op| op.cut_to(&before, size))?;
        }
        Ok(())
    }
}

impl Op<'_> {
    fn grow_to(&mut self, before: &Handle, size: u64) -> Result<()> {
        let mut file = before.clone();
        let grown = file.inode.size()..size;
        self.zero_written(&mut file, grown)?;
        file.inode.set_size(size);
        self.stage(file);
        Ok(())
    }

    /// Sets the size and frees what one operation can of what lies past it. Whether that was all.
    pub(crate) fn cut_to(&mut self, before: &Handle, size: u64) -> Result<bool> {
        let mut file = before.clone();
        file.inode.set_size(size);
        file.inode.set_flags(file.inode.flags() & !flags::PREALLOC);
        let log = self.fs.volume.geometry.block_log;
        let first = FileBlock(size.div_ceil(1 << log));
        let mut budget = self.fs.changes_per_op();
        let past = first..FileBlock::END;
        let done = self.unmap_some(&mut file, Fork::Data, past, &mut budget)?;
        if before.inode.size() > size {
            self.zero_written(&mut file, size..first.0 << log)?;
        }
        if file.inode.extents(Fork::Data) == 0 {
            // A file without blocks shares none.
            file.inode.set_flags2(file.inode.flags2() & !flags2::REFLINK);
        }
        self.stage_if_changed(file, before);
        Ok(done)
    }

    /// Frees the data fork of an inode that goes, as far as `budget` goes (see [`Op::unmap_some`]), which is
    /// lowered. Whether that was all.
    pub(crate) fn drop_data(&mut self, handle: &mut Handle, budget: &mut u32) -> Result<bool> {
        match handle.inode.format() {
            Format::Local | Format::Device => Ok(true),
            Format::Extents | Format::Btree => {
                self.unmap_some(handle, Fork::Data, FileBlock(0)..FileBlock::END, budget)
            }
        }
    }
}
