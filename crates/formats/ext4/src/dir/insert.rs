//! Adding a name to a directory.

use operations::Outcome;
use operations::names::Entry;
use std::ops::ControlFlow;

use engine::BufferId;
use vfs::{Error, FileType, Ino, Result};

use crate::dir::compare::{NameEncoding, Wanted};
use crate::dir::index;
use crate::dir::{self, find_in_block, for_each_leaf};
use crate::format::address::{Block, FileBlock};
use crate::format::dirent::{self, Search};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

/// Space for a new record in a held block.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) id: BufferId,
    /// Offset of the record whose slack provides the space.
    pub(super) offset: usize,
    /// Number of its bytes in use.
    pub(super) used: usize,
    /// Its whole length.
    pub(super) rec_len: usize,
}

impl Op<'_> {
    /// Adds an entry. Fails with `Exists` if the name exists.
    pub(crate) fn add_entry(&mut self, dir: &mut Handle, entry: Entry<'_>) -> Outcome<()> {
        if dir.has_flag(flags::ENCRYPT) {
            return Err(Error::encrypted_read_only().into());
        }
        if self.fs.volume.strict_names
            && NameEncoding::of(dir) == NameEncoding::Folded
            && std::str::from_utf8(entry.name).is_err()
        {
            return Err(Error::Invalid("the encoding of the directory requires UTF-8 names").into());
        }
        self.give_block(dir)?;
        let mut wanted = Wanted::new(NameEncoding::of(dir), entry.name);
        if index::is_indexed(self.fs, dir) {
            return self.add_indexed(dir, entry, &mut wanted).map(drop);
        }
        // Clear the flag: this index is not updated, so other implementations must not use it.
        dir.inode.set_flag(flags::INDEX, false);
        if let Some(room) = self.find_room(dir, entry.name, &mut wanted)? {
            self.write_entry(room, entry);
            return Ok(());
        }
        let blocks = dir::blocks_count(self.fs, dir)?;
        if blocks == 1 && self.fs.volume.dir_index {
            self.make_index(dir)?;
            return self.add_indexed(dir, entry, &mut wanted).map(drop);
        }
        let (_, id) = self.append_leaf(dir)?;
        let rec_len = self.fs.volume.block_size() - self.fs.volume.dir_tail_size();
        self.write_entry(Room { id, offset: 0, used: 0, rec_len }, entry);
        Ok(())
    }

    /// Searches all blocks of a directory without an index. Fails with `Exists` if one contains the name, otherwise
    /// returns the first space for it.
    fn find_room(
        &mut self,
        dir: &Handle,
        name: &[u8],
        wanted: &mut Wanted<'_>,
    ) -> Outcome<Option<Room>> {
        let mut room = None;
        for_each_leaf(self, dir, FileBlock(0), &mut |op: &mut Op<'_>, _, place, kind| {
            let id = op.buffer(place, kind.of(dir.owner))?;
            let here = op.room_in_leaf(id, name, wanted)?;
            room = room.or(here);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(room)
    }

    /// Searches one block for a name and for space for it. Fails with `Exists` if the name is there.
    ///
    /// The result of a full search is kept in a note, so that the next name needs no search: most new names are not in
    /// the block, and the space usually follows the last insertion. A note that does not exclude the name, because of a
    /// hash collision or a removed name, is rebuilt.
    pub(super) fn room_in_leaf(
        &mut self,
        id: BufferId,
        name: &[u8],
        wanted: &mut Wanted<'_>,
    ) -> Result<Option<Room>> {
        let is_plain = wanted.exact().is_some();
        let block = self.txn.data(id);
        if !is_plain && find_in_block(block, None, wanted).is_some() {
            return Err(Error::Exists);
        }
        let room_of = |found| match found {
            Search::Found(_) => Err(Error::Exists),
            Search::Full => Ok(None),
            Search::Room { offset, used, rec_len } => Ok(Some(Room { id, offset, used, rec_len })),
        };
        let note = self.txn.note(id).filter(|_| is_plain);
        if let Some((found, first_room)) =
            note.and_then(|note| dirent::search_noted(note, block, name))
        {
            let room = room_of(found);
            if let Some(note) = self.txn.note_mut(id) {
                dirent::note_first_room(note, first_room);
            }
            return room;
        }
        let room = room_of(dirent::search(block, name))?;
        if is_plain {
            let note = dirent::note(block);
            self.txn.set_note(id, note);
        }
        Ok(room)
    }

    /// Writes an entry after the used part of a record.
    pub(super) fn write_entry(&mut self, room: Room, entry: Entry<'_>) {
        let Room { id, offset, used, rec_len } = room;
        if let Some(note) = self.txn.note_mut(id) {
            dirent::note_entry(note, entry.name, (offset, used));
        }
        if used > 0 {
            dirent::write_rec_len(self.txn.edit_noted(id, offset + 4..offset + 6), used);
        }
        let code =
            if self.fs.volume.filetype { dirent::file_type_code(entry.file_type) } else { 0 };
        let start = offset + used;
        let end = start + dirent::HEADER_SIZE + entry.name.len();
        let bytes = self.txn.edit_noted(id, start..end);
        dirent::write_record(bytes, rec_len - used, entry.ino.0 as u32, code, entry.name);
    }

    /// Appends an empty leaf to a directory.
    pub(crate) fn append_leaf(&mut self, dir: &mut Handle) -> Outcome<(FileBlock, BufferId)> {
        let (number, block) = self.append_dir_block(dir)?;
        let id = self.txn.create(block.0, BlockKind::DirectoryLeaf.of(dir.owner))?;
        self.clear_leaf(id);
        Ok((number, id))
    }

    /// Makes a whole leaf one unused record.
    pub(super) fn clear_leaf(&mut self, id: BufferId) {
        let size = self.fs.volume.block_size();
        let tail = self.fs.volume.dir_tail_size();
        let bytes = self.txn.edit(id, 0..size);
        dirent::write_record(bytes, size - tail, 0, 0, &[]);
        if tail > 0 {
            dirent::write_tail(bytes);
        }
    }

    /// Appends a block without contents to a directory.
    pub(super) fn append_dir_block(&mut self, dir: &mut Handle) -> Outcome<(FileBlock, Block)> {
        let block_size = self.fs.volume.block_size() as u64;
        let number = u32::try_from(dir.inode.size() / block_size).map_err(|_| Error::NoSpace)?;
        let number = FileBlock(number);
        self.fill_hole(dir, number, 1, false)?;
        dir.inode.set_size(dir.inode.size() + block_size);
        Ok((number, self.dir_block(dir, number)?))
    }

    /// Gives a new directory its first block, with `.` and `..`.
    pub(crate) fn init_dir(&mut self, dir: &mut Handle, parent: Ino) -> Outcome<()> {
        let (_, id) = self.append_leaf(dir)?;
        let whole = self.fs.volume.block_size() - self.fs.volume.dir_tail_size();
        let dot = Entry { name: b".", ino: dir.ino(), file_type: FileType::Directory };
        self.write_entry(Room { id, offset: 0, used: 0, rec_len: whole }, dot);
        let used = dirent::record_size(1);
        let dot_dot = Entry { name: b"..", ino: parent, file_type: FileType::Directory };
        self.write_entry(Room { id, offset: 0, used, rec_len: whole }, dot_dot);
        Ok(())
    }
}
