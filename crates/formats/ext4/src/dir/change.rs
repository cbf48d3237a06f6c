//! Removing names, and changing the inode that a name leads to.

use engine::{BufferId, Corruption};
use operations::Outcome;
use operations::names::Entry;
use vfs::{Error, Ino};

use crate::dir::index;
use crate::dir::{self, FoundDirent};
use crate::format::address::FileBlock;
use crate::format::dirent::{self, DirRecord};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

impl Op<'_> {
    /// Removes the entry `found` of `name` from `dir`. Its bytes are added to the record before it; the first record of
    /// a block becomes an unused one. No other entry moves. An encrypted directory needs no key for this.
    pub(crate) fn remove_entry(
        &mut self,
        dir: &mut Handle,
        name: &[u8],
        found: &FoundDirent,
    ) -> Outcome<()> {
        let (id, found, rec_len) = self.hold_entry(dir, name, found)?;
        if let Some(note) = self.txn.note_mut(id) {
            dirent::note_removal(note, found.before.unwrap_or(found.offset));
        }
        match found.before {
            None => self.txn.edit_noted(id, found.offset..found.offset + 4).fill(0),
            Some(before) => {
                let len = found.offset + rec_len - before;
                dirent::write_rec_len(self.txn.edit_noted(id, before + 4..before + 6), len);
            }
        }
        Ok(())
    }

    /// Changes the inode of the existing entry of `entry.name`. The name keeps its position and its spelling.
    pub(crate) fn replace_entry(
        &mut self,
        dir: &mut Handle,
        found: &FoundDirent,
        entry: Entry<'_>,
    ) -> Outcome<()> {
        if dir.has_flag(flags::ENCRYPT) {
            return Err(Error::encrypted_read_only().into());
        }
        let (id, FoundDirent { offset, .. }, _) = self.hold_entry(dir, entry.name, found)?;
        let ino = (entry.ino.0 as u32).to_le_bytes();
        self.txn.edit(id, offset..offset + ino.len()).copy_from_slice(&ino);
        if self.fs.volume.filetype {
            let code = dirent::file_type_code(entry.file_type);
            self.txn.edit(id, offset + 7..offset + 8).fill(code);
        }
        Ok(())
    }

    /// Holds the block of an entry that was found before. Returns also the length of its record. An inline directory is
    /// first converted to a block.
    fn hold_entry(
        &mut self,
        dir: &mut Handle,
        name: &[u8],
        found: &FoundDirent,
    ) -> Outcome<(BufferId, FoundDirent, usize)> {
        let mut found = *found;
        if found.place.is_none() {
            self.give_block(dir)?;
            let again = dir::find(self, dir, name)?;
            found = again.ok_or_else(|| dir.corrupt("directory entry", "the entry is missing"))?;
        }
        let Some(place) = found.place else {
            return Err(dir.corrupt("directory", "inline data in an inode with blocks").into());
        };
        let id = self.buffer(place, BlockKind::DirectoryLeaf.of(dir.owner))?;
        match self.check_found(id, &found) {
            Some(rec_len) => Ok((id, found, rec_len)),
            // The entry can only have moved if another directory claims the same block.
            None => {
                let damage =
                    Corruption::new("directory block", "an entry moved while it was locked");
                Err(self.corrupt(id, damage, dir.owner).into())
            }
        }
    }

    /// Returns the length of a record if it is still at the position where it was found, after the same record as
    /// before.
    fn check_found(&self, id: BufferId, found: &FoundDirent) -> Option<usize> {
        let block = self.txn.data(id);
        let DirRecord { rec_len, inode, .. } = dirent::record_at(block, found.offset)?;
        let follows = match found.before {
            None => found.offset == 0,
            Some(before) => before + dirent::record_at(block, before)?.rec_len == found.offset,
        };
        (follows && found.ino == Ino(inode.into())).then_some(rec_len)
    }

    /// Changes `..` of a directory from `from` to `to`.
    pub(crate) fn set_parent(&mut self, dir: &mut Handle, from: Ino, to: Ino) -> Outcome<()> {
        let wrong = |found: &dyn std::fmt::Display| {
            Corruption::new("directory", "'..' does not refer to the parent directory")
                .of_inode(dir.ino().0)
                .mismatch(from, found)
        };
        let to = (to.0 as u32).to_le_bytes();
        match dir::parent(self, dir)? {
            Some(parent) if parent == from => {}
            Some(parent) => return Err(wrong(&parent).into()),
            None => return Err(wrong(&"none").into()),
        }
        if dir.has_flag(flags::INLINE_DATA) {
            dir.inode.i_block_mut()[..to.len()].copy_from_slice(&to);
            return Ok(());
        }
        let indexed = index::is_indexed(self.fs, dir);
        let kind = if indexed { BlockKind::HtreeRoot } else { BlockKind::DirectoryLeaf };
        let at = self.dir_block(dir, FileBlock(0))?;
        let id = self.buffer(at, kind.of(dir.owner))?;
        // In the root of an index, `..` always follows `.` directly.
        let found = dirent::find(self.txn.data(id), b"..").map(|record| record.offset);
        let offset = if indexed { dirent::record_size(1) } else { found.unwrap_or_default() };
        self.txn.edit(id, offset..offset + to.len()).copy_from_slice(&to);
        Ok(())
    }
}
