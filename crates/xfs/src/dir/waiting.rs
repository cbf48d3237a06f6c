//! Names that wait for their leaves, in operations.

use vfs::Result;

use super::buffers::{Entries, Room};
use super::node::leaf_number;
use super::settle::merge;
use super::state::DirState;
use super::view::DirBuf;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::leaf::{self, LeafEntry, LeafKind};
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Lets the hash of a new name wait for its leaf, which was not read because it does not have it; or
    /// brings it there with all that waits. False if there is no room in the leaf.
    pub(super) fn add_waiting(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: FileBlock,
        new: LeafEntry,
    ) -> Result<bool> {
        let leaf = leaf_number(&self.dir_layout(), at);
        match state.buffers.room(leaf) {
            Room::Waits => state.buffers.push(leaf, new),
            Room::Merges => self.merge_waiting(dir, state, at, Some(new))?,
            Room::Full => return Ok(false),
        }
        Ok(true)
    }

    /// Takes out a hash that waits.
    pub(super) fn remove_waiting(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: FileBlock,
        old: LeafEntry,
    ) -> Result<()> {
        if state.buffers.take(leaf_number(&self.dir_layout(), at), old) {
            return Ok(());
        }
        Err(dir.corrupt("directory leaf", "a name that waited for it does not"))
    }

    /// Brings what waits for a leaf into it, and `more`.
    pub(super) fn merge_waiting(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: FileBlock,
        more: Option<LeafEntry>,
    ) -> Result<()> {
        let layout = self.dir_layout();
        let number = leaf_number(&layout, at);
        let mut entries: Entries = state.buffers.entries(number).chain(more).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let buf = self.index_buffer(dir, state, at)?;
        if !merge(&layout, &mut self.held(buf), &mut entries) {
            let problem = format!("block {at} has no room for names that wait");
            return Err(dir.corrupt("directory leaf", problem));
        }
        let live = self.live_in(buf);
        state.buffers.note_merged(number, more.map(|more| more.hash), live);
        if !state.buffers.is_useful(number) {
            self.make_buffer(dir, state, at)?;
        }
        Ok(())
    }

    fn live_in(&self, buf: DirBuf) -> usize {
        let (layout, block) = (self.dir_layout(), self.dir_bytes(buf));
        leaf::table(&layout, block).count.saturating_sub(leaf::stale(&layout, block))
    }

    /// Takes note of a leaf that nothing waits for and that got a hash.
    pub(super) fn note_leaf(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: FileBlock,
        new: Option<u32>,
    ) -> Result<()> {
        let number = leaf_number(&self.dir_layout(), at);
        if !state.buffers.is_useful(number) {
            return self.make_buffer(dir, state, at);
        }
        let buf = self.index_buffer(dir, state, at)?;
        state.buffers.note_live(number, new, self.live_in(buf));
        Ok(())
    }

    /// Keeps a buffer for a leaf that nothing waits for, made anew, if the directory is large and there is
    /// memory for it.
    pub(super) fn make_buffer(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: FileBlock,
    ) -> Result<()> {
        let layout = self.dir_layout();
        let number = leaf_number(&layout, at);
        let buf = self.index_buffer(dir, state, at)?;
        let block = self.dir_bytes(buf);
        let is_leaf = leaf::kind(&layout, block) == Some(LeafKind::Many);
        let DirBuf::One(id) = buf else { return Ok(()) };
        let may_buffer =
            self.fs.dirs.may_buffer(state, state.leaves.count(), state.buffers.shape());
        if is_leaf && may_buffer {
            let place = Block(self.txn.block(id));
            state.buffers.make(number, place, leaf::live(block, &leaf::table(&layout, block)));
        } else {
            state.buffers.forget(number);
        }
        Ok(())
    }
}
