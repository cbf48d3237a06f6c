//! Making room in a tree: splitting nodes, adding levels.

use engine::BufferId;
use operations::Outcome;
use vfs::Error;

use super::ExtentTree;
use super::path::ExtentPath;
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{self, DEPTH_MAX, ENTRY_SIZE, ExtentNode, IndexEntry, entry_range};
use crate::format::inode::I_BLOCK_SIZE;
use crate::kind::BlockKind;

impl ExtentTree<'_, '_> {
    /// Splits the lowest node whose parent has room, or adds a level if there is none. Invalidates the path.
    pub(super) fn make_room(&mut self, path: &ExtentPath) -> Outcome<()> {
        let mut level = path.len() - 1;
        while level > 0 {
            if !self.node(&path[level - 1])?.is_full() {
                return self.split(path, level);
            }
            level -= 1;
        }
        self.grow(path)
    }

    /// Moves the upper part of a node to a new sibling. If the new entry belongs after the last one, only that last
    /// entry is moved, so that sequentially written files fill their nodes.
    fn split(&mut self, path: &ExtentPath, level: usize) -> Outcome<()> {
        let frame = path[level];
        let count = self.node(&frame)?.len();
        if count < 2 {
            return Err(self
                .file
                .corrupt("extent tree node", "its maximum number of entries is too small")
                .into());
        }
        let at_edge = frame.position == Some(count - 1);
        let keep = if at_edge { count - 1 } else { count / 2 };
        let (leaf, id) = self.new_node()?;
        let moved = entry_range(keep).start..entry_range(count).start;
        let first = self.node(&frame)?.first_block(keep).unwrap_or_default();
        let entries = self.node_bytes(&frame)[moved].to_vec();
        self.op.txn.edit(id, ENTRY_SIZE..ENTRY_SIZE + entries.len()).copy_from_slice(&entries);
        self.write_header(id, count - keep, frame.depth);
        self.set_entries(&frame, keep);
        let entry = IndexEntry { block: first, leaf }.encode();
        let parent = path[level - 1];
        let at = parent.taken() + 1;
        let siblings = self.node(&parent)?.len();
        self.splice(&parent, siblings, at..at, &entry);
        Ok(())
    }

    /// Moves the root's entries to a new block, which becomes the root's only child.
    fn grow(&mut self, path: &ExtentPath) -> Outcome<()> {
        let depth = path[0].depth;
        if depth >= DEPTH_MAX {
            return Err(Error::FileTooLarge.into());
        }
        let (leaf, id) = self.new_node()?;
        let root = *self.file.inode.i_block();
        let count =
            ExtentNode::parse(&root, None).map_err(|c| c.of_inode(self.file.ino().0))?.len();
        let entries = ENTRY_SIZE..entry_range(count).start;
        self.op.txn.edit(id, entries.clone()).copy_from_slice(&root[entries]);
        self.write_header(id, count, depth);
        let first = root[ENTRY_SIZE..ENTRY_SIZE + 4].try_into().unwrap_or_default();
        let entry = IndexEntry { block: FileBlock(u32::from_le_bytes(first)), leaf }.encode();
        let root = self.file.inode.i_block_mut();
        extent::write_header(&mut root[..ENTRY_SIZE], 1, extent::capacity(I_BLOCK_SIZE), depth + 1);
        root[entry_range(0)].copy_from_slice(&entry);
        root[entry_range(1).start..].fill(0);
        Ok(())
    }

    fn write_header(&mut self, id: BufferId, count: usize, depth: u16) {
        let max = extent::capacity(self.op.fs.volume.block_size());
        extent::write_header(self.op.txn.edit(id, 0..ENTRY_SIZE), count as u16, max, depth);
    }

    fn new_node(&mut self) -> Outcome<(Block, BufferId)> {
        let goal = self.op.metadata_goal(self.file);
        let (block, _) = self.op.allocate_clusters(goal, 1)?;
        self.op.add_clusters(self.file, 1)?;
        let id = self.op.txn.create(block.0, BlockKind::ExtentNode.of(self.file.owner))?;
        Ok((block, id))
    }
}
