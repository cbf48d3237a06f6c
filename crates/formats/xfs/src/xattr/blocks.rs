//! Blocks of the attribute fork of an inode that an operation changes.

use operations::Outcome;

use vfs::Error;

use super::change::AttrChange;
use super::path::{PathBlock, locate, tag};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::attr::{BlockType, Identity, leaf_change, remote, write_info};
use crate::format::inode::Fork;
use crate::kind::BlockKind;
use crate::map::{self, Place};
use crate::op::held::HeldBlock;

impl<'a> AttrChange<'_, 'a> {
    /// Returns a leaf or node of a tree for changing.
    pub(super) fn block(&mut self, step: PathBlock) -> Outcome<HeldBlock<'_, 'a>> {
        let id = self.op.buffer(step.place, tag(self.handle, step.at))?;
        Ok(HeldBlock { txn: &mut self.op.txn, id })
    }

    /// Like [`Self::block`], by logical block number.
    pub(super) fn block_at(&mut self, at: u32) -> Outcome<HeldBlock<'_, 'a>> {
        let block = self.path_block(at)?;
        self.block(block)
    }

    /// Returns block `at` of the fork as a path block.
    pub(super) fn path_block(&mut self, at: u32) -> Outcome<PathBlock> {
        let place = locate(self.op, self.handle, at)?;
        Ok(PathBlock { at, place, index: 0 })
    }

    /// Creates a leaf or node at the first unused logical block.
    pub(super) fn new_block(&mut self, kind: BlockType) -> Outcome<PathBlock> {
        let at = self.hole(1)?;
        let block = self.op.map_new(self.handle, Fork::Attr, FileBlock(at.into()), 1)?;
        let geometry = self.op.fs.volume.geometry;
        let place = geometry.device_block(block);
        let id = self.op.txn.create(place.0, tag(self.handle, at))?;
        let who = Identity { owner: self.handle.ino().0, block: place };
        write_info(&mut HeldBlock { txn: &mut self.op.txn, id }, &geometry, kind, who);
        Ok(PathBlock { at, place, index: 0 })
    }

    /// Returns the start of the first hole of at least `len` logical blocks.
    fn hole(&mut self, len: u32) -> Outcome<u32> {
        let mut at = FileBlock(0);
        loop {
            let run = map::run_at(self.op, self.handle, Fork::Attr, at)?;
            if run.place == Place::Hole && run.len >= len.into() {
                let first =
                    u32::try_from(at.0).ok().filter(|first| first.checked_add(len).is_some());
                return first.ok_or(Error::NoSpace.into());
            }
            at = at.plus(run.len);
        }
    }

    /// Writes a value to remote blocks.
    pub(super) fn write_value(&mut self, value: &[u8]) -> Outcome<remote::ValueLocation> {
        let layout = self.layout;
        let geometry = self.op.fs.volume.geometry;
        let count = remote::blocks(layout, value.len());
        let first = self.hole(count)?;
        let mut parts = value.chunks(remote::bytes_per_block(layout)).enumerate();
        let mut at = first;
        while at < first + count {
            let (start, len) = self.map_blocks(at, first + count - at)?;
            for (step, (index, part)) in (0..len).zip(&mut parts) {
                let block = geometry.device_block(start.plus(step.into()));
                let tag = BlockKind::AttrRemote.of_inode(self.handle.ino(), at + step);
                let id = self.op.txn.create(block.0, tag)?;
                let who = Identity { owner: self.handle.ino().0, block };
                let offset = index * remote::bytes_per_block(layout);
                let data = self.op.txn.edit(id, 0..layout.block_size);
                remote::fill(data, &geometry, who, offset, part);
            }
            at += len;
        }
        Ok(remote::ValueLocation { block: first, len: value.len() as u32 })
    }

    /// Maps contiguous blocks from `at` on: at least one, at most `len`.
    fn map_blocks(&mut self, at: u32, mut len: u32) -> Outcome<(FsBlock, u32)> {
        loop {
            match self.op.map_new(self.handle, Fork::Attr, FileBlock(at.into()), len) {
                Err(why) if why.is_no_space() && len > 1 => len /= 2,
                outcome => return outcome.map(|start| (start, len)),
            }
        }
    }

    /// Replaces the root, whatever its contents, by an empty leaf.
    pub(super) fn empty_root(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let place = locate(self.op, self.handle, 0)?;
        let geometry = self.op.fs.volume.geometry;
        let id = self.op.txn.create(place.0, tag(self.handle, 0))?;
        let who = Identity { owner: self.handle.ino().0, block: place };
        let mut root = HeldBlock { txn: &mut self.op.txn, id };
        write_info(&mut root, &geometry, BlockType::Leaf, who);
        leaf_change::fill(&mut root, layout, []);
        Ok(())
    }
}
