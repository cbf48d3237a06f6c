//! Directory blocks that are not contiguous on the device. Each piece is logged as a buffer of its own, so the checksum
//! of the directory block, which is in the first, can be computed only after all pieces are replayed.

use std::collections::BTreeSet;

use vfs::{Corruption, Ino, Result};

use super::Replay;
use super::buffer::Touched;
use super::owner::children;
use super::structure::Structure;
use crate::format::address::{Block, FsBlock};
use crate::format::btree::TreeShape;
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{Fork, ForkFormat, Inode};

impl Replay<'_> {
    /// Stamps, seals and checks the directory block that starts with a replayed piece. Pieces without a magic number
    /// are not the first.
    pub(super) fn finish_piece(&mut self, offset: u64, touched: &Touched) -> Result<()> {
        let data = self.changes.read(offset, touched.len)?;
        let structure = Structure::of(&data).filter(|found| found.fits(touched.contents));
        let Some((structure, ino)) = structure.and_then(|s| Some((s, s.dir_owner(&data)?))) else {
            return Ok(());
        };
        let Some(parts) = self.parts_of(ino, Block(offset >> self.geometry.block_log))? else {
            let damage = Corruption::new("directory block", "it is not part of its directory");
            return Err(damage.of_inode(ino.0).into());
        };
        let size = self.geometry.block_size();
        let mut whole = Vec::with_capacity(parts.len() * size);
        for part in &parts {
            whole.extend(self.changes.read(self.geometry.byte_of(*part), size)?);
        }
        structure.stamp(&self.geometry, touched.lsn, &mut whole);
        structure.verify(&self.geometry, offset, &whole)?;
        for (part, bytes) in parts.iter().zip(whole.chunks_exact(size)) {
            self.changes.write(self.geometry.byte_of(*part), bytes)?;
        }
        Ok(())
    }

    /// Returns the blocks of the directory block of `ino` that starts at `first`.
    fn parts_of(&self, ino: Ino, first: Block) -> Result<Option<Vec<Block>>> {
        let geometry = &self.geometry;
        let Some((ag, ag_ino)) = geometry.split_ino(ino) else { return Ok(None) };
        let (block, at) = geometry.inode_place(ag_ino);
        let offset = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
        let slot = self.changes.read(offset, geometry.inode_size())?;
        let extents = self.extents(&Inode::parse(geometry, ino, &slot)?)?;
        let holds = |extent: &&Extent| {
            let start = geometry.device_block(extent.start).0;
            (start..start + extent.len).contains(&first.0)
        };
        let Some(extent) = extents.iter().find(holds) else { return Ok(None) };
        let at = extent.offset.0 + first.0 - geometry.device_block(extent.start).0;
        let part = |at: u64| {
            let extent = extents.iter().find(|e| (e.offset.0..e.end().0).contains(&at))?;
            let start = geometry.device_block(extent.start).0;
            Some(Block(start + at - extent.offset.0))
        };
        Ok((at..at + u64::from(geometry.dir_block_blocks())).map(part).collect())
    }

    /// Returns all extents of an inode's data.
    fn extents(&self, inode: &Inode) -> Result<Vec<Extent>> {
        let (root, shape) = (inode.fork(Fork::Data), TreeShape::BMBT);
        let mut extents = Vec::new();
        if inode.format() == ForkFormat::Extents {
            let count = (inode.extents(Fork::Data) as usize).min(root.len() / EXTENT_SIZE);
            extents.extend(root.chunks_exact(EXTENT_SIZE).take(count).map(Extent::parse));
        } else if inode.format() == ForkFormat::Btree {
            let mut pending = children(&shape.root_area(root.len()), root)?;
            let mut seen = BTreeSet::new();
            while let Some(block) = pending.pop() {
                if !seen.insert(block) {
                    return Err(Corruption::new("bmbt", "two pointers to one block").into());
                }
                let data = self.map_block(block)?;
                let node = shape.node_area(&self.geometry);
                if node.level(&data) > 0 {
                    pending.extend(children(&node, &data)?);
                    continue;
                }
                let leaf = shape.leaf_area(&self.geometry);
                let count = leaf.count(&data).min(leaf.max);
                extents.extend((0..count).map(|at| Extent::parse(leaf.entry(&data, at))));
            }
        }
        extents.iter().try_for_each(|extent| extent.check(&self.geometry))?;
        Ok(extents)
    }

    fn map_block(&self, block: FsBlock) -> Result<Vec<u8>> {
        if !self.geometry.contains(block, 1) {
            let damage = Corruption::new("bmbt", "a pointer past the end");
            return Err(damage.mismatch("a block", block).into());
        }
        let offset = self.geometry.byte_of(self.geometry.device_block(block));
        self.changes.read(offset, self.geometry.block_size())
    }
}
