//! Changing shortform directories, and converting them to block form and back.

use operations::Outcome;
use vfs::{FileType, Ino};

use super::change::{DirChange, NewBlock};
use super::find::short;
use super::{Entry, FoundInode};
use crate::format::address::FileBlock;
use crate::format::dir::data::NewEntry;
use crate::format::dir::leaf::{self, LeafEntry, Table};
use crate::format::dir::short::{self as format, COUNT_MAX, Short, ShortEntry};
use crate::format::dir::{DirBlockKind, DirLayout, data, file_type_code, file_type_of, magic};
use crate::format::edit::Edit;
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;

/// Stores a directory's bytes in its inode.
fn set_bytes(dir: &mut Handle, bytes: &[u8]) {
    let fork = dir.inode.fork_mut(Fork::Data);
    fork.fill(0);
    fork[..bytes.len()].copy_from_slice(bytes);
    dir.inode.set_size(bytes.len() as u64);
}

/// Picks an offset for a new entry: after the others if all entries still fit into a block then, otherwise in a gap.
fn pick_offset(layout: &DirLayout, short: &Short<'_>, size: usize) -> Option<usize> {
    let (mut end, mut gap) = (layout.first_entry(), None);
    for entry in short.entries() {
        if gap.is_none() && entry.offset >= end + size {
            gap = Some(end);
        }
        end = entry.offset + layout.entry_size(entry.name.len());
    }
    // The hash index would also have the new entry, `.` and `..`.
    let index = (short.count() + 3) * leaf::ENTRY_SIZE + leaf::TAIL_SIZE;
    let fits = |end: usize| end + index <= layout.size();
    if fits(end + size) { Some(end) } else { gap.filter(|_| fits(end)) }
}

impl DirChange<'_, '_> {
    /// Makes an inode without blocks an empty shortform directory.
    pub(super) fn init(&mut self, parent: Ino) {
        self.handle.inode.set_format(Fork::Data, ForkFormat::Local);
        set_bytes(self.handle, &format::build(&self.layout, parent, std::iter::empty()));
    }

    /// Adds an entry whose name is unused. Returns false if there is no room in the inode.
    pub(super) fn add_short(&mut self, entry: Entry<'_>) -> Outcome<bool> {
        let layout = self.layout;
        let short = short(&self.op.fs, self.handle)?;
        let size = layout.entry_size(entry.name.len());
        let Some(offset) = pick_offset(&layout, &short, size) else { return Ok(false) };
        let new = ShortEntry {
            offset,
            name: entry.name,
            ino: entry.ino,
            code: file_type_code(entry.file_type),
        };
        let is_before = |e: &ShortEntry<'_>| e.offset < offset;
        let before = short.entries().take_while(is_before);
        let behind = short.entries().skip_while(is_before);
        let all = before.chain(std::iter::once(new)).chain(behind);
        let bytes = format::build(&layout, short.parent(), all);
        if short.count() == COUNT_MAX || bytes.len() > self.handle.inode.fork(Fork::Data).len() {
            return Ok(false);
        }
        set_bytes(self.handle, &bytes);
        Ok(true)
    }

    /// Removes the entry with this offset.
    pub(super) fn remove_short(&mut self, offset: usize) -> Outcome<()> {
        let short = short(&self.op.fs, self.handle)?;
        let rest = short.entries().filter(|e| e.offset != offset);
        let bytes = format::build(&self.layout, short.parent(), rest);
        set_bytes(self.handle, &bytes);
        Ok(())
    }

    /// Changes the inode of the entry with this offset (also `..`). Returns false if there is no room.
    pub(super) fn replace_short(&mut self, offset: usize, entry: Entry<'_>) -> Outcome<bool> {
        let layout = self.layout;
        let short = short(&self.op.fs, self.handle)?;
        let parent = if offset == layout.dot_dot() { entry.ino } else { short.parent() };
        let code = file_type_code(entry.file_type);
        let entries = short
            .entries()
            .map(|e| if e.offset == offset { ShortEntry { ino: entry.ino, code, ..e } } else { e });
        let bytes = format::build(&layout, parent, entries);
        if bytes.len() > self.handle.inode.fork(Fork::Data).len() {
            return Ok(false);
        }
        set_bytes(self.handle, &bytes);
        Ok(true)
    }

    /// Converts a directory from shortform to block form. Entries keep their offsets.
    pub(crate) fn short_to_block(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let before = self.handle.clone();
        let short = short(&self.op.fs, &before)?;
        self.handle.inode.fork_mut(Fork::Data).fill(0);
        self.handle.inode.set_size(0);
        self.handle.inode.set_format(Fork::Data, ForkFormat::Extents);
        let buf = self.create(FileBlock(0), NewBlock::Data(magic::BLOCK))?;
        self.handle.inode.set_size(layout.size() as u64);
        let dot = |name, ino| NewEntry { name, ino, file_type: FileType::Directory };
        let dots = [
            (layout.header(), dot(b".".as_slice(), self.handle.ino())),
            (layout.dot_dot(), dot(b"..".as_slice(), short.parent())),
        ];
        // Type codes, which may be unknown ones, are copied unchanged below.
        let rest = short.entries().map(|e| {
            let file_type = e.file_type().unwrap_or(FileType::Regular);
            (e.offset, NewEntry { name: e.name, ino: e.ino, file_type })
        });
        let all = dots.into_iter().chain(rest);
        let mut index: Vec<LeafEntry> = all
            .clone()
            .map(|(offset, e)| LeafEntry {
                hash: layout.hash(e.name),
                address: layout.address(0, offset),
            })
            .collect();
        index.sort_unstable_by_key(|e| (e.hash, e.address));
        let end = layout.size() - leaf::TAIL_SIZE - index.len() * leaf::ENTRY_SIZE;
        let mut held = self.held(buf);
        data::fill(&layout, &mut held, end, all);
        for e in short.entries().filter(|e| layout.ftype && file_type_of(e.code).is_none()) {
            held.edit(e.offset + 9 + e.name.len()..e.offset + 10 + e.name.len())[0] = e.code;
        }
        let table = Table { start: end, count: index.len(), between: None };
        for (i, entry) in index.iter().enumerate() {
            leaf::set_entry(&mut held, &table, i, *entry);
        }
        leaf::set_block_tail(&layout, &mut held, index.len(), 0);
        Ok(())
    }

    /// Converts a directory from block form to shortform if it fits into the inode.
    pub(super) fn try_block_to_short(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let buf = self.buffer(FileBlock(0), DirBlockKind::Data)?;
        let room = self.handle.inode.fork(Fork::Data).len();
        let block = self.bytes(buf);
        let mut parent = None;
        let is_named = |e: &data::Dirent<'_>| e.name != b"." && e.name != b"..";
        for entry in data::entries(&layout, block).take(2).filter(|e| e.name == b"..") {
            parent = Some(entry.ino);
        }
        let Some(parent) = parent else {
            return Err(self.corrupt("directory block", "'..' is not its second entry"));
        };
        // Most blocks are far too large, so the sum stops as soon as it exceeds the room.
        let mut left = room;
        for entry in data::entries(&layout, block).filter(is_named) {
            let Some(rest) = left.checked_sub(3 + entry.name.len() + 4) else { return Ok(()) };
            left = rest;
        }
        let named: Vec<ShortEntry<'_>> = data::entries(&layout, block)
            .filter(is_named)
            .map(|e| ShortEntry {
                offset: e.offset,
                name: e.name,
                ino: e.ino,
                code: if layout.ftype { block[e.offset + 9 + e.name.len()] } else { 0 },
            })
            .collect();
        let size = format::size(&layout, parent, named.iter().map(|e| (e.name, e.ino)));
        if size > room || named.len() > COUNT_MAX {
            return Ok(());
        }
        let bytes = format::build(&layout, parent, named.iter().copied());
        self.free(FileBlock(0))?;
        self.handle.inode.set_format(Fork::Data, ForkFormat::Local);
        set_bytes(self.handle, &bytes);
        Ok(())
    }

    /// Looks a name up in a shortform directory.
    pub(super) fn find_short(&mut self, name: &[u8]) -> Outcome<Option<(FoundInode, usize)>> {
        Ok(self.view().find_short(name)?)
    }
}
