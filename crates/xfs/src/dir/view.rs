//! Blocks of a directory: found by their logical block, read, and held to be changed.

use std::cell::RefCell;
use std::ops::Range;

use transaction::BufferId;
use vfs::{Error, Result};

use super::buffers::LeafBuffers;
use super::state::Maps;
use crate::bmap::{self, Place};
use crate::format::address::{Block, FileBlock};
use crate::format::dir::{self as format, Layout, Part};
use crate::format::edit::Edit;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;
use crate::source::Source;

thread_local! {
    /// Memory for a directory block of several blocks that is only looked at: 64 KiB at most.
    static PIECES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The kind of block that a part of a directory's space has.
pub(super) const fn kind_of(part: Part) -> Kind {
    match part {
        Part::Data => Kind::DirData,
        Part::Leaf => Kind::DirLeaf,
        Part::Free => Kind::DirFree,
    }
}

/// A directory to be read: through the cache, or through an operation.
pub(super) struct View<'v, S: Source> {
    pub(super) source: &'v mut S,
    pub(super) dir: &'v Handle,
    pub(super) layout: Layout,
    /// Where its blocks are, as far as an operation has found out before.
    pub(super) maps: Option<&'v mut Maps>,
    /// What an operation that has it in its hands knows of the leaves.
    pub(super) buffers: Option<&'v LeafBuffers>,
}

impl<'v, S: Source> View<'v, S> {
    pub(super) fn new(source: &'v mut S, dir: &'v Handle) -> Self {
        let layout = Layout::new(&source.fs().volume.geometry);
        Self { source, dir, layout, maps: None, buffers: None }
    }

    /// Data blocks that the directory's size says it has, and holes among them.
    pub(super) fn data_blocks(&self) -> Result<u32> {
        data_blocks(self.dir, &self.layout)
    }

    /// Where a block of the file system is that belongs to the directory; `None` for a hole.
    fn place(&mut self, at: FileBlock) -> Result<Option<Block>> {
        let known = self.maps.as_ref().and_then(|maps| maps.get(&self.layout, at));
        if known.is_some() {
            return Ok(known);
        }
        let known = self.source.known_place(self.dir, &self.layout, at);
        if known.is_some() {
            return Ok(known);
        }
        let run = bmap::run_at(self.source, self.dir, Fork::Data, at)?;
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

    /// Lets `look` see a directory block. `None` if there is none.
    pub(super) fn with_if<T>(
        &mut self,
        at: FileBlock,
        part: Part,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        if self.layout.blocks() == 1 {
            let Some(place) = self.place(at)? else { return Ok(None) };
            let tag = kind_of(part).of_inode(self.dir.ino(), at.0 as u32);
            return self.source.with(place, tag, look).map(Some);
        }
        if let Some(data) = self.source.whole(self.dir.ino(), at) {
            return Ok(Some(look(data)));
        }
        // If a look leads to another one, that one finds no memory and takes its own.
        let mut data = PIECES.take();
        data.clear();
        let first = self.assemble_into(at, part, &mut data, |_| ())?;
        let seen = first.map(|_| look(&data));
        PIECES.set(data);
        Ok(seen)
    }

    /// Lets `look` see a directory block that must be there.
    pub(super) fn with<T>(
        &mut self,
        at: FileBlock,
        part: Part,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let missing = missing(self.dir, at);
        self.with_if(at, part, look)?.ok_or_else(missing)
    }

    /// Reads and checks a directory block of several blocks, and says where those are.
    pub(super) fn assemble(
        &mut self,
        at: FileBlock,
        part: Part,
    ) -> Result<Option<(Vec<Block>, Vec<u8>)>> {
        let mut data = Vec::with_capacity(self.layout.size());
        let mut places = Vec::with_capacity(self.layout.blocks() as usize);
        let first = self.assemble_into(at, part, &mut data, |place| places.push(place))?;
        Ok(first.map(|_| (places, data)))
    }

    /// Appends a directory block of several blocks to `data`, and checks it. Where its first block is;
    /// `None` if there is none.
    fn assemble_into(
        &mut self,
        at: FileBlock,
        part: Part,
        data: &mut Vec<u8>,
        mut note: impl FnMut(Block),
    ) -> Result<Option<Block>> {
        let mut first = None;
        for i in 0..u64::from(self.layout.blocks()) {
            let here = at.plus(i);
            let Some(place) = self.place(here)? else {
                return if i == 0 { Ok(None) } else { Err(missing(self.dir, here)()) };
            };
            let tag = Kind::Part.of_inode(self.dir.ino(), here.0 as u32);
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

/// Data blocks that a directory's size says it has, and holes among them.
pub(super) fn data_blocks(dir: &Handle, layout: &Layout) -> Result<u32> {
    let size = dir.inode.size();
    let count = size >> layout.size_log;
    if count == 0 || size & (layout.size() as u64 - 1) != 0 || count > layout.data_blocks_max() {
        return Err(dir.corrupt("directory", format!("its size is {size}")));
    }
    Ok(count as u32)
}

/// A block that something leads to and that is not there.
fn missing(dir: &Handle, at: FileBlock) -> impl FnOnce() -> Error + use<> {
    let ino = dir.ino();
    move || {
        let damage = vfs::Corruption::new("directory", format!("it has no block {at}"));
        damage.of_inode(ino.0).into()
    }
}

/// A directory block that an operation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirBuf {
    /// A block of the file system.
    One(BufferId),
    /// Several, of which the operation has a copy in one piece.
    Whole(usize),
}

/// A held block, to be changed.
pub(super) struct Held<'o, 'a> {
    op: &'o mut Op<'a>,
    buf: DirBuf,
}

impl Edit for Held<'_, '_> {
    fn bytes(&self) -> &[u8] {
        self.op.dir_bytes(self.buf)
    }

    fn edit(&mut self, range: Range<usize>) -> &mut [u8] {
        match self.buf {
            DirBuf::One(id) => self.op.txn.edit(id, range),
            DirBuf::Whole(index) => self.op.wholes.edit(index, range),
        }
    }

    fn shift(&mut self, source: Range<usize>, to: usize) {
        match self.buf {
            DirBuf::One(id) => self.op.txn.shift(id, source, to),
            DirBuf::Whole(index) => {
                let range = source.start.min(to)..source.end.max(to + source.len());
                let (from, to) = (source.start - range.start, to - range.start);
                let bytes = self.op.wholes.edit(index, range);
                bytes.copy_within(from..from + source.len(), to);
            }
        }
    }
}

impl<'a> Op<'a> {
    /// The bytes of a held block.
    pub(super) fn dir_bytes(&self, buf: DirBuf) -> &[u8] {
        match buf {
            DirBuf::One(id) => self.txn.data(id),
            DirBuf::Whole(index) => self.wholes.bytes(index),
        }
    }

    /// A held block, to be changed.
    pub(super) fn held(&mut self, buf: DirBuf) -> Held<'_, 'a> {
        Held { op: self, buf }
    }

    /// Holds a directory block that must be there.
    pub(super) fn dir_buffer(
        &mut self,
        dir: &Handle,
        maps: Option<&mut Maps>,
        at: FileBlock,
        part: Part,
    ) -> Result<DirBuf> {
        let mut view = View::new(self, dir);
        view.maps = maps;
        if view.layout.blocks() == 1 {
            let place = view.place(at)?.ok_or_else(missing(dir, at))?;
            let tag = kind_of(part).of_inode(dir.ino(), at.0 as u32);
            return Ok(DirBuf::One(self.buffer(place, tag)?));
        }
        if let Some(index) = view.source.wholes.position(dir.ino(), at) {
            return Ok(DirBuf::Whole(index));
        }
        let (places, data) = view.assemble(at, part)?.ok_or_else(missing(dir, at))?;
        Ok(DirBuf::Whole(self.wholes.add(dir.ino(), at, part, places, data)))
    }

    /// Adds a block to a directory, of zeros but for its header.
    pub(super) fn dir_new(
        &mut self,
        dir: &mut Handle,
        maps: Option<&mut Maps>,
        at: FileBlock,
        kind: NewBlock,
    ) -> Result<DirBuf> {
        let geometry = self.fs.volume.geometry;
        let layout = Layout::new(&geometry);
        let start = self.map_new(dir, Fork::Data, at, layout.blocks())?;
        let first = geometry.device_block(start);
        let part = kind.part();
        let buf = if layout.blocks() == 1 {
            if let Some(maps) = maps {
                maps.set(&layout, at, first, dir.inode.nblocks());
            }
            let tag = kind_of(part).of_inode(dir.ino(), at.0 as u32);
            DirBuf::One(self.txn.create(first.0, tag)?)
        } else {
            let places: Vec<_> =
                (0..layout.blocks()).map(|i| Block(first.0 + u64::from(i))).collect();
            for (i, place) in places.iter().enumerate() {
                let tag = Kind::Part.of_inode(dir.ino(), at.0 as u32 + i as u32);
                self.txn.create(place.0, tag)?;
            }
            DirBuf::Whole(self.wholes.add(dir.ino(), at, part, places, vec![0; layout.size()]))
        };
        let ino = dir.ino();
        let mut held = self.held(buf);
        let bytes = held.edit(0..layout.header());
        match kind {
            NewBlock::Data(magic) | NewBlock::Free(magic) => {
                format::init_dir(&geometry, ino, first, magic, bytes);
            }
            NewBlock::Leaf(magic) => format::init_da(&geometry, ino, first, magic, bytes),
        }
        Ok(buf)
    }

    /// Takes a block from a directory.
    pub(super) fn dir_drop(
        &mut self,
        dir: &mut Handle,
        maps: Option<&mut Maps>,
        at: FileBlock,
    ) -> Result<()> {
        let layout = self.dir_layout();
        self.wholes.forget(dir.ino(), at);
        if let Some(maps) = maps {
            maps.clear(&layout, at);
        }
        self.unmap(dir, Fork::Data, at..at.plus(layout.blocks().into()))
    }

    pub(super) fn dir_layout(&self) -> Layout {
        Layout::new(&self.fs.volume.geometry)
    }
}

/// What a new directory block is, with its magic number.
#[derive(Clone, Copy)]
pub(super) enum NewBlock {
    Data([u32; 2]),
    Leaf([u16; 2]),
    Free([u32; 2]),
}

impl NewBlock {
    const fn part(self) -> Part {
        match self {
            Self::Data(_) => Part::Data,
            Self::Leaf(_) => Part::Leaf,
            Self::Free(_) => Part::Free,
        }
    }
}
