//! A directory that an operation changes, and its blocks held by the operation.

use operations::{Interrupt, Outcome};
use std::ops::Range;

use engine::BufferId;
use vfs::Ino;

use super::maps::Maps;
use super::tag::tag_of;
use super::view::{View, missing};
use super::whole::Wholes;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::{self as format, DirBlockKind, DirLayout};
use crate::format::edit::Edit;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;
use crate::op::held::HeldBlock;

/// A directory that an operation changes.
pub(crate) struct DirChange<'o, 'a> {
    pub(super) op: &'o mut Op<'a>,
    pub(super) handle: &'o mut Handle,
    pub(super) layout: DirLayout,
    /// Known locations of the directory's blocks, from its state. `None` without a state.
    pub(super) maps: Option<&'o mut Maps>,
}

impl<'o, 'a> DirChange<'o, 'a> {
    pub(crate) fn new(op: &'o mut Op<'a>, handle: &'o mut Handle) -> Self {
        let layout = DirLayout::new(&op.fs.volume.geometry);
        Self { op, handle, layout, maps: None }
    }

    pub(super) fn ino(&self) -> Ino {
        self.handle.ino()
    }

    /// Returns a corruption error about the directory.
    pub(super) fn corrupt(&self, structure: &'static str, problem: impl Into<String>) -> Interrupt {
        self.handle.corrupt(structure, problem).into()
    }

    /// Returns a view of the directory that reads through the operation.
    pub(super) fn view(&mut self) -> View<'_, Op<'a>> {
        View {
            source: self.op,
            dir: self.handle,
            layout: self.layout,
            maps: self.maps.as_deref_mut(),
            insert_buffer: None,
        }
    }

    /// Returns the bytes of a held block.
    pub(super) fn bytes(&self, buf: DirBufferId) -> &[u8] {
        match buf {
            DirBufferId::One(id) => self.op.txn.data(id),
            DirBufferId::Whole(index) => self.op.wholes.bytes(index),
        }
    }

    /// Returns a held block for changing.
    pub(super) fn held(&mut self, buf: DirBufferId) -> HeldDirBlock<'_, 'a> {
        match buf {
            DirBufferId::One(id) => HeldDirBlock::One(HeldBlock { txn: &mut self.op.txn, id }),
            DirBufferId::Whole(index) => HeldDirBlock::Whole(&mut self.op.wholes, index),
        }
    }

    /// Holds a directory block, which must exist.
    pub(super) fn buffer(&mut self, at: FileBlock, part: DirBlockKind) -> Outcome<DirBufferId> {
        let ino = self.ino();
        let mut view = self.view();
        if view.layout.blocks() == 1 {
            let place = view.place(at)?.ok_or_else(missing(ino, at))?;
            return Ok(DirBufferId::One(self.op.buffer(place, tag_of(part, ino, at))?));
        }
        if let Some(index) = view.source.wholes.position(ino, at) {
            return Ok(DirBufferId::Whole(index));
        }
        let (places, data) = view.assemble(at, part)?.ok_or_else(missing(ino, at))?;
        Ok(DirBufferId::Whole(self.op.wholes.add(ino, at, part, places, data)))
    }

    /// Adds a block to the directory, zeroed except for its header.
    pub(super) fn create(&mut self, at: FileBlock, kind: NewBlock) -> Outcome<DirBufferId> {
        let (geometry, layout) = (self.op.fs.volume.geometry, self.layout);
        let start = self.op.map_new(self.handle, Fork::Data, at, layout.blocks())?;
        let first = geometry.device_block(start);
        let (ino, part) = (self.ino(), kind.part());
        let buf = if layout.blocks() == 1 {
            if let Some(maps) = &mut self.maps {
                maps.set(&layout, at, first, self.handle.inode.nblocks());
            }
            DirBufferId::One(self.op.txn.create(first.0, tag_of(part, ino, at))?)
        } else {
            let places: Vec<_> =
                (0..layout.blocks()).map(|i| Block(first.0 + u64::from(i))).collect();
            for (i, place) in places.iter().enumerate() {
                let tag = BlockKind::Part.of_inode(ino, at.0 as u32 + i as u32);
                self.op.txn.create(place.0, tag)?;
            }
            let data = vec![0; layout.size()];
            DirBufferId::Whole(self.op.wholes.add(ino, at, part, places, data))
        };
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

    /// Removes a block from the directory and frees it.
    pub(super) fn free(&mut self, at: FileBlock) -> Outcome<()> {
        let layout = self.layout;
        self.op.wholes.forget(self.handle.ino(), at);
        if let Some(maps) = &mut self.maps {
            maps.clear(&layout, at);
        }
        self.op.unmap(self.handle, Fork::Data, at..at.plus(layout.blocks().into()))
    }
}

/// A directory block held by an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirBufferId {
    /// One file-system block.
    One(BufferId),
    /// Index of a contiguous copy of several file-system blocks.
    Whole(usize),
}

/// A directory block held by an operation for changing.
pub(super) enum HeldDirBlock<'h, 'a> {
    One(HeldBlock<'h, 'a>),
    Whole(&'h mut Wholes, usize),
}

impl Edit for HeldDirBlock<'_, '_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::One(block) => block.bytes(),
            Self::Whole(wholes, index) => wholes.bytes(*index),
        }
    }

    fn edit(&mut self, range: Range<usize>) -> &mut [u8] {
        match self {
            Self::One(block) => block.edit(range),
            Self::Whole(wholes, index) => wholes.edit(*index, range),
        }
    }

    fn shift(&mut self, source: Range<usize>, to: usize) {
        match self {
            Self::One(block) => block.shift(source, to),
            Self::Whole(wholes, index) => {
                let range = source.start.min(to)..source.end.max(to + source.len());
                let (from, to) = (source.start - range.start, to - range.start);
                let bytes = wholes.edit(*index, range);
                bytes.copy_within(from..from + source.len(), to);
            }
        }
    }
}

/// The kind of a new directory block, with its magic number.
#[derive(Clone, Copy)]
pub(super) enum NewBlock {
    Data([u32; 2]),
    Leaf([u16; 2]),
    Free([u32; 2]),
}

impl NewBlock {
    const fn part(self) -> DirBlockKind {
        match self {
            Self::Data(_) => DirBlockKind::Data,
            Self::Leaf(_) => DirBlockKind::Leaf,
            Self::Free(_) => DirBlockKind::Free,
        }
    }
}
