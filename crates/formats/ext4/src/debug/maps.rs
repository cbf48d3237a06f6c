//! Access to block maps entry by entry.

use vfs::{Corruption, Ino, Result};

use crate::Ext4Core;
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{Extent, ExtentNode};
use crate::format::indirect;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::FILE_BLOCKS_MAX;
use crate::map::extent::step::{Child, root};

/// An entry of a block map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapEntry {
    /// An entry of an extent tree's inner node.
    Index {
        /// Number of levels above the node.
        level: u16,
        /// Number of levels of the whole tree below its root.
        depth: u16,
        /// Position of the entry in its node, starting with 1, and the number of entries there.
        place: (usize, usize),
        /// First file block of the child node.
        first: FileBlock,
        /// End of the range that the child node may map, exclusive.
        end: u64,
        /// Block of the child node.
        node: Block,
    },
    /// An extent.
    Extent {
        /// Number of levels above the leaf.
        level: u16,
        /// Number of levels of the whole tree below its root.
        depth: u16,
        /// Position of the entry in its leaf, starting with 1, and the number of entries there.
        place: (usize, usize),
        /// The extent.
        extent: Extent,
    },
    /// A pointer block of an ext2 or ext3 block map.
    Pointers {
        /// Level: 1 for pointers to data, 2 and 3 above.
        level: usize,
        /// Its device block.
        block: Block,
    },
    /// A pointer to a data block.
    Pointer {
        /// The file block.
        file: FileBlock,
        /// The device block.
        block: Block,
    },
}

/// Receives the entries of a map.
type Each<'e> = &'e mut dyn FnMut(MapEntry);

/// A walk over a map. It fails when it has seen more blocks than the file system has.
struct BlockWalk<'w> {
    fs: &'w Ext4Core,
    inode: &'w Handle,
    budget: u64,
    each: Each<'w>,
}

impl Ext4Core {
    /// Passes the entries of an inode's map to `each`, in file order, inner nodes before their children. The caller
    /// must check that the inode has a map.
    ///
    /// # Errors
    /// `NotFound` if the inode does not exist; `Corrupt` if the map is damaged. Entries before the damage were passed.
    pub fn walk_map(&self, ino: Ino, each: Each<'_>) -> Result<()> {
        let inode = self.any_inode(ino)?;
        let budget = self.geometry().blocks_count.saturating_mul(2);
        let mut walk = BlockWalk { fs: self, inode: &inode, budget, each };
        if inode.has_flag(flags::EXTENTS) {
            let node = root(&inode)?;
            let depth = node.depth();
            return walk.extents(&node, depth, FILE_BLOCKS_MAX);
        }
        let bytes = *inode.inode.i_block();
        let direct = indirect::DIRECT_COUNT as usize * 4;
        walk.pointers(&bytes[..direct], 0, 0)?;
        let mut first = u64::from(indirect::DIRECT_COUNT);
        for level in 1..=indirect::LEVELS_MAX {
            let at = direct + (level - 1) * 4;
            walk.pointers(&bytes[at..at + 4], level, first)?;
            first += walk.span(level);
        }
        Ok(())
    }
}

impl BlockWalk<'_> {
    /// Returns the number of file blocks below a pointer with `level` levels of pointer blocks under it.
    fn span(&self, level: usize) -> u64 {
        u64::from(self.fs.geometry().block_size() / 4).saturating_pow(level as u32)
    }

    fn spend(&mut self) -> Result<()> {
        self.budget = self.budget.checked_sub(1).ok_or_else(|| {
            self.inode.corrupt("block map", "more entries than the file system has blocks")
        })?;
        Ok(())
    }

    fn check(&self, block: Block) -> Result<()> {
        if self.fs.geometry().contains(block, 1) {
            return Ok(());
        }
        let damage = Corruption::new("block map", "a node outside the file system");
        Err(damage.of_inode(self.inode.ino().0).mismatch("a block inside", block).into())
    }

    fn extents(&mut self, node: &ExtentNode<'_>, depth: u16, end: u64) -> Result<()> {
        let level = depth.saturating_sub(node.depth());
        for at in 0..node.len() {
            self.spend()?;
            let place = (at + 1, node.len());
            if node.depth() == 0 {
                (self.each)(MapEntry::Extent { level, depth, place, extent: node.extent(at) });
                continue;
            }
            let child = Child::at(node, at, end);
            let (first, node) = (child.start, child.leaf);
            (self.each)(MapEntry::Index { level, depth, place, first, end: child.end, node });
            self.check(child.leaf)?;
            let bytes = self.fs.block(child.leaf, BlockKind::ExtentNode.of(self.inode.owner))?;
            let below = child.node(self.inode, &bytes)?;
            self.extents(&below, depth, child.end)?;
        }
        Ok(())
    }

    fn pointers(&mut self, pointers: &[u8], level: usize, first: u64) -> Result<()> {
        for index in 0..(pointers.len() / 4) as u16 {
            let Some(block) = indirect::pointer(pointers, index) else { continue };
            self.spend()?;
            let file = first + u64::from(index) * self.span(level);
            if level == 0 {
                let file = FileBlock(u32::try_from(file).unwrap_or(u32::MAX));
                (self.each)(MapEntry::Pointer { file, block });
                continue;
            }
            (self.each)(MapEntry::Pointers { level, block });
            self.check(block)?;
            let bytes = self.fs.block(block, BlockKind::Indirect.of(self.inode.owner))?;
            self.pointers(&bytes, level - 1, file)?;
        }
        Ok(())
    }
}
