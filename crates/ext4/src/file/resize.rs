//! Setting the size of a file.

use vfs::{FileType, Ino, Result};

use super::CHANGES_PER_OP_MAX;
use super::inline::Unpacked;
use crate::Ext4;
use crate::format::inode::flags;
use crate::op::{Handle, Op};

impl Ext4 {
    /// Sets the size. What lies past it is freed, in several operations if it is much: then the file
    /// is an orphan from the first, which sets the size, to the last, so that whoever opens the
    /// image after a crash goes on with it.
    pub(crate) fn resize_file(&self, ino: Ino, size: u64) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let before = self.load_file(ino)?;
        before.protection().check_change()?;
        self.blocks_of(&before, 0, size)?;
        let unpacked = self.unpack(&before)?;
        if size > before.inode.size() {
            return self.atomically(|op| op.grow_to(&before, unpacked.as_ref(), size));
        }
        if !self.atomically_freeing(|op| op.cut_to(&before, unpacked.as_ref(), size))? {
            self.end_truncation_or_note(ino);
        }
        Ok(())
    }

    /// Frees what lies past the size of a file whose truncation is under way, in operations of its
    /// own. The inode's lock must be held.
    pub(crate) fn end_truncation(&self, ino: Ino) -> Result<()> {
        let mut done = false;
        while !done {
            let before = self.load(ino)?;
            done = self.atomically_freeing(|op| op.cut_more(&before))?;
        }
        Ok(())
    }
}

impl Op<'_> {
    fn grow_to(&mut self, before: &Handle, unpacked: Option<&Unpacked>, size: u64) -> Result<()> {
        let mut file = *before;
        self.use_unpacked(&mut file, unpacked)?;
        self.zero_written(&file, file.inode.size()..size)?;
        file.inode.set_size(size);
        self.stage_contents(file, before, unpacked);
        Ok(())
    }

    fn cut_to(&mut self, before: &Handle, unpacked: Option<&Unpacked>, size: u64) -> Result<bool> {
        let mut file = *before;
        self.use_unpacked(&mut file, unpacked)?;
        let old_size = file.inode.size();
        file.inode.set_size(size);
        let done = self.cut_past_size(&mut file)?;
        self.note_truncation(&file, done);
        if size < old_size {
            self.zero_past_size(&file)?;
        }
        self.stage_contents(file, before, unpacked);
        Ok(done)
    }

    fn cut_more(&mut self, before: &Handle) -> Result<bool> {
        let mut file = *before;
        let done = self.cut_past_size(&mut file)?;
        self.note_truncation(&file, done);
        if done {
            // A crash may have kept whoever began from it.
            self.zero_past_size(&file)?;
        }
        self.stage_if_changed(file, before);
        Ok(done)
    }

    /// Zeroes what the last block of a regular file has past the size.
    fn zero_past_size(&mut self, file: &Handle) -> Result<()> {
        if file.file_type()? != FileType::Regular || file.has_flag(flags::INLINE_DATA) {
            return Ok(());
        }
        let size = file.inode.size();
        let block_end = size.checked_next_multiple_of(self.fs.volume.block_size() as u64);
        self.zero_written(file, size..block_end.unwrap_or(u64::MAX))
    }

    /// Frees what one operation can of what lies past the size. Whether that was all.
    fn cut_past_size(&mut self, file: &mut Handle) -> Result<bool> {
        let blocks = file.inode.size().div_ceil(self.fs.volume.block_size() as u64);
        let first = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mut budget = CHANGES_PER_OP_MAX;
        self.remove_blocks(file, first..u32::MAX, &mut budget)
    }
}
