//! Names in the insert buffer of a directory that an operation changes.

use operations::Outcome;

use super::change::DirBufferId;
use super::flush::merge;
use super::insert_buffer::{BufferRoom, BufferedEntries};
use super::node::NodeChange;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::leaf::{self, LeafEntry, LeafKind};

impl NodeChange<'_, '_> {
    /// Buffers the hash of a new name for its leaf. If the buffer is full, merges it and the new hash into the leaf.
    /// The filter has shown that the leaf does not have the hash, so the leaf was not read. Returns false if the leaf
    /// has no room.
    pub(super) fn add_buffered(&mut self, at: FileBlock, new: LeafEntry) -> Outcome<bool> {
        let leaf = self.dir.layout.leaf_number(at);
        match self.state.insert_buffer.room(leaf) {
            BufferRoom::Buffers => self.state.insert_buffer.push(leaf, new),
            BufferRoom::Merges => self.merge_buffered(at, Some(new))?,
            BufferRoom::LeafFull => return Ok(false),
        }
        Ok(true)
    }

    /// Removes a hash from the buffer.
    pub(super) fn remove_buffered(&mut self, at: FileBlock, old: LeafEntry) -> Outcome<()> {
        if self.state.insert_buffer.take(self.dir.layout.leaf_number(at), old) {
            return Ok(());
        }
        Err(self.dir.corrupt("directory leaf", "a buffered name is missing"))
    }

    /// Merges the buffered entries of a leaf, and `more`, into the leaf.
    pub(super) fn merge_buffered(&mut self, at: FileBlock, more: Option<LeafEntry>) -> Outcome<()> {
        let layout = self.dir.layout;
        let number = layout.leaf_number(at);
        let buffered = self.state.insert_buffer.entries(number);
        let mut entries: BufferedEntries = buffered.chain(more).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let buf = self.index_buffer(at)?;
        if !merge(&layout, &mut self.dir.held(buf), &mut entries) {
            let problem = format!("block {at} has no space for the buffered names");
            return Err(self.dir.corrupt("directory leaf", problem));
        }
        let live = self.live_in(buf);
        self.state.insert_buffer.note_merged(number, more.map(|more| more.hash), live);
        if !self.state.insert_buffer.is_useful(number) {
            self.make_buffer(at)?;
        }
        Ok(())
    }

    fn live_in(&self, buf: DirBufferId) -> usize {
        let (layout, block) = (self.dir.layout, self.dir.bytes(buf));
        leaf::table(&layout, block).count.saturating_sub(leaf::stale(&layout, block))
    }

    /// Updates the buffer of a leaf without buffered entries, after the leaf got a hash.
    pub(super) fn note_leaf(&mut self, at: FileBlock, new: Option<u32>) -> Outcome<()> {
        let number = self.dir.layout.leaf_number(at);
        if !self.state.insert_buffer.is_useful(number) {
            return self.make_buffer(at);
        }
        let buf = self.index_buffer(at)?;
        let live = self.live_in(buf);
        self.state.insert_buffer.note_live(number, new, live);
        Ok(())
    }

    /// Rebuilds the buffer of a leaf if the directory is large and memory permits. Nothing may be buffered for the
    /// leaf.
    pub(super) fn make_buffer(&mut self, at: FileBlock) -> Outcome<()> {
        let layout = self.dir.layout;
        let number = layout.leaf_number(at);
        let buf = self.index_buffer(at)?;
        let block = self.dir.bytes(buf);
        let is_leaf = leaf::kind(&layout, block) == Some(LeafKind::Many);
        let DirBufferId::One(id) = buf else { return Ok(()) };
        if is_leaf && self.dir.op.fs.dirs.may_buffer(self.state) {
            let place = Block(self.dir.op.txn.block(id));
            let live = leaf::live(block, &leaf::table(&layout, block));
            self.state.insert_buffer.make(number, place, live);
        } else {
            self.state.insert_buffer.forget(number);
        }
        Ok(())
    }
}
