//! Replaying buffer items.

use vfs::{Corruption, Result};

use super::Replay;
use super::structure::{Structure, is_attr_node, lsn_of};
use crate::format::attr;
use crate::format::bytes::be32;
use crate::format::geometry::DADDR_BYTES_LOG;
use crate::format::inode::{NEXT_UNLINKED_OFFSET, seal_slot};
use crate::format::log::buffer::BufferType;
use crate::format::log::{BLOCK_SIZE, BufferItem, Lsn};
use crate::format::superblock::Superblock;

/// A buffer that was replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    pub(super) len: usize,
    pub(super) contents: BufferType,
    /// Position of its last change.
    pub(super) lsn: Lsn,
}

/// Returns whether a buffer contains inodes.
fn has_inodes(item: &BufferItem<'_>) -> bool {
    item.is_inode_buffer() || item.contents() == BufferType::Dinode
}

impl Replay<'_> {
    /// Writes the logged contents of a buffer, unless the buffer is already newer.
    pub(super) fn buffer(&mut self, lsn: Lsn, item: &BufferItem<'_>) -> Result<()> {
        let chunks = item.chunks()?;
        let offset = self.check_place(item.daddr, item.len() as u64)?;
        if self.cancels.has(item.daddr, item.blocks) {
            self.report.items_skipped += 1;
            return Ok(());
        }
        let mut data = self.changes.read(offset, item.len())?;
        let has_lsn = self.geometry.features.crc() && !item.is_inode_buffer();
        if has_lsn && lsn_of(&self.geometry, &data).is_some_and(|at| at >= lsn) {
            self.report.items_skipped += 1;
            return Ok(());
        }
        if item.is_inode_buffer() {
            self.unlinked(offset, &chunks, &mut data)?;
        } else {
            for (at, bytes) in &chunks {
                data[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        if has_inodes(item) {
            self.note_slots(offset, &chunks);
        }
        self.changes.write(offset, &data)?;
        let touched = Touched { len: data.len(), contents: item.contents(), lsn };
        if !item.is_inode_buffer() {
            self.touched.insert(offset, touched);
        }
        self.report.items_replayed += 1;
        if offset == 0 && item.contents() == BufferType::Superblock {
            self.superblock_changed(touched)?;
        }
        Ok(())
    }

    /// Applies an inode buffer logged by a kernel. Only the links of unlinked lists count: all else is in inode items.
    fn unlinked(&self, offset: u64, chunks: &[(usize, &[u8])], data: &mut [u8]) -> Result<()> {
        let size = self.geometry.inode_size();
        for (number, slot) in data.chunks_exact_mut(size).enumerate() {
            let field = number * size + NEXT_UNLINKED_OFFSET;
            let chunk = chunks.iter().find(|(at, bytes)| (*at..at + bytes.len()).contains(&field));
            let Some((at, bytes)) = chunk else { continue };
            let next = &bytes[field - at..field - at + 4];
            if be32(next, 0) == 0 {
                let damage = Corruption::new("log buffer item", "next unlinked inode");
                let block =
                    (offset >> self.geometry.block_log) + (field >> self.geometry.block_log) as u64;
                return Err(damage.mismatch("not 0", 0).at_block(block).into());
            }
            slot[NEXT_UNLINKED_OFFSET..NEXT_UNLINKED_OFFSET + 4].copy_from_slice(next);
            seal_slot(slot);
        }
        Ok(())
    }

    /// Records the inodes that some chunks belong to, to be checked at the end.
    fn note_slots(&mut self, offset: u64, chunks: &[(usize, &[u8])]) {
        let size = self.geometry.inode_size() as u64;
        for (at, bytes) in chunks {
            let start = offset + *at as u64;
            let slots = start / size..(start + bytes.len() as u64).div_ceil(size);
            self.slots.extend(slots.map(|slot| slot * size));
        }
    }

    /// Checks that a range is within the file system, and outside of its log. Returns its first byte.
    pub(super) fn check_place(&self, daddr: u64, len: u64) -> Result<u64> {
        let fault = |problem: &str| Corruption::new("log item", problem);
        let end = self.geometry.blocks << (self.geometry.block_log - DADDR_BYTES_LOG);
        let blocks = len >> DADDR_BYTES_LOG;
        if len == 0 || daddr.checked_add(blocks).is_none_or(|last| last > end) {
            let found = format_args!("{blocks} blocks of 512 bytes from {daddr}").to_string();
            let damage = fault("a buffer outside the file system");
            return Err(damage.mismatch(format_args!("up to {end}"), found).into());
        }
        let offset = daddr << DADDR_BYTES_LOG;
        if offset + len > self.device_len {
            return Err(fault("a buffer past the end of the image").into());
        }
        if offset < self.log.end && self.log.start < offset + len {
            let damage = fault("a buffer in the log");
            return Err(damage.at_block(offset >> self.geometry.block_log).into());
        }
        Ok(offset)
    }

    /// Stamps, seals and checks all replayed buffers.
    pub(super) fn finish_buffers(&mut self) -> Result<()> {
        let touched = std::mem::take(&mut self.touched);
        for (offset, touched) in &touched {
            self.finish_buffer(*offset, *touched).map_err(|error| {
                let block = offset >> self.geometry.block_log;
                match error {
                    vfs::Error::Corrupt(c) => c.at_block(block).into(),
                    other => other,
                }
            })?;
        }
        Ok(())
    }

    /// Returns whether a buffer is smaller than directory blocks.
    fn is_piece(&self, touched: &Touched) -> bool {
        touched.len < self.geometry.dir_block_size()
    }

    pub(super) fn finish_buffer(&mut self, offset: u64, touched: Touched) -> Result<()> {
        use BufferType as B;
        let mut data = self.changes.read(offset, touched.len)?;
        if !self.geometry.features.crc() {
            // Buffers of version 4 have neither LSN nor checksum, and their readers verify them.
            let is_superblock = offset == 0 && touched.contents == B::Superblock;
            return match is_superblock {
                true => Superblock::parse(&data, u64::MAX).map(drop),
                false => Ok(()),
            };
        }
        match touched.contents {
            B::Unknown | B::UserDquot | B::ProjectDquot | B::GroupDquot | B::Dinode => {
                return Ok(());
            }
            // Without groups, their blocks have no headers.
            B::RealtimeBitmap | B::RealtimeSummary
                if !self.geometry.realtime.is_some_and(|realtime| realtime.has_groups()) =>
            {
                return Ok(());
            }
            B::AttrRemote => {
                // They have no log sequence number, and a checksum for each block.
                let block_size = self.geometry.block_size();
                data.chunks_exact_mut(block_size).for_each(|part| {
                    attr::remote::seal(&self.geometry, part);
                });
                return self.changes.write(offset, &data);
            }
            B::DirBlock | B::DirData | B::DirFree | B::DirLeaf1 | B::DirLeafN
                if self.is_piece(&touched) =>
            {
                return self.finish_piece(offset, &touched);
            }
            B::DaNode if self.is_piece(&touched) && !is_attr_node(&self.geometry, &data) => {
                return self.finish_piece(offset, &touched);
            }
            _ => {}
        }
        let structure = Structure::of(&data).filter(|found| found.fits(touched.contents));
        let Some(structure) = structure else {
            let damage = Corruption::new("log buffer item", "it contains another structure");
            let found = format_args!("{:02x?}", &data[..BLOCK_SIZE.min(12)]).to_string();
            return Err(damage.mismatch(format_args!("{:?}", touched.contents), found).into());
        };
        structure.stamp(&self.geometry, touched.lsn, &mut data);
        structure.verify(&self.geometry, offset, &data)?;
        self.changes.write(offset, &data)
    }
}
