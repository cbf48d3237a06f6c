//! Conversion of inline directories: they get a block before they change.

use operations::Outcome;
use vfs::{Corruption, FileType};

use crate::dir::{INLINE_SHIFT, inline_parent, inline_parts};
use crate::format::dirent;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::inode::inline;
use crate::op::Op;

impl Op<'_> {
    /// Moves the entries of an inline directory from its inode to its first block. Their relative distances stay the
    /// same, so that cookies of running listings stay valid.
    pub(super) fn give_block(&mut self, dir: &mut Handle) -> Outcome<()> {
        if !dir.has_flag(flags::INLINE_DATA) {
            return Ok(());
        }
        let contents = inline::contents(self.fs, dir)?;
        let parts = inline_parts(self.fs, dir, &contents)?;
        let entries = &contents[parts[0].0.min(contents.len())..];
        let end = self.fs.volume.block_size() - self.fs.volume.dir_tail_size();
        let start = parts[0].0 + INLINE_SHIFT;
        if start + entries.len() > end {
            let damage = Corruption::new("inline data", "more entries than fit into a block");
            return Err(damage.of_inode(dir.ino().0).into());
        }
        let parent = inline_parent(dir);
        dir.inode.set_flag(flags::INLINE_DATA, false);
        dir.inode.i_block_mut().fill(0);
        dir.inode.set_size(0);
        self.fs.init_map(dir);
        let (_, id) = self.append_leaf(dir)?;
        let bytes = self.txn.edit(id, 0..end);
        let directory = dirent::file_type_code(FileType::Directory);
        let dots_end = if entries.is_empty() { end } else { start };
        let dot_dot = dirent::record_size(1);
        let (first, second) = bytes.split_at_mut(dot_dot);
        dirent::write_record(first, dot_dot, dir.ino().0 as u32, directory, b".");
        dirent::write_record(second, dots_end - dot_dot, parent, directory, b"..");
        bytes[start..start + entries.len()].copy_from_slice(entries);
        let last = dirent::records(&bytes[start..start + entries.len()]).last();
        if let Some(last) = last.map(|record| start + record.offset) {
            dirent::write_rec_len(&mut bytes[last + 4..last + 6], end - last);
        }
        Ok(())
    }

    /// Writes a directory's inode at the commit if it changed. If the directory is no longer inline, its attribute for
    /// inline data is removed.
    pub(crate) fn stage_dir(&mut self, dir: Handle, before: &Handle) -> Outcome<()> {
        let inline = |handle: &Handle| handle.has_flag(flags::INLINE_DATA);
        if inline(before) && !inline(&dir) {
            let tail = self.fs.tail_without_inline_data(before)?;
            self.stage_with_tail(dir, tail);
        } else {
            self.stage_if_changed(dir, before);
        }
        Ok(())
    }
}
