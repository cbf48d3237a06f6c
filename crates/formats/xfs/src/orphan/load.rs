//! Reading the unlinked lists of an image that is opened writable.

use engine::Corruption;
use operations::orphans::Chains;
use vfs::{Error, Ino, Result};

use super::{Listed, bucket_of};
use crate::XfsCore;
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::ag::{self, UNLINKED_BUCKETS};
use crate::format::bytes::be32;
use crate::kind::BlockKind;

/// Byte offset of `agi_unlinked` in an AGI.
const BUCKETS_OFFSET: usize = std::mem::offset_of!(ag::RawAgi, unlinked);

impl XfsCore {
    /// Reads the unlinked lists of all groups.
    ///
    /// # Errors
    /// `Corrupt` if a list has a cycle, or an inode that belongs to another list, is free or has names.
    pub(crate) fn load_unlinked_lists(&self) -> Result<()> {
        for group in self.volume.geometry.ags() {
            for (bucket, first) in self.buckets(group)?.into_iter().enumerate() {
                if first != AgIno::NULL.0 {
                    self.load_unlinked_list(group, bucket, first)?;
                }
            }
        }
        Ok(())
    }

    fn buckets(&self, group: AgNumber) -> Result<[u32; UNLINKED_BUCKETS]> {
        let geometry = &self.volume.geometry;
        let (block, start) = ag::sector_place(geometry, ag::AGI_SECTOR);
        let block = geometry.block_of(group, AgBlock(block));
        let header = self.block(block, BlockKind::AgHeader.of_group(group))?;
        Ok(std::array::from_fn(|bucket| be32(&header, start + BUCKETS_OFFSET + 4 * bucket)))
    }

    fn load_unlinked_list(&self, group: AgNumber, bucket: usize, first: u32) -> Result<()> {
        let geometry = &self.volume.geometry;
        let mut lists = self.unlinked.groups[group.0 as usize].lock();
        let list = lists.chain(bucket);
        let (mut at, mut previous) = (first, 0);
        while at != AgIno::NULL.0 {
            let fault = |problem: &str| -> Error {
                let damage = Corruption::new("list of unlinked inodes", problem);
                damage.in_group(group.0.into()).mismatch(format_args!("bucket {bucket}"), at).into()
            };
            let ino = geometry.ino(group, AgIno(at));
            let is_here = geometry.split_ino(ino) == Some((group, AgIno(at)));
            if at == 0 || !is_here || bucket_of(AgIno(at)) != bucket {
                return Err(fault("an inode of another bucket"));
            }
            if list.contains(at) {
                return Err(fault("it contains a loop"));
            }
            let handle = self.load(ino).map_err(|error| match error {
                Error::NotFound => fault("an inode that is not in use"),
                other => other,
            })?;
            if handle.inode.nlink() > 0 {
                return Err(fault("an inode with links"));
            }
            list.append(at, previous);
            self.unlinked.table.set_place(ino, Some(Listed));
            (previous, at) = (at, handle.inode.next_unlinked());
        }
        Ok(())
    }

    /// Returns whether an inode is on a list.
    pub(crate) fn is_unlinked(&self, ino: Ino) -> bool {
        self.unlinked.table.place(ino).is_some()
    }
}
