//! Finding a block of a file within an operation.

use transaction::Corruption;
use vfs::Result;

use crate::format::address::{Block, FileBlock};
use crate::format::extent::{Extent, Node};
use crate::kind::Kind;
use crate::op::{Handle, Op};

impl Op<'_> {
    /// The extent that covers a block of a file, if there is one.
    pub(crate) fn find_extent(
        &mut self,
        file: &Handle,
        block: FileBlock,
    ) -> Result<Option<Extent>> {
        let damage = |c: Corruption| c.of_inode(file.ino().0);
        let root = Node::parse(file.inode.i_block(), None).map_err(damage)?;
        let mut depth = root.depth();
        let mut step = descend(&root, block);
        while depth > 0 {
            let Some(Step::Child(child)) = step else { return Ok(None) };
            depth -= 1;
            self.fs.volume.check_blocks(child, 1).map_err(damage)?;
            let id = self.buffer(child, Kind::ExtentNode.of(file.owner))?;
            let node = Node::trusted(self.txn.data(id), depth)
                .map_err(|c| self.corrupt(id, c, file.owner))?;
            step = descend(&node, block);
        }
        let Some(Step::Extent(extent)) = step else { return Ok(None) };
        self.fs.volume.check_blocks(extent.start, u64::from(extent.len)).map_err(damage)?;
        Ok((u64::from(block.0) < extent.end()).then_some(extent))
    }

    /// The device block of a block of a directory, which must have one.
    pub(crate) fn dir_block(&mut self, dir: &Handle, block: FileBlock) -> Result<Block> {
        match self.find_block(dir, block)? {
            Some(found) => Ok(found),
            None => Err(Corruption::new("directory", format!("no block {block}"))
                .of_inode(dir.ino().0)
                .into()),
        }
    }
}

enum Step {
    Child(Block),
    Extent(Extent),
}

fn descend(node: &Node<'_>, block: FileBlock) -> Option<Step> {
    let at = node.position(block)?;
    Some(if node.depth() == 0 {
        Step::Extent(node.extent(at))
    } else {
        Step::Child(node.index(at).leaf)
    })
}
