//! Truncations that take several operations.

use operations::data::{cut_past_size, zero_past_size};
use operations::{Outcome, RunOperations};
use vfs::{FileType, Ino, Result};

use crate::Ext4Core;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::op::Op;

impl Ext4Core {
    /// Completes a running truncation: frees the blocks past the file's size, in separate operations. The caller holds
    /// the inode's lock.
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
    fn cut_more(&mut self, before: &Handle) -> Outcome<bool> {
        let fs = self.fs;
        let mut file = *before;
        let done = cut_past_size(fs, self, &mut file)?;
        let is_in_blocks =
            file.file_type()? == FileType::Regular && !file.has_flag(flags::INLINE_DATA);
        if done && is_in_blocks {
            // A crash may have prevented the operation that started the truncation from zeroing the end.
            zero_past_size(fs, self, &mut file)?;
        }
        self.stage_if_changed(file, before);
        Ok(done)
    }
}
