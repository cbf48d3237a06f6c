//! The files of the realtime section: the bitmap and the summary.

use vfs::Ino;
use vfs::check::Finding;

use super::super::chunks::InodeState;
use super::super::codes;
use super::super::forks;
use super::super::inodes::Inodes;
use super::super::names;
use crate::format::address::Block;
use crate::format::bytes::be64;
use crate::format::extent::Extent;
use crate::format::inode::Fork;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};

/// Byte offset of `rt_lsn` in the header of a block.
const LSN_OFFSET: usize = 24;

/// One of the files, with its map.
pub(super) struct OpenFile {
    pub(super) file: SpaceFile,
    pub(super) ino: Ino,
    extents: Vec<Extent>,
}

impl OpenFile {
    /// Returns a file whose blocks are all mapped. Reports why if it cannot be read.
    pub(super) fn open(
        inodes: &Inodes<'_>,
        layout: &SpaceLayout,
        (file, ino): (SpaceFile, Ino),
    ) -> Option<Self> {
        let ctx = inodes.ctx;
        let fault = |finding: Finding| {
            ctx.found(finding.field(file.name()));
            None
        };
        if !matches!(inodes.chunks.find(ino), InodeState::Used(_)) {
            // Reported with the inodes of the superblock.
            return None;
        }
        let inode = names::read_inode(ctx, ino)?;
        let mut extents = Vec::new();
        let mapped = forks::map(inodes, ino, &inode, Fork::Data, |extent| extents.push(extent));
        if mapped.is_broken {
            return None;
        }
        let blocks = layout.blocks_of(file);
        if blocks > ctx.geometry.blocks {
            let most = format!("at most {}", ctx.geometry.blocks);
            return fault(finding_of(ino).detail("number of blocks").mismatch(most, blocks));
        }
        let mut at = 0;
        for extent in extents.iter().filter(|extent| !extent.unwritten) {
            if extent.offset.0 != at || !ctx.geometry.contains(extent.start, extent.len) {
                break;
            }
            at = extent.end().0;
        }
        if at < blocks {
            let finding = finding_of(ino).detail("number of blocks before the first hole");
            return fault(finding.mismatch(blocks, at));
        }
        Some(Self { file, ino, extents })
    }

    /// Calls `each` with the blocks of the file in their order, each with its number. Returns false if one cannot be
    /// read.
    pub(super) fn blocks(
        &self,
        inodes: &Inodes<'_>,
        layout: &SpaceLayout,
        mut each: impl FnMut(u64, Block, &[u8]),
    ) -> bool {
        let geometry = &inodes.ctx.geometry;
        let mut bytes = vec![0; geometry.block_size()];
        let mut left = layout.blocks_of(self.file);
        for extent in self.extents.iter().filter(|extent| !extent.unwritten) {
            for nth in 0..extent.len.min(left) {
                let place = geometry.device_block(extent.start.plus(nth));
                if inodes.ctx.observer.is_cancelled() || !inodes.ctx.read(place, &mut bytes) {
                    return false;
                }
                if let Err(damage) = layout.verify(geometry, (self.file, self.ino), place, &bytes) {
                    let damage = damage.of_inode(self.ino.0);
                    inodes.ctx.damage(codes::REALTIME_HEADER, &damage, Some(place));
                }
                if layout.has_headers() {
                    let finding = || {
                        let finding = Finding::new(codes::REALTIME_HEADER).of_inode(self.ino.0);
                        finding.at_block(place.0).field("rt_lsn")
                    };
                    inodes.ctx.check_lsn(be64(&bytes, LSN_OFFSET), finding);
                }
                each(extent.offset.0 + nth, place, &bytes);
            }
            left = left.saturating_sub(extent.len);
        }
        true
    }
}

/// Returns a finding about one of the section's files.
fn finding_of(ino: Ino) -> Finding {
    Finding::new(codes::REALTIME_FILE).of_inode(ino.0)
}
