//! Reading a directory: finds its blocks by their logical block number and checks them.

use std::cell::RefCell;

use vfs::{Error, Ino, Result};

use super::insert_buffer::InsertBuffer;
use super::maps::Maps;
use super::tag::tag_of;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::{self as format, DirBlockKind, DirLayout};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::{self, Place};
use crate::op::source::Source;

thread_local! {
    /// Buffer for reading a directory block of several file-system blocks: at most 64 KiB.
    static PIECES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A directory read through the cache or through an operation.
pub(super) struct View<'v, S: Source> {
    pub(super) source: &'v mut S,
    pub(super) dir: &'v Handle,
    pub(super) layout: DirLayout,
    /// Known locations of its blocks, from the state taken by an operation.
    pub(super) maps: Option<&'v mut Maps>,
    /// The insert buffer of the state taken by an operation.
    pub(super) insert_buffer: Option<&'v InsertBuffer>,
}

impl<'v, S: Source> View<'v, S> {
    pub(super) fn new(source: &'v mut S, dir: &'v Handle) -> Self {
        let layout = DirLayout::new(&source.fs().volume.geometry);
        Self { source, dir, layout, maps: None, insert_buffer: None }
    }

    /// Returns the number of data blocks within the directory's size, including holes.
    pub(super) fn data_blocks(&self) -> Result<u32> {
        data_blocks(self.dir, &self.layout)
    }

    /// Returns the location of a file-system block of the directory; `None` for a hole.
    pub(super) fn place(&mut self, at: FileBlock) -> Result<Option<Block>> {
        let known = self.maps.as_ref().and_then(|maps| maps.get(&self.layout, at));
        if known.is_some() {
            return Ok(known);
        }
        let known = self.source.known_place(self.dir, &self.layout, at);
        if known.is_some() {
            return Ok(known);
        }
        let run = map::run_at(self.source, self.dir, Fork::Data, at)?;
        let start = match run.place {
            Place::Written(start) => start,
            Place::Unwritten(_) => {
                return Err(self.dir.corrupt("directory", format!("block {at} is unwritten")));
            }
            Place::Hole => return Ok(None),
        };
        let block = self.source.fs().volume.geometry.device_block(start);
        if let Some(maps) = &mut self.maps {
            maps.set(&self.layout, at, block, self.dir.inode.nblocks());
        }
        Ok(Some(block))
    }

    /// Calls `look` with a directory block. Returns `None` if there is none.
    pub(super) fn with_if<T>(
        &mut self,
        at: FileBlock,
        part: DirBlockKind,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        if self.layout.blocks() == 1 {
            let Some(place) = self.place(at)? else { return Ok(None) };
            let tag = tag_of(part, self.dir.ino(), at);
            return self.source.with(place, tag, look).map(Some);
        }
        if let Some(data) = self.source.whole(self.dir.ino(), at) {
            return Ok(Some(look(data)));
        }
        // A nested call finds this buffer empty and allocates its own.
        let mut data = PIECES.take();
        data.clear();
        let first = self.assemble_into(at, part, &mut data, |_| ())?;
        let seen = first.map(|_| look(&data));
        PIECES.set(data);
        Ok(seen)
    }

    /// Calls `look` with a directory block, which must exist.
    pub(super) fn with<T>(
        &mut self,
        at: FileBlock,
        part: DirBlockKind,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let missing = missing(self.dir.ino(), at);
        self.with_if(at, part, look)?.ok_or_else(missing)
    }

    /// Reads and checks a directory block of several file-system blocks, and returns their locations.
    pub(super) fn assemble(
        &mut self,
        at: FileBlock,
        part: DirBlockKind,
    ) -> Result<Option<(Vec<Block>, Vec<u8>)>> {
        let mut data = Vec::with_capacity(self.layout.size());
        let mut places = Vec::with_capacity(self.layout.blocks() as usize);
        let first = self.assemble_into(at, part, &mut data, |place| places.push(place))?;
        Ok(first.map(|_| (places, data)))
    }

    /// Appends a directory block of several file-system blocks to `data`, and checks it. Returns the location of its
    /// first block; `None` if there is none.
    fn assemble_into(
        &mut self,
        at: FileBlock,
        part: DirBlockKind,
        data: &mut Vec<u8>,
        mut note: impl FnMut(Block),
    ) -> Result<Option<Block>> {
        let mut first = None;
        for i in 0..u64::from(self.layout.blocks()) {
            let here = at.plus(i);
            let Some(place) = self.place(here)? else {
                return if i == 0 { Ok(None) } else { Err(missing(self.dir.ino(), here)()) };
            };
            let tag = BlockKind::Part.of_inode(self.dir.ino(), here.0 as u32);
            self.source.with(place, tag, |bytes| data.extend_from_slice(bytes))?;
            first.get_or_insert(place);
            note(place);
        }
        let geometry = self.source.geometry();
        let place = first.unwrap_or_default();
        format::verify(&geometry, part, (self.dir.ino(), at.0 as u32), place, data)
            .map_err(|c| c.at_block(place.0))?;
        Ok(first)
    }
}

/// Returns the number of data blocks within a directory's size, including holes.
pub(super) fn data_blocks(dir: &Handle, layout: &DirLayout) -> Result<u32> {
    let size = dir.inode.size();
    let count = size >> layout.size_log;
    if count == 0 || size & (layout.size() as u64 - 1) != 0 || count > layout.data_blocks_max() {
        return Err(dir.corrupt("directory", format!("its size is {size}")));
    }
    Ok(count as u32)
}

/// Returns the error for a block that is referenced but missing.
pub(super) fn missing(dir: Ino, at: FileBlock) -> impl FnOnce() -> Error {
    move || {
        let damage = vfs::Corruption::new("directory", format!("it has no block {at}"));
        damage.of_inode(dir.0).into()
    }
}
