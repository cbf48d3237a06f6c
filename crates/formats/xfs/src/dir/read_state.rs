//! Reading the state of a node directory from its blocks.

use operations::Outcome;
use vfs::Result;

use super::change::DirChange;
use super::free::read_bests;
use super::maps::Maps;
use super::state::{DirState, NodeState, Numbers};
use super::view::View;
use crate::format::address::FileBlock;
use crate::format::inode::Fork;
use crate::map::{self, Place};
use crate::op::source::Source;

/// Reads which block numbers of the range from `first` to `limit` are in use.
fn read_numbers<S: Source>(
    view: &mut View<'_, S>,
    (first, limit): (FileBlock, FileBlock),
) -> Result<Numbers> {
    let blocks = u64::from(view.layout.blocks());
    let mut numbers = Numbers::default();
    let mut at = first;
    while at < limit {
        let run = map::run_at(view.source, view.dir, Fork::Data, at)?;
        let next = FileBlock(at.plus(run.len).0.min(limit.0));
        if run.place == Place::Hole {
            let from = (at.0 - first.0).div_ceil(blocks) as u32;
            let to = ((next.0 - first.0) / blocks) as u32;
            if next == limit {
                numbers.set_end(from);
            } else if from < to {
                numbers.add_holes(from, to - from);
            }
        } else if next == limit {
            numbers.set_end((limit.0 - first.0).div_ceil(blocks) as u32);
        }
        at = next;
    }
    Ok(numbers)
}

impl DirChange<'_, '_> {
    /// Takes the state of the directory from the store, or reads it from the directory.
    pub(super) fn take_state(&mut self) -> Outcome<Box<DirState>> {
        let Some(mut state) = self.op.dirs.take(self.handle) else {
            return Ok(Box::new(self.read_state()?));
        };
        if !state.is_read()
            && let Err(error) = self.read_again(&mut state)
        {
            self.op.dirs.give(state);
            return Err(error);
        }
        Ok(state)
    }

    /// Reads a state again, except for the insert buffer, which exists only in memory.
    fn read_again(&mut self, state: &mut DirState) -> Outcome<()> {
        let mut new = self.read_state()?;
        std::mem::swap(&mut new.nodes.insert_buffer, &mut state.nodes.insert_buffer);
        new.nodes.reported = state.nodes.reported;
        *state = new;
        Ok(())
    }

    fn read_state(&mut self) -> Outcome<DirState> {
        let (fs, layout) = (self.op.fs, self.layout);
        let data = (FileBlock(0), layout.leaf_first());
        let leaves = (layout.leaf_first(), layout.free_first());
        let mut maps = Maps::default();
        let mut view = View { maps: Some(&mut maps), ..self.view() };
        let nodes = NodeState::new(
            read_numbers(&mut view, data)?,
            read_numbers(&mut view, leaves)?,
            read_bests(fs.free_index, &mut view)?,
            fs.dirs.buffer_size(&layout),
        );
        let generation = self.handle.inode.generation();
        Ok(DirState { ino: self.ino(), generation, maps, nodes })
    }
}
