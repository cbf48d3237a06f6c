//! Names in the unused ranges of directories, in the log, and in free blocks.
//!
//! Removing an entry overwrites its first four bytes with the mark and the length of the unused range: the upper half of
//! the inode number. The last two bytes become the offset of the range. The lower half of the inode number, the name
//! and the type stay. An entry that is joined to an unused range before it keeps all bytes except for the last two of the
//! whole range. A valid tag, or the end of a range, identifies an entry.

use vfs::deleted::{DeletedData, DeletedName, DeletedSource, InodeState, is_name};
use vfs::{Ino, Result};

use super::Search;
use crate::format::address::{AgBlock, AgNumber, Block, FileBlock};
use crate::format::bytes::{be16, be32, be64};
use crate::format::dir::{ALIGN, DirLayout, file_type_of, magic};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode, MAGIC};
use crate::format::log::Lsn;
use crate::format::log::buffer::BufferType;
use crate::format::log::buffer_item::BufferItem;
use crate::inode::Handle;
use crate::map::{self, Place};

/// Mark at the start of an unused range.
const UNUSED: u16 = 0xffff;
/// Byte offsets in the header of a directory block of version 5.
const BLKNO: usize = 8;
const UUID: std::ops::Range<usize> = 24..40;
const OWNER: usize = 40;
/// Size of the header of a shortform directory without the parent, in bytes.
const SHORT_HEADER: usize = 2;

/// An entry, in use or removed.
struct FoundEntry {
    ino: u64,
    name: Vec<u8>,
    code: u8,
    size: usize,
}

/// Reader of entries in bytes that need not be a valid directory block.
struct EntryReader<'g> {
    layout: DirLayout,
    geometry: &'g Geometry,
}

impl EntryReader<'_> {
    /// Returns the entry at `at`. `range_end` is the end of the unused range that contains it, and `range_start` the tag
    /// at the end of that range.
    fn entry(&self, block: &[u8], at: usize, range: Option<(usize, usize)>) -> Option<FoundEntry> {
        let rest = block.get(at..)?;
        let name_len = usize::from(*rest.get(8)?);
        let size = self.layout.entry_size(name_len);
        let name = rest.get(9..9 + name_len).filter(|name| is_name(name))?;
        let tag = usize::from(be16(rest.get(size - 2..size)?, 0));
        let is_tagged =
            tag == at || range.is_some_and(|(start, end)| at + size == end && tag == start);
        let code = if self.layout.ftype { *rest.get(9 + name_len)? } else { 0 };
        let is_type = if self.layout.ftype { (1..=8).contains(&code) } else { code == 0 };
        let stored = be64(rest, 0);
        // The mark and the length replace the upper half.
        let ino = if be16(rest, 0) == UNUSED { stored & u64::from(u32::MAX) } else { stored };
        let is_inode = self.geometry.split_ino(Ino(ino)).is_some();
        (is_tagged && is_type && is_inode).then(|| FoundEntry {
            ino,
            name: name.to_vec(),
            code,
            size,
        })
    }

    /// Calls `each` with the removed entries of a data block.
    fn removed(&self, block: &[u8], each: &mut dyn FnMut(FoundEntry)) {
        let end = self.end(block);
        let mut at = self.layout.header();
        while at + ALIGN <= end {
            if be16(block, at) == UNUSED {
                let len = usize::from(be16(block, at + 2));
                if len < ALIGN || !len.is_multiple_of(ALIGN) || len > end - at {
                    return;
                }
                self.scan(block, at..at + len, Some((at, at + len)), each);
                at += len;
            } else {
                let Some(name_len) = block.get(at + 8) else { return };
                at += self.layout.entry_size((*name_len).into());
            }
        }
    }

    /// Calls `each` with all entries in a range, also removed ones.
    fn scan(
        &self,
        block: &[u8],
        range: std::ops::Range<usize>,
        unused: Option<(usize, usize)>,
        each: &mut dyn FnMut(FoundEntry),
    ) {
        let mut at = range.start.next_multiple_of(ALIGN);
        while at + self.layout.entry_size(1) <= range.end {
            match self.entry(block.get(..range.end).unwrap_or_default(), at, unused) {
                Some(entry) => {
                    at += entry.size;
                    each(entry);
                }
                None => at += ALIGN,
            }
        }
    }

    /// Returns the end of the entries: in block form, the start of the hash index.
    fn end(&self, block: &[u8]) -> usize {
        if !magic::BLOCK.contains(&be32(block, 0)) {
            return block.len();
        }
        let tail = block.len() - 8;
        tail.saturating_sub((be32(block, tail) as usize).saturating_mul(8))
            .max(self.layout.header())
    }

    /// Calls `each` with everything in the bytes of a shortform directory from `from` on that can be an entry.
    fn scan_short(&self, bytes: &[u8], from: usize, each: &mut dyn FnMut(FoundEntry)) {
        let ino_size = if bytes.get(1).is_some_and(|wide| *wide > 0) { 8 } else { 4 };
        let types = usize::from(self.layout.ftype);
        let mut at = from;
        while at < bytes.len() {
            match self.short_entry(&bytes[at..], ino_size, types) {
                Some(entry) => {
                    at += entry.size;
                    each(entry);
                }
                None => at += 1,
            }
        }
    }

    fn short_entry(&self, rest: &[u8], ino_size: usize, types: usize) -> Option<FoundEntry> {
        let name_len = usize::from(*rest.first()?);
        let size = 3 + name_len + types + ino_size;
        let entry = rest.get(..size)?;
        let offset = usize::from(be16(entry, 1));
        let name = &entry[3..3 + name_len];
        let code = if types == 1 { entry[3 + name_len] } else { 0 };
        let number = &entry[3 + name_len + types..];
        let ino = if ino_size == 8 { be64(number, 0) } else { be32(number, 0).into() };
        let is_sound = is_name(name)
            && offset.is_multiple_of(ALIGN)
            && (self.layout.first_entry()..self.layout.size()).contains(&offset)
            && (types == 0 || (1..=8).contains(&code))
            && self.geometry.split_ino(Ino(ino)).is_some();
        is_sound.then(|| FoundEntry { ino, name: name.to_vec(), code, size })
    }
}

impl Search<'_> {
    fn reader(&self) -> EntryReader<'_> {
        let geometry = self.fs.geometry();
        EntryReader { layout: DirLayout::new(geometry), geometry }
    }

    /// Reports the removed names of a directory in use.
    pub(super) fn live_directory(&mut self, dir: &Handle) {
        if dir.inode.format() == ForkFormat::Local {
            let mut found = Vec::new();
            let from = usize::try_from(dir.inode.size()).unwrap_or(usize::MAX);
            let bytes = dir.inode.fork(Fork::Data);
            self.reader().scan_short(bytes, from.min(bytes.len()), &mut |one| found.push(one));
            return self.tell(Some(dir.ino()), found, DeletedSource::Slack { block: None });
        }
        if let Err(error) = self.live_blocks(dir) {
            self.remark(format_args!("directory {}", dir.ino()), &error);
        }
    }

    fn live_blocks(&mut self, dir: &Handle) -> Result<()> {
        let layout = DirLayout::new(self.fs.geometry());
        let mut source = self.fs;
        let end = layout.leaf_first();
        let mut at = FileBlock(0);
        let mut parts = Vec::new();
        while at < end {
            let run = map::run_at(&mut source, dir, Fork::Data, at)?;
            let len = run.len.min(end.0 - at.0);
            at = at.plus(len);
            let Place::Written(start) = run.place else { continue };
            let start = self.fs.geometry().device_block(start);
            for nth in 0..len {
                if !self.spend(1) {
                    return Err(dir.corrupt("directory", "directories have too many blocks"));
                }
                parts.push(Block(start.0 + nth));
                if parts.len() == layout.blocks() as usize {
                    self.slack(dir.ino(), &std::mem::take(&mut parts))?;
                }
            }
        }
        Ok(())
    }

    fn slack(&mut self, dir: Ino, parts: &[Block]) -> Result<()> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend(self.current_block(*part)?);
        }
        let block = parts.first().map(|part| part.0);
        let mut found = Vec::new();
        self.reader().removed(&bytes, &mut |one| found.push(one));
        self.tell(Some(dir), found, DeletedSource::Slack { block });
        Ok(())
    }

    /// Reports the names that the area after the core of a freed inode contains, if it was a shortform directory.
    /// Returns whether there are any.
    pub(super) fn leftover_names(&mut self, ino: Ino, inode: &Inode) -> bool {
        let area = &inode.as_bytes()[inode.core_size()..];
        let parent_size = if area[1] > 0 { 8 } else { 4 };
        let parent = if parent_size == 8 { be64(area, 2) } else { be32(area, 2).into() };
        if self.fs.geometry().split_ino(Ino(parent)).is_none() {
            return false;
        }
        let mut found = Vec::new();
        self.reader().scan_short(area, SHORT_HEADER + parent_size, &mut |one| found.push(one));
        let has_names = !found.is_empty();
        self.tell(Some(ino), found, DeletedSource::Slack { block: None });
        has_names
    }

    /// Reports the names in a directory that is not in use.
    pub(super) fn deleted_directory(
        &mut self,
        ino: Ino,
        inode: &Inode,
        data: &DeletedData,
        state: InodeState,
        is_freed: bool,
    ) {
        if !is_freed && inode.format() == ForkFormat::Local {
            let mut found = Vec::new();
            let bytes = inode.fork(Fork::Data);
            self.reader().scan_short(bytes, SHORT_HEADER, &mut |one| found.push(one));
            return self.tell(Some(ino), found, DeletedSource::Slack { block: None });
        }
        let layout = DirLayout::new(self.fs.geometry());
        for run in data.runs().iter().filter(|run| run.first < layout.leaf_first().0) {
            for start in (run.start..run.start + run.len).step_by(layout.blocks() as usize) {
                let is_own = state == InodeState::Orphan || self.sink.is_free(start);
                if !self.spend(1) || !is_own {
                    continue;
                }
                self.directory_block(Block(start), Some(ino));
            }
        }
    }

    /// Reports the names in a block that still is a directory block, of any or of the given directory.
    fn directory_block(&mut self, start: Block, dir: Option<Ino>) {
        let layout = DirLayout::new(self.fs.geometry());
        let end = start.0.saturating_add(layout.blocks().into());
        if end > self.fs.geometry().blocks {
            return;
        }
        let Ok(bytes) = self.read(self.evidence, start, layout.blocks() as usize) else { return };
        let Some(owner) = self.stated_owner(&layout, &bytes) else { return };
        if layout.crc && (dir.is_some_and(|dir| dir != owner) || !self.is_at(&bytes, start)) {
            return;
        }
        let owner = if layout.crc { Some(owner) } else { dir };
        let reader = self.reader();
        let end = reader.end(&bytes);
        let mut found = Vec::new();
        reader.scan(&bytes, layout.header()..end, None, &mut |one| found.push(one));
        reader.removed(&bytes, &mut |one| found.push(one));
        self.tell(owner, found, DeletedSource::Free { block: start.0 });
    }

    fn is_at(&self, bytes: &[u8], start: Block) -> bool {
        let geometry = self.fs.geometry();
        be64(bytes, BLKNO) == geometry.daddr(start) && bytes[UUID] == geometry.meta_uuid
    }

    /// Returns the owner in the header of a directory data block; 0 in version 4. `None` for other blocks.
    pub(super) fn stated_owner(&self, layout: &DirLayout, bytes: &[u8]) -> Option<Ino> {
        let version = usize::from(!layout.crc);
        let found = be32(bytes, 0);
        if found != magic::BLOCK[version] && found != magic::DATA[version] {
            return None;
        }
        Some(Ino(if layout.crc { be64(bytes, OWNER) } else { 0 }))
    }

    /// Reports the names in free blocks that contain directory blocks, and the inodes in those of freed chunks.
    pub(super) fn free_blocks(&mut self, ag: AgNumber) {
        let geometry = *self.fs.geometry();
        let layout = DirLayout::new(&geometry);
        for number in 0..geometry.ag_len(ag) {
            let place = geometry.block_of(ag, AgBlock(number));
            if !self.sink.is_free(place.0) {
                continue;
            }
            let Ok(bytes) = self.block(place) else { continue };
            if be16(&bytes, 0) == MAGIC {
                self.freed_inodes(ag, AgBlock(number), &bytes);
            } else if self.stated_owner(&layout, &bytes).is_some() {
                self.directory_block(place, None);
            }
        }
    }

    /// Reports the names in a buffer in the log.
    pub(super) fn logged_names(&mut self, item: &BufferItem<'_>, at: Lsn) {
        let kind = item.contents();
        if !matches!(kind, BufferType::DirBlock | BufferType::DirData) {
            return;
        }
        let Ok(chunks) = item.chunks() else { return };
        let geometry = *self.fs.geometry();
        let layout = DirLayout::new(&geometry);
        if item.len() != layout.size() {
            return;
        }
        let mut bytes = vec![0; layout.size()];
        for (offset, chunk) in &chunks {
            bytes[*offset..*offset + chunk.len()].copy_from_slice(chunk);
        }
        let dir = self.owner_of_buffer(&layout, &bytes, item.daddr);
        let mut found = Vec::new();
        // Runs of chunks are scanned together, because entries cross their boundaries.
        let mut from = 0;
        while from < chunks.len() {
            let (start, mut end) = (chunks[from].0, chunks[from].0 + chunks[from].1.len());
            from += 1;
            while from < chunks.len() && chunks[from].0 == end {
                end += chunks[from].1.len();
                from += 1;
            }
            let start = start.max(layout.header());
            self.reader().scan(&bytes, start..end, None, &mut |one| found.push(one));
        }
        let source = DeletedSource::Log { block: at.block.into(), sequence: at.cycle.into() };
        self.tell(dir, found, source);
    }

    /// Reports the names in an image of a shortform directory in the log.
    pub(super) fn logged_short_names(&mut self, ino: Ino, dir: &Inode, at: Lsn) {
        let size = usize::try_from(dir.size()).unwrap_or(usize::MAX);
        let bytes = dir.fork(Fork::Data);
        let mut found = Vec::new();
        let bytes = bytes.get(..size).unwrap_or(bytes);
        self.reader().scan_short(bytes, SHORT_HEADER, &mut |one| found.push(one));
        let source = DeletedSource::Log { block: at.block.into(), sequence: at.cycle.into() };
        self.tell(Some(ino), found, source);
    }

    /// Returns the directory of a logged buffer, from its header in the log or on the device.
    fn owner_of_buffer(&self, layout: &DirLayout, bytes: &[u8], daddr: u64) -> Option<Ino> {
        if !layout.crc {
            return None;
        }
        if let Some(owner) = self.stated_owner(layout, bytes) {
            return Some(owner);
        }
        let geometry = self.fs.geometry();
        let block = daddr >> (geometry.block_log - 9);
        if block >= geometry.blocks {
            return None;
        }
        let bytes = self.block(Block(block)).ok()?;
        let is_here = self.is_at(&bytes, Block(block));
        self.stated_owner(layout, &bytes).filter(|_| is_here)
    }

    fn tell(&mut self, dir: Option<Ino>, found: Vec<FoundEntry>, source: DeletedSource) {
        for FoundEntry { ino, name, code, .. } in found {
            let (ino, file_type) = (Some(Ino(ino)), file_type_of(code));
            self.sink.name(DeletedName { dir, name, ino, file_type, source });
        }
    }
}
