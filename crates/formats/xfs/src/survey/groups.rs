//! Reports headers, log, the trees of groups, free space and inode chunks.

use std::ops::ControlFlow;

use vfs::Result;
use vfs::survey::BlockUse;

use super::Teller;
use super::tree::{Met, Scope, walk};
use crate::alloc::trees::GroupTree;
use crate::btree::records::{
    BnoTree, CntTree, FinoTree, InoTree, InodeChunk, RefcountTree, RmapTree,
};
use crate::format::address::{AgBlock, AgIno, AgNumber, FsBlock};
use crate::format::ag;
use crate::format::bytes::be32;
use crate::kind;

impl Teller<'_> {
    /// Reports everything that belongs to groups.
    pub(super) fn groups(&mut self) -> ControlFlow<()> {
        self.log();
        let (mut free, mut shared) = (0, 0);
        for ag in self.fs.geometry().ags() {
            let geometry = self.fs.geometry();
            let (last, _) = ag::sector_place(geometry, ag::AGFL_SECTOR);
            self.tell(geometry.block_of(ag, AgBlock(0)).0, u64::from(last) + 1, BlockUse::Headers);
            let parts: [(&str, Result<()>); 7] = [
                ("the list of free blocks for trees", self.agfl(ag)),
                ("the tree of free space", self.free(ag, &mut free)),
                ("the tree of free space by length", self.blocks_of::<CntTree>(ag)),
                ("the reverse map", self.blocks_of::<RmapTree>(ag)),
                ("the tree of free inodes", self.blocks_of::<FinoTree>(ag)),
                ("the reference count tree", self.references(ag, &mut shared)),
                ("the tree of inodes", self.chunks(ag)),
            ];
            for (what, result) in parts {
                if let Err(error) = result {
                    self.remark(format_args!("{what} of group {ag}"), &error);
                }
            }
            self.progress(0, ag)?;
        }
        self.budget = self.fs.geometry().blocks.saturating_sub(free + shared);
        ControlFlow::Continue(())
    }

    fn log(&mut self) {
        let raw = &self.fs.superblock().raw;
        let (start, len) = (FsBlock(raw.logstart.get()), u64::from(raw.logblocks.get()));
        if start.0 != 0 && self.fs.geometry().contains(start, len) {
            self.tell_of(start, len, BlockUse::Log);
        }
    }

    fn agfl(&mut self, ag: AgNumber) -> Result<()> {
        let (fs, geometry) = (self.fs, self.fs.geometry());
        let state = fs.volume.ags.state(ag);
        let (block, offset) = ag::sector_place(geometry, ag::AGFL_SECTOR);
        let place = geometry.block_of(ag, AgBlock(block));
        let bytes = fs.block(place, kind::BlockKind::AgHeader.of_group(ag))?;
        let (entries, capacity) = (ag::agfl_entries(geometry), ag::agfl_capacity(geometry));
        for nth in 0..state.flcount.min(capacity) {
            let at = (state.flfirst + nth) % capacity;
            let entry = be32(&bytes, offset + entries + at as usize * size_of::<u32>());
            if entry > block && entry < state.length {
                self.tell(geometry.block_of(ag, AgBlock(entry)).0, 1, BlockUse::Allocation);
            }
        }
        Ok(())
    }

    /// Reports the blocks of a tree.
    fn blocks_of<T: GroupTree>(&mut self, ag: AgNumber) -> Result<()> {
        let scope = Scope { keys: None, reads_leaves: false };
        walk::<T>(self.fs, ag, scope, &mut |met| {
            if let Met::Block(block) = met {
                self.tell(block.0, 1, BlockUse::Allocation);
            }
            Ok(())
        })
    }

    /// Reports blocks of a group, which must be within it.
    fn tell_in(&mut self, ag: AgNumber, start: AgBlock, len: u64, kind: BlockUse) -> Result<()> {
        let length = u64::from(self.fs.geometry().ag_len(ag));
        if u64::from(start.0) + len > length {
            let damage =
                vfs::Corruption::new("allocation group", "a record of blocks past its end");
            let found = format_args!("{len} from {start} on");
            return Err(damage.mismatch(format_args!("below {length}"), found).into());
        }
        self.tell(self.fs.geometry().block_of(ag, start).0, len, kind);
        Ok(())
    }

    fn free(&mut self, ag: AgNumber, free: &mut u64) -> Result<()> {
        let scope = Scope { keys: None, reads_leaves: true };
        walk::<BnoTree>(self.fs, ag, scope, &mut |met| match met {
            Met::Block(block) => {
                self.tell(block.0, 1, BlockUse::Allocation);
                Ok(())
            }
            Met::Record(run) => {
                *free += u64::from(run.len);
                self.tell_in(ag, run.start, run.len.into(), BlockUse::Free)
            }
        })
    }

    /// Reports shared blocks, and those staged for copy on write.
    fn references(&mut self, ag: AgNumber, shared: &mut u64) -> Result<()> {
        let scope = Scope { keys: None, reads_leaves: true };
        walk::<RefcountTree>(self.fs, ag, scope, &mut |met| match met {
            Met::Block(block) => {
                self.tell(block.0, 1, BlockUse::Allocation);
                Ok(())
            }
            Met::Record(record) => {
                *shared += u64::from(record.len);
                let kind = if record.cow { BlockUse::Preallocated } else { BlockUse::Shared };
                self.tell_in(ag, record.start, record.len.into(), kind)
            }
        })
    }

    fn chunks(&mut self, ag: AgNumber) -> Result<()> {
        let scope = Scope { keys: None, reads_leaves: true };
        // A block may contain the inodes of several chunks.
        let mut end = 0;
        walk::<InoTree>(self.fs, ag, scope, &mut |met| match met {
            Met::Block(block) => {
                self.tell(block.0, 1, BlockUse::Allocation);
                Ok(())
            }
            Met::Record(chunk) => self.chunk(ag, &chunk, &mut end),
        })
    }

    fn chunk(&mut self, ag: AgNumber, chunk: &InodeChunk, end: &mut u32) -> Result<()> {
        let geometry = self.fs.geometry();
        for (first, len) in chunk.pieces() {
            let ino = |nth: u32| AgIno(chunk.start.0.saturating_add(nth));
            let (start, _) = geometry.inode_place(ino(first));
            let (last, _) = geometry.inode_place(ino(first + len - 1));
            let from = start.0.max(*end);
            if from <= last.0 {
                *end = last.0 + 1;
                let len = u64::from(last.0 - from) + 1;
                self.tell_in(ag, AgBlock(from), len, BlockUse::Inodes)?;
            }
        }
        Ok(())
    }
}
