//! Verification of each kind of block after reading, and verification and sealing before writing.
//!
//! Most kinds have one structural verifier, to which reading adds the checksum. A few kinds have stricter rules before
//! writing (`structure`), because other implementations may write usable blocks that this one never would. Such a block
//! is noted when it is read ([`Oddities`]), or only its changed parts are checked.

pub(crate) mod odd;
mod structure;
#[cfg(test)]
mod tests;

use engine::{BlockFormat, Changed, Corruption, Tag, Txn};

use crate::format::address::Block;
use crate::format::htree::IndexKind;
use crate::format::{dirent, extent, group, htree, indirect, orphan, superblock, xattr};
use crate::kind::BlockKind;
use crate::volume::Volume;

const BLOCK_BITMAP: &str = "block bitmap";
const INODE_BITMAP: &str = "inode bitmap";

impl BlockFormat for Volume {
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> Result<(), Corruption> {
        verify(self, tag, Block(block), data).map_err(|c| c.at_block(block))
    }

    fn seal(
        &self,
        tag: Tag,
        block: u64,
        changed: Changed,
        data: &mut [u8],
    ) -> Result<(), Corruption> {
        seal(self, tag, Block(block), changed, data).map_err(|c| c.at_block(block))
    }

    fn flush_deferred(&self, txn: &mut Txn<'_>) -> engine::Result<()> {
        if self.groups.flush_deferred(self, txn)? && self.keeps_counts {
            let (clusters, inodes) = self.groups.totals();
            self.edit_superblock(txn, |raw| self.set_counts(raw, clusters, inodes))?;
        }
        self.quota.get().map_or(Ok(()), |quota| quota.flush_deferred(txn))
    }

    fn durable(&self) {
        self.groups.all().release_busy();
    }
}

/// Verifies a block that was just read, as far as it must be right to be used safely.
fn verify(volume: &Volume, tag: Tag, block: Block, data: &[u8]) -> Result<(), Corruption> {
    let seed = volume.checksums.then_some(tag.seed);
    let of_inode = |c: Corruption| c.of_inode(tag.owner);
    match BlockKind::from_tag(tag) {
        BlockKind::Descriptors | BlockKind::InodeTable => Ok(()),
        BlockKind::Quota => {
            volume.oddities.note(block, structure::verify_quota(volume, data, None));
            Ok(())
        }
        BlockKind::Indirect => {
            indirect::verify(data, volume.geometry.blocks_count).map_err(of_inode)
        }
        BlockKind::DirectoryLeaf => {
            dirent::verify(data, volume.geometry.inodes_count, seed).map_err(of_inode)
        }
        BlockKind::HtreeRoot => htree::verify(data, IndexKind::Root, seed).map_err(of_inode),
        BlockKind::HtreeNode => htree::verify(data, IndexKind::Node, seed).map_err(of_inode),
        BlockKind::ExtentNode => extent::verify(data, seed).map_err(of_inode),
        BlockKind::Xattr => {
            let seed = volume.checksums.then_some(volume.sb.checksum_seed);
            xattr::verify_block(data, block, seed)
        }
        BlockKind::BlockBitmap | BlockKind::InodeBitmap => {
            verify_bitmap(volume, tag, data)?;
            volume.oddities.note(block, structure::verify_bitmap(volume, tag, data));
            Ok(())
        }
        BlockKind::Orphan => orphan::parse(data, block, seed).map(drop).map_err(of_inode),
        BlockKind::Superblock => superblock::verify(&data[volume.superblock_place().1]),
    }
}

fn verify_bitmap(volume: &Volume, tag: Tag, data: &[u8]) -> Result<(), Corruption> {
    let stored = volume.groups.bitmap_checksums(tag.owner as u32);
    let (name, computed, stored) = if BlockKind::from_tag(tag) == BlockKind::BlockBitmap {
        (BLOCK_BITMAP, group::block_bitmap_checksum(data, &volume.sb), stored.0)
    } else {
        (INODE_BITMAP, group::inode_bitmap_checksum(data, &volume.sb), stored.1)
    };
    group::check_bitmap(name, computed, stored, &volume.sb).map_err(|c| c.in_group(tag.owner))
}

/// Verifies a block before it is written, with the kind's `verify_structure`, and updates its checksum.
fn seal(
    volume: &Volume,
    tag: Tag,
    block: Block,
    changed: Changed,
    data: &mut [u8],
) -> Result<(), Corruption> {
    structure::verify(volume, tag, block, changed, data)?;
    if !volume.checksums {
        return Ok(());
    }
    match BlockKind::from_tag(tag) {
        BlockKind::DirectoryLeaf => dirent::seal(data, tag.seed),
        BlockKind::HtreeRoot => htree::seal(data, IndexKind::Root, tag.seed),
        BlockKind::HtreeNode => htree::seal(data, IndexKind::Node, tag.seed),
        BlockKind::ExtentNode => extent::seal(data, tag.seed),
        BlockKind::Xattr => xattr::seal_block(data, block, volume.sb.checksum_seed),
        BlockKind::Orphan => orphan::seal(data, block, Some(tag.seed)),
        BlockKind::Superblock => superblock::seal(&mut data[volume.superblock_place().1]),
        // Checksums of bitmaps are in the descriptors, those of inodes in the inodes.
        BlockKind::Descriptors
        | BlockKind::InodeTable
        | BlockKind::Indirect
        | BlockKind::BlockBitmap
        | BlockKind::InodeBitmap
        | BlockKind::Quota => {}
    }
    Ok(())
}
