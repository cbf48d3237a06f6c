//! Adding a name to a directory.

use transaction::BufferId;
use vfs::{Error, FileType, Ino, NAME_LEN_MAX, Result};

use crate::format::address::{Block, FileBlock};
use crate::format::dirent::{self, Search};
use crate::format::inode::flags;
use crate::kind::Kind;
use crate::op::{Handle, Op};

/// What a directory entry will say.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'n> {
    pub(crate) name: &'n [u8],
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
}

/// Checks that `name` can be given to something.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name must not be empty or contain '/' or NUL"));
    }
    Ok(())
}

impl Op<'_> {
    /// Adds an entry. `Exists` if the name is taken.
    pub(crate) fn add_entry(&mut self, dir: &mut Handle, entry: Entry<'_>) -> Result<()> {
        if dir.inode.has_flag(flags::INDEX) {
            return self.add_indexed(dir, entry);
        }
        let block_size = self.fs.volume.block_size() as u64;
        let blocks = (dir.inode.size() / block_size) as u32;
        let mut room = None;
        for block in (0..blocks).map(FileBlock) {
            let at = self.dir_block(dir, block)?;
            let id = self.buffer(at, Kind::DirectoryLeaf.of(dir.owner))?;
            match dirent::search(self.txn.data(id), entry.name) {
                Search::Found(_) => return Err(Error::Exists),
                Search::Room { offset, used, rec_len } if room.is_none() => {
                    room = Some((id, offset, used, rec_len));
                }
                Search::Room { .. } | Search::Full => {}
            }
        }
        if let Some((id, offset, used, rec_len)) = room {
            self.write_entry(id, offset, used, rec_len, entry);
            return Ok(());
        }
        if blocks == 1 && self.fs.volume.dir_index {
            self.make_index(dir)?;
            return self.add_indexed(dir, entry);
        }
        let (_, id) = self.append_leaf(dir)?;
        let whole = self.fs.volume.block_size() - self.fs.volume.dir_tail_size();
        self.write_entry(id, 0, 0, whole, entry);
        Ok(())
    }

    /// Adds an entry to a leaf if its name is not there and there is room. False if there is none.
    pub(super) fn add_to_leaf(&mut self, id: BufferId, entry: Entry<'_>) -> Result<bool> {
        match dirent::search(self.txn.data(id), entry.name) {
            Search::Found(_) => Err(Error::Exists),
            Search::Full => Ok(false),
            Search::Room { offset, used, rec_len } => {
                self.write_entry(id, offset, used, rec_len, entry);
                Ok(true)
            }
        }
    }

    /// Writes an entry behind the used part of the record at `offset`.
    fn write_entry(
        &mut self,
        id: BufferId,
        offset: usize,
        used: usize,
        rec_len: usize,
        entry: Entry<'_>,
    ) {
        if used > 0 {
            dirent::write_rec_len(self.txn.edit(id, offset + 4..offset + 6), used);
        }
        let code =
            if self.fs.volume.filetype { dirent::file_type_code(entry.file_type) } else { 0 };
        let start = offset + used;
        let bytes = self.txn.edit(id, start..start + dirent::HEADER_SIZE + entry.name.len());
        dirent::write_record(bytes, rec_len - used, entry.ino.0 as u32, code, entry.name);
    }

    /// Adds an empty leaf to the end of a directory.
    pub(super) fn append_leaf(&mut self, dir: &mut Handle) -> Result<(FileBlock, BufferId)> {
        let (number, block) = self.append_dir_block(dir)?;
        let id = self.txn.create(block.0, Kind::DirectoryLeaf.of(dir.owner))?;
        self.clear_leaf(id);
        Ok((number, id))
    }

    /// Makes one unused record of a whole leaf.
    pub(super) fn clear_leaf(&mut self, id: BufferId) {
        let size = self.fs.volume.block_size();
        let tail = self.fs.volume.dir_tail_size();
        let bytes = self.txn.edit(id, 0..size);
        dirent::write_record(bytes, size - tail, 0, 0, &[]);
        if tail > 0 {
            dirent::write_tail(bytes);
        }
    }

    /// Adds a block to the end of a directory, without contents.
    pub(super) fn append_dir_block(&mut self, dir: &mut Handle) -> Result<(FileBlock, Block)> {
        let block_size = self.fs.volume.block_size() as u64;
        let number = u32::try_from(dir.inode.size() / block_size).map_err(|_| Error::NoSpace)?;
        let number = FileBlock(number);
        self.fill_hole(dir, number, 1, false)?;
        dir.inode.set_size(dir.inode.size() + block_size);
        Ok((number, self.dir_block(dir, number)?))
    }

    /// Gives a new directory its first block, with `.` and `..`.
    pub(crate) fn init_dir(&mut self, dir: &mut Handle, parent: Ino) -> Result<()> {
        let (_, id) = self.append_leaf(dir)?;
        let whole = self.fs.volume.block_size() - self.fs.volume.dir_tail_size();
        let dot = Entry { name: b".", ino: dir.ino(), file_type: FileType::Directory };
        self.write_entry(id, 0, 0, whole, dot);
        let used = dirent::record_size(1);
        let dot_dot = Entry { name: b"..", ino: parent, file_type: FileType::Directory };
        self.write_entry(id, 0, used, whole, dot_dot);
        Ok(())
    }
}
