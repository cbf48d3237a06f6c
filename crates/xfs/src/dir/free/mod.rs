//! Finding a data block with room for a new entry in a node directory.
//!
//! On disk, the index of free space is a plain row: the longest unused range of each data block. How
//! it is searched is not the format's business. Five ways are here: four that read the row (as kernels
//! have done it, and as was proposed), and the default, which keeps the row in memory with the largest
//! of each sixteen above it, and finds the first block with room in a few steps.

mod names;
mod scan;
mod tree;

use vfs::Result;

use super::state::{DirState, Maps};
use super::view::View;
use crate::format::address::FileBlock;
use crate::format::dir::free::NO_BLOCK;
use crate::format::dir::{Part, free};
use crate::inode::Handle;
use crate::op::Op;
use scan::Order;
use tree::MaxTree;

/// How a data block with room for an entry is found in directories with an index of free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeIndexStrategy {
    /// From the first data block on, with the header of the index block decoded for each: Linux up to
    /// 4.15.
    ForwardDecode,
    /// From the first data block on, with the header decoded once: Linux 4.16 to 5.3.
    Forward,
    /// From the last data block back: Linux since 5.4.
    Reverse,
    /// As `Reverse`, but index blocks are passed over whose largest value, which is kept in memory,
    /// is too small.
    BlockSkip,
    /// The first data block with room, by a tree in memory.
    #[default]
    Tree,
}

/// What is kept in memory of the index of free space.
pub(super) enum Bests {
    /// Nothing: it is read each time.
    None,
    /// The largest value of each index block, 0 for one that is not there.
    PerBlock(PerBlock),
    /// All values.
    Tree(MaxTree),
}

/// The largest value of each index block.
pub(super) struct PerBlock {
    largest: Vec<u16>,
    capacity: usize,
}

/// Entries take at least this many bytes (a name of one byte), so that less room is none.
fn room_of(best: u16) -> u16 {
    if best == NO_BLOCK { 0 } else { best }
}

impl Bests {
    /// Reads what a strategy keeps.
    pub(super) fn read(
        strategy: FreeIndexStrategy,
        op: &mut Op<'_>,
        dir: &Handle,
        maps: &mut Maps,
    ) -> Result<Self> {
        let layout = op.dir_layout();
        let mut bests = match strategy {
            FreeIndexStrategy::Tree => Self::Tree(MaxTree::default()),
            FreeIndexStrategy::BlockSkip => {
                Self::PerBlock(PerBlock { largest: Vec::new(), capacity: layout.free_capacity() })
            }
            _ => return Ok(Self::None),
        };
        let mut view = View::new(op, dir);
        view.maps = Some(maps);
        let count = view.data_blocks()?;
        for first in (0..count).step_by(layout.free_capacity()) {
            view.with_if(layout.free_at(first).0, Part::Free, |block| {
                let slots = free::slots(&layout, block);
                let values = slots.iter().map(|slot| room_of(u16::from_be_bytes(*slot)));
                match &mut bests {
                    Self::Tree(tree) => tree.extend(first, values),
                    Self::PerBlock(per) => per.note(first, values.max().unwrap_or(0)),
                    Self::None => {}
                }
            })?;
        }
        Ok(bests)
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::PerBlock(per) => per.largest.capacity() * 2,
            Self::Tree(tree) => tree.bytes(),
        }
    }

    /// Notes the value of a data block (0 for one that is gone); the old one, if it is kept.
    pub(super) fn set(&mut self, number: u32, best: u16) -> Option<u16> {
        match self {
            Self::Tree(tree) => Some(tree.set(number, best)),
            _ => None,
        }
    }
}

impl PerBlock {
    fn note(&mut self, number: u32, largest: u16) {
        let index = number as usize / self.capacity;
        if index >= self.largest.len() {
            self.largest.resize(index + 1, 0);
        }
        self.largest[index] = largest;
    }
}

impl DirState {
    /// Notes a new value of a data block, which `block` of the index of free space, as it is now, has.
    pub(super) fn note_best(
        &mut self,
        layout: &crate::format::dir::Layout,
        number: u32,
        block: &[u8],
    ) {
        let slot = number as usize % layout.free_capacity();
        let slots = free::slots(layout, block);
        let value = |slot: &[u8; 2]| room_of(u16::from_be_bytes(*slot));
        if let Bests::PerBlock(per) = &mut self.bests {
            per.note(number, slots.iter().map(value).max().unwrap_or(0));
            self.set_changed();
            return;
        }
        self.set_best(number, slots.get(slot).map_or(0, value));
    }
}

impl Op<'_> {
    /// A data block of a node directory with an unused range of `size` bytes or more.
    pub(super) fn find_room(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        size: usize,
    ) -> Result<Option<u32>> {
        let order = match self.fs.free_index {
            FreeIndexStrategy::Tree => match &state.bests {
                Bests::Tree(tree) => return Ok(tree.first_with(size as u16)),
                _ => Order::Reverse,
            },
            FreeIndexStrategy::ForwardDecode => Order::ForwardDecode,
            FreeIndexStrategy::Forward => Order::Forward,
            FreeIndexStrategy::Reverse | FreeIndexStrategy::BlockSkip => Order::Reverse,
        };
        self.scan_room(dir, state, size, order)
    }

    /// Lets `look` see a block of the index of free space without holding it.
    fn peek_free<T>(
        &mut self,
        dir: &Handle,
        maps: &mut Maps,
        at: FileBlock,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let fs = self.fs;
        let layout = self.dir_layout();
        if let Some(block) = maps.get(&layout, at)
            && !self.txn.holds(block.0)
        {
            let tag = super::view::kind_of(Part::Free).of_inode(dir.ino(), at.0 as u32);
            return Ok(Some(look(&fs.block(block, tag)?)));
        }
        let mut view = View::new(self, dir);
        view.maps = Some(maps);
        view.with_if(at, Part::Free, look)
    }
}
