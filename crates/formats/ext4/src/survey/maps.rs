//! Reports all blocks of a file's map: extents or pointers, and the map blocks themselves.

use vfs::Result;
use vfs::survey::{BlockUse, Fragments};

use super::Teller;
use crate::format::address::Block;
use crate::format::extent::ExtentNode;
use crate::format::indirect;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind;
use crate::map::FILE_BLOCKS_MAX;
use crate::map::extent::step::{Child, check_blocks, root};

/// State of reporting an inode's blocks.
pub(super) struct BlockReporter {
    /// Kind of its contents.
    pub(super) kind: BlockUse,
    /// With pointers: the current contiguous run, not yet reported. With extents: the last cluster, start and end.
    pub(super) last: Option<(u64, u64)>,
    pub(super) fragments: Fragments,
}

impl Teller<'_> {
    /// Reports all blocks of an inode's map.
    ///
    /// # Errors
    /// If a map block cannot be read or is damaged. Blocks before it were reported.
    pub(super) fn map(&mut self, handle: &Handle, blocks: &mut BlockReporter) -> Result<()> {
        if handle.has_flag(flags::EXTENTS) {
            return self.extents(handle, &root(handle)?, FILE_BLOCKS_MAX, blocks);
        }
        let bytes = handle.inode.i_block();
        let direct = indirect::DIRECT_COUNT as usize * 4;
        let mut result = self.pointers(handle, &bytes[..direct], 0, blocks);
        for level in 1..=indirect::LEVELS_MAX {
            let at = direct + (level - 1) * 4;
            result = result.and_then(|()| self.pointers(handle, &bytes[at..at + 4], level, blocks));
        }
        self.deliver(handle, blocks).and(result)
    }

    /// Subtracts from the budget.
    fn spend(&mut self, handle: &Handle, blocks: u64) -> Result<()> {
        match self.budget.checked_sub(blocks) {
            Some(left) => self.budget = left,
            None => {
                return Err(handle.corrupt("block map", "inodes have more blocks than are in use"));
            }
        }
        Ok(())
    }

    /// Reports the blocks of a node and of all nodes below it. A node is within the range of its parent's entry and
    /// each level is one lower, so the walk ends.
    fn extents(
        &mut self,
        handle: &Handle,
        node: &ExtentNode<'_>,
        end: u64,
        blocks: &mut BlockReporter,
    ) -> Result<()> {
        let fs = self.fs;
        for at in 0..node.len() {
            if node.depth() == 0 {
                let extent = node.extent(at);
                check_blocks(&fs.volume, handle, extent.start, extent.len.into())?;
                self.spend(handle, extent.len.into())?;
                self.run(extent.start, extent.len.into(), extent.unwritten, blocks);
                continue;
            }
            let child = Child::at(node, at, end);
            child.check(&fs.volume, handle)?;
            self.node(handle, child.leaf)?;
            let bytes = fs.block(child.leaf, kind::BlockKind::ExtentNode.of(handle.owner))?;
            let below = child.node(handle, &bytes)?;
            self.extents(handle, &below, child.end, blocks)?;
        }
        Ok(())
    }

    /// Reports a map block.
    fn node(&mut self, handle: &Handle, block: Block) -> Result<()> {
        self.spend(handle, 1)?;
        let (start, end) = self.clusters(block, 1);
        self.tell(start, end - start, BlockUse::Maps);
        Ok(())
    }

    /// Reports a run of contents, without clusters that the previous run already covers.
    fn run(&mut self, start: Block, len: u64, unwritten: bool, blocks: &mut BlockReporter) {
        blocks.fragments.add(start.0, len);
        let kind = match blocks.kind {
            BlockUse::Data if unwritten => BlockUse::Preallocated,
            kind => kind,
        };
        let (from, to) = self.clusters(start, len);
        let from = match blocks.last {
            Some((last, end)) if last <= from && from < end => end,
            _ => from,
        };
        self.tell(from, to.saturating_sub(from), kind);
        let cluster = u64::from(self.fs.geometry().cluster_blocks());
        blocks.last = Some((to.saturating_sub(cluster), to));
    }

    /// Visits pointers to contents or, with more levels, to pointer blocks.
    fn pointers(
        &mut self,
        handle: &Handle,
        pointers: &[u8],
        levels: usize,
        blocks: &mut BlockReporter,
    ) -> Result<()> {
        let fs = self.fs;
        for index in 0..(pointers.len() / 4) as u16 {
            let Some(block) = indirect::pointer(pointers, index) else { continue };
            if levels == 0 {
                match &mut blocks.last {
                    Some((_, end)) if *end == block.0 => *end += 1,
                    _ => {
                        self.deliver(handle, blocks)?;
                        blocks.last = Some((block.0, block.0 + 1));
                    }
                }
                continue;
            }
            check_blocks(&fs.volume, handle, block, 1)?;
            self.node(handle, block)?;
            let bytes = fs.block(block, kind::BlockKind::Indirect.of(handle.owner))?;
            self.pointers(handle, &bytes, levels - 1, blocks)?;
        }
        Ok(())
    }

    /// Reports the pending run of contents.
    fn deliver(&mut self, handle: &Handle, blocks: &mut BlockReporter) -> Result<()> {
        let Some((start, end)) = blocks.last.take() else { return Ok(()) };
        let len = end - start;
        check_blocks(&self.fs.volume, handle, Block(start), len)?;
        self.spend(handle, len)?;
        blocks.fragments.add(start, len);
        self.tell(start, len, blocks.kind);
        Ok(())
    }
}
