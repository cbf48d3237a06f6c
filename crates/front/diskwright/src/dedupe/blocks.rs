//! Sharing between blocks whose contents are equal.

use vfs::{ExtentPlace, MappedExtent};

use super::candidates::{Candidate, Candidates};
use super::{Pass, extents};
use crate::Result;
use crate::build::dedupe::FilePart;
use crate::build::dedupe::blocks::{DistinctBlocks, add, blocks_in};

impl Pass<'_> {
    /// Shares equal blocks of all files. Contiguous blocks are shared by one operation.
    pub(super) fn share_blocks(&mut self, candidates: &Candidates) -> Result<()> {
        let mut known = DistinctBlocks::default();
        for candidate in candidates.iter() {
            self.begin(candidate)?;
            if let Err(error) = self.share_blocks_of(candidate, &mut known) {
                self.leave_out(candidate, error)?;
            }
        }
        Ok(())
    }

    fn share_blocks_of(
        &mut self,
        candidate: &Candidate,
        known: &mut DistinctBlocks,
    ) -> vfs::Result<()> {
        let mut parts = Vec::new();
        for extent in extents(self.fs, (candidate.ino, 0), candidate.size)? {
            if matches!(extent.place, ExtentPlace::Device(_)) {
                self.find_known(candidate, &extent, known, &mut parts)?;
            }
        }
        for part in parts {
            if let Some(same) = part.same {
                self.share(same, (candidate.ino, part.run.offset), part.run.len)?;
            }
        }
        Ok(())
    }

    /// Adds the parts of an extent, with the locations of equal blocks that were found before.
    fn find_known(
        &mut self,
        candidate: &Candidate,
        extent: &MappedExtent,
        known: &mut DistinctBlocks,
        parts: &mut Vec<FilePart>,
    ) -> vfs::Result<()> {
        let (mut at, end) = (extent.offset, extent.offset + extent.len);
        while at < end {
            let wanted = (end - at).min(self.buffer.len() as u64) as usize;
            let count = self.fs.read(candidate.ino, at, &mut self.buffer[..wanted])?;
            if count == 0 {
                break;
            }
            for (offset, block) in blocks_in(at, &self.buffer[..count], self.block_size) {
                let same = known.known_or_new(block, (candidate.ino, offset));
                add(parts, offset, block.len() as u64, same);
            }
            at += count as u64;
            self.count_read(count as u64);
        }
        Ok(())
    }
}
