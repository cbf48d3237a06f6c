//! Reports the blocks of the trees of realtime groups, whose roots are in inodes.

use engine::Tag;
use vfs::survey::BlockUse;
use vfs::{Corruption, Ino, Result};

use super::Teller;
use crate::format::address::FsBlock;
use crate::format::btree::{Area, TreeShape};
use crate::format::inode::{Fork, Inode};
use crate::format::metafile::MetafileType;
use crate::kind::BlockKind;

/// The tree whose blocks are being reported.
struct SurveyedTree {
    ino: Ino,
    shape: TreeShape,
    tag: Tag,
}

impl SurveyedTree {
    fn fault(&self, problem: &'static str) -> Corruption {
        Corruption::new(self.shape.name, problem).of_inode(self.ino.0)
    }
}

impl Teller<'_> {
    /// Reports the blocks of the tree whose root is in an inode. The budget limits the work.
    pub(super) fn group_tree(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let kind = inode.metafile_type();
        let Some(shape) = kind.shape() else { return Ok(()) };
        let kind = match kind {
            MetafileType::RtRmap => BlockKind::RtRmapBtree,
            _ => BlockKind::RtRefcountBtree,
        };
        let tree = SurveyedTree { ino, shape, tag: kind.of_inode(ino, 0) };
        let bytes = inode.fork(Fork::Data);
        let area = tree.shape.root_area_of(bytes);
        if area.max == 0 || area.count(bytes) > area.max {
            return Err(tree.fault("number of entries of its root").into());
        }
        self.tree_children(&tree, bytes, &area, area.level(bytes))
    }

    fn tree_children(
        &mut self,
        tree: &SurveyedTree,
        bytes: &[u8],
        area: &Area,
        level: u16,
    ) -> Result<()> {
        let Some(below) = level.checked_sub(1) else { return Ok(()) };
        for at in 0..area.count(bytes) {
            self.tree_block(tree, FsBlock(area.pointer(bytes, at)), below)?;
        }
        Ok(())
    }

    /// Reports a block of the tree and those below it. Leaves are not read.
    fn tree_block(&mut self, tree: &SurveyedTree, block: FsBlock, level: u16) -> Result<()> {
        let geometry = self.fs.geometry();
        if !geometry.contains(block, 1) {
            let damage = tree.fault("a pointer outside the file system");
            return Err(damage.mismatch("a block", block).into());
        }
        self.spend(tree.ino, 1)?;
        self.tell_of(block, 1, BlockUse::Allocation);
        if level == 0 {
            return Ok(());
        }
        let bytes = self.fs.block(geometry.device_block(block), tree.tag)?;
        let area = tree.shape.node_area(geometry);
        if area.level(&bytes) != level {
            return Err(tree.fault("level").mismatch(level, area.level(&bytes)).into());
        }
        self.tree_children(tree, &bytes, &area, level)
    }
}
