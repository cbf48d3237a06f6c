//! Changing the owner of extent map blocks. Kernels that exchange the forks of two files in images without a reverse
//! map do not log every block of the maps. Instead the inode item requests that all of them get a new owner.

use std::collections::BTreeSet;

use vfs::{Corruption, Ino, Result};

use super::Replay;
use super::structure::Structure;
use crate::format::address::FsBlock;
use crate::format::btree::{Area, TreeShape};
use crate::format::bytes::put64;
use crate::format::geometry::DADDR_BYTES_LOG;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::log::Lsn;
use crate::format::log::inode::fields;

/// Byte offset of `bb_owner` in a block of an extent map.
const OWNER_OFFSET: usize = 56;

impl Replay<'_> {
    /// Makes inodes the owners of all blocks of their maps, where requested.
    pub(super) fn change_owners(&mut self) -> Result<()> {
        for (offset, (asked, lsn)) in std::mem::take(&mut self.owner_changes) {
            let slot = self.changes.read(offset, self.geometry.inode_size())?;
            let ino = self.ino_at(offset);
            let inode = Inode::parse(&self.geometry, ino, &slot)?;
            let forks = [(fields::DATA_OWNER, Fork::Data), (fields::ATTR_OWNER, Fork::Attr)];
            for (_, fork) in forks.into_iter().filter(|(bit, _)| asked & bit != 0) {
                let in_inode = |c: Corruption| c.of_inode(ino.0);
                self.change_owner_of(&inode, fork, (ino, lsn)).map_err(|error| match error {
                    vfs::Error::Corrupt(c) => in_inode(c).into(),
                    other => other,
                })?;
            }
        }
        Ok(())
    }

    fn change_owner_of(&mut self, inode: &Inode, fork: Fork, (ino, lsn): (Ino, Lsn)) -> Result<()> {
        let root = inode.fork(fork);
        if inode.fork_format(fork) != ForkFormat::Btree {
            return Ok(());
        }
        let shape = TreeShape::BMBT;
        let mut pending = children(&shape.root_area(root.len()), root)?;
        let mut seen = BTreeSet::new();
        while let Some(block) = pending.pop() {
            let fault = |problem: &str| Corruption::new("bmbt", problem);
            if !self.geometry.contains(block, 1) {
                return Err(fault("a pointer past the end").mismatch("a block", block).into());
            }
            if !seen.insert(block) {
                return Err(fault("two pointers to one block").into());
            }
            let place = self.geometry.device_block(block);
            let len = self.geometry.block_size() as u64;
            let offset =
                self.check_place(place.0 << (self.geometry.block_log - DADDR_BYTES_LOG), len)?;
            let mut data = self.changes.read(offset, len as usize)?;
            put64(&mut data, OWNER_OFFSET, ino.0);
            let found =
                Structure::of(&data).filter(|found| matches!(found, Structure::ForkTree(_)));
            let structure = found.ok_or_else(|| fault("wrong magic number").at_block(place.0))?;
            structure.stamp(&self.geometry, lsn, &mut data);
            structure.verify(&self.geometry, offset, &data)?;
            let area = shape.node_area(&self.geometry);
            if area.level(&data) > 0 {
                pending.extend(children(&area, &data)?);
            }
            self.changes.write(offset, &data)?;
        }
        Ok(())
    }
}

/// Returns the children of a root or node.
pub(super) fn children(area: &Area, data: &[u8]) -> Result<Vec<FsBlock>> {
    let count = area.count(data);
    if count > area.max {
        let damage = Corruption::new("bmbt", "numrecs");
        return Err(damage.mismatch(format_args!("at most {}", area.max), count).into());
    }
    Ok((0..count).map(|at| FsBlock(area.pointer(data, at))).collect())
}
