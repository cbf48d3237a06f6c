//! A directory that an operation changes, and the blocks of it that the operation holds.

use operation::{Interrupt, Outcome};
use std::ops::Range;

use transaction::BufferId;
use vfs::{Error, Ino};

use super::find::DirForm;
use super::node::NodeChange;
use super::state::{DirState, Maps};
use super::view::{View, missing, tag_of};
use super::whole::Wholes;
use super::{Entry, Found, Spot};
use crate::format::address::{Block, FileBlock};
use crate::format::dir::data;
use crate::format::dir::{self as format, Layout, Part};
use crate::format::edit::Edit;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;
use crate::op::held::HeldBlock;

/// Most steps from one form to another that one entry can bring about.
const STEPS_MAX: usize = 4;

/// A directory that an operation changes.
pub(crate) struct DirChange<'o, 'a> {
    pub(super) op: &'o mut Op<'a>,
    pub(super) handle: &'o mut Handle,
    pub(super) layout: Layout,
    /// Where the directory's blocks are, as far as its state knows. `None` without a state.
    pub(super) maps: Option<&'o mut Maps>,
}

impl<'o, 'a> DirChange<'o, 'a> {
    pub(crate) fn new(op: &'o mut Op<'a>, handle: &'o mut Handle) -> Self {
        let layout = Layout::new(&op.fs.volume.geometry);
        Self { op, handle, layout, maps: None }
    }

    pub(super) fn ino(&self) -> Ino {
        self.handle.ino()
    }

    /// Damage of the directory.
    pub(super) fn corrupt(&self, structure: &'static str, problem: impl Into<String>) -> Interrupt {
        self.handle.corrupt(structure, problem).into()
    }

    /// The directory as the operation reads it.
    pub(super) fn view(&mut self) -> View<'_, Op<'a>> {
        View {
            source: self.op,
            dir: self.handle,
            layout: self.layout,
            maps: self.maps.as_deref_mut(),
            insert_buffer: None,
        }
    }

    fn form(&mut self) -> Outcome<DirForm> {
        if self.op.dirs.has(self.handle) {
            return Ok(DirForm::Node);
        }
        Ok(self.view().form()?)
    }

    /// Adds an entry. `Exists` if the name is taken.
    pub(super) fn add(&mut self, entry: Entry<'_>) -> Outcome<()> {
        for _ in 0..STEPS_MAX {
            match self.form()? {
                DirForm::Short => {
                    if self.find_short(entry.name)?.is_some() {
                        return Err(Error::Exists.into());
                    }
                    if self.add_short(entry)? {
                        return Ok(());
                    }
                    self.short_to_block()?;
                }
                DirForm::Block => {
                    if self.add_block(entry)? {
                        return Ok(());
                    }
                    self.block_to_leaf()?;
                }
                DirForm::Leaf => {
                    if self.add_leaf(entry)? {
                        return Ok(());
                    }
                    self.leaf_to_node()?;
                }
                DirForm::Node => return self.with_nodes(|nodes| nodes.add(entry)),
            }
        }
        Err(self.corrupt("directory", "an entry fits into no form"))
    }

    /// Removes an entry and returns what it led to.
    pub(super) fn remove(&mut self, name: &[u8], hint: Option<&Spot>) -> Outcome<Found> {
        match self.form()? {
            DirForm::Short => {
                let (found, offset) = self.find_short(name)?.ok_or(Error::NotFound)?;
                self.remove_short(offset)?;
                Ok(found)
            }
            DirForm::Block => self.remove_block(name),
            DirForm::Leaf => self.remove_leaf(name),
            DirForm::Node => self.with_nodes(|nodes| nodes.remove(name, hint)),
        }
    }

    /// Makes an existing name lead elsewhere, and returns what it led to.
    pub(super) fn replace(&mut self, entry: Entry<'_>) -> Outcome<Found> {
        let form = self.form()?;
        if form == DirForm::Short {
            let (found, offset) = self.find_short(entry.name)?.ok_or(Error::NotFound)?;
            if self.replace_short(offset, entry)? {
                return Ok(found);
            }
            // A larger inode number does not fit into the inode.
            self.short_to_block()?;
        }
        let layout = self.layout;
        let spot = match form {
            DirForm::Short | DirForm::Block => self.view().find_in_block(entry.name)?,
            DirForm::Leaf | DirForm::Node => self.view().search(entry.name)?.spot,
        };
        let spot = spot.ok_or(Error::NotFound)?;
        let buf = self.buffer(layout.data_at(spot.number), Part::Data)?;
        data::replace(&layout, &mut self.held(buf), spot.offset, &entry.into());
        Ok(spot.found)
    }

    /// Runs `body` on a directory of node form with its state, which is read if none is kept.
    fn with_nodes<T>(
        &mut self,
        body: impl FnOnce(&mut NodeChange<'_, 'a>) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut state = self.take_state()?;
        let DirState { maps, nodes, .. } = &mut *state;
        let dir =
            DirChange { op: self.op, handle: self.handle, layout: self.layout, maps: Some(maps) };
        let outcome = body(&mut NodeChange { dir, state: nodes });
        self.op.dirs.give(state);
        outcome
    }

    /// The bytes of a held block.
    pub(super) fn bytes(&self, buf: DirBufferId) -> &[u8] {
        match buf {
            DirBufferId::One(id) => self.op.txn.data(id),
            DirBufferId::Whole(index) => self.op.wholes.bytes(index),
        }
    }

    /// A held block, to be changed.
    pub(super) fn held(&mut self, buf: DirBufferId) -> HeldDirBlock<'_, 'a> {
        match buf {
            DirBufferId::One(id) => HeldDirBlock::One(HeldBlock { txn: &mut self.op.txn, id }),
            DirBufferId::Whole(index) => HeldDirBlock::Whole(&mut self.op.wholes, index),
        }
    }

    /// Holds a directory block that must be there.
    pub(super) fn buffer(&mut self, at: FileBlock, part: Part) -> Outcome<DirBufferId> {
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

    /// Adds a block to the directory, of zeros but for its header.
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
                let tag = Kind::Part.of_inode(ino, at.0 as u32 + i as u32);
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

    /// Takes a block from the directory and frees it.
    pub(super) fn free(&mut self, at: FileBlock) -> Outcome<()> {
        let layout = self.layout;
        self.op.wholes.forget(self.handle.ino(), at);
        if let Some(maps) = &mut self.maps {
            maps.clear(&layout, at);
        }
        self.op.unmap(self.handle, Fork::Data, at..at.plus(layout.blocks().into()))
    }
}

/// A directory block that an operation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirBufferId {
    /// A block of the file system.
    One(BufferId),
    /// Several, of which the operation has a copy in one piece.
    Whole(usize),
}

/// A directory block that an operation holds, to be changed.
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
