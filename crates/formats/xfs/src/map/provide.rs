//! Providing blocks of a fork in the state that a change of its contents needs.

use std::ops::Range;

use operations::Mode;
use operations::Outcome;
use operations::data::{NearbyPlace, nearby_place};
use operations::reserve::Claim;
use vfs::FileType;

use super::Extent;
use super::change::{one, with_part};
use super::fork::ForkMap;
use super::realtime::Wanted;
use super::{Piece, Want, Was};
use crate::alloc::{ExtentRequest, RmapOwner};
use crate::format::address::{AgBlock, FileBlock, FsBlock};
use crate::format::extent::LEN_MAX;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Brings block `at` of a file, and contiguous blocks up to `limit`, into the wanted state. Replaces shared blocks
    /// whose contents are to change. Changes only the map: [`Piece::is_exposed`] and [`Piece::copied_from`] describe
    /// what must be written to the device.
    pub(crate) fn provide(
        &mut self,
        file: &mut Handle,
        at: FileBlock,
        limit: FileBlock,
        want: Want,
    ) -> Outcome<Piece> {
        self.map(file, Fork::Data).provide(at, limit, want)
    }

    /// Allocates `len` contiguous blocks for a hole of a metadata fork (a directory's, or the attribute fork), and maps
    /// them as written.
    pub(crate) fn map_new(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        at: FileBlock,
        len: u32,
    ) -> Outcome<FsBlock> {
        self.map(handle, fork).map_new(at, len)
    }
}

impl ForkMap<'_, '_> {
    fn provide(&mut self, at: FileBlock, limit: FileBlock, want: Want) -> Outcome<Piece> {
        let (extent, next) = self.lookup(at)?;
        let before = match extent {
            Some(extent) => {
                self.check(&extent)?;
                if at < extent.end() {
                    return self.bring_to_own(extent, at, limit, want);
                }
                Some(extent)
            }
            None => None,
        };
        if let Some(realtime) = self.realtime()? {
            let wanted = Wanted { at, limit, before, next };
            return self.provide_realtime(&realtime, &wanted, want);
        }
        let end = limit.min(next);
        let len = end.0.saturating_sub(at.0).clamp(1, LEN_MAX);
        let (near, lead) = self.goal_between(before, next, &(at.0..at.0 + len))?;
        let unwritten = want != Want::Written;
        let (start, len) = self.take(at, (1, len as u32), (near, lead), unwritten)?;
        let (hints, geometry) = (&self.op.fs.hints, &self.op.fs.volume.geometry);
        hints.note_data(geometry, self.handle, start.plus(len));
        let written = !unwritten;
        Ok(Piece { start, len, was: Was::Hole, written, copied_from: None })
    }

    /// Returns the best place for `new` blocks of a hole that ends at `next`, and the number of blocks from that place
    /// on that should stay free before them.
    fn goal_between(
        &mut self,
        before: Option<Extent>,
        next: FileBlock,
        new: &Range<u64>,
    ) -> Outcome<(FsBlock, u32)> {
        let geometry = self.op.fs.volume.geometry;
        // A build writes each file from front to back, and its holes stay.
        let mut lead = 0;
        if self.op.fs.mode != Mode::InProgress {
            let after = (next < FileBlock::END).then_some(next.0);
            let hole = (before.map(|extent| extent.end().0), after);
            match nearby_place(hole, new, geometry.block_log.into()) {
                NearbyPlace::Behind { free } => lead = free as u32,
                NearbyPlace::InFront => {
                    if let Some(goal) = self.goal_in_front(next, new.start)? {
                        return Ok((goal, 0));
                    }
                }
            }
        }
        let near = match before {
            Some(extent) => self.goal_after(&extent),
            None => (self.op.fs.hints.data_goal(&geometry, self.handle))
                .unwrap_or_else(|| self.op.metadata_goal(self.handle)),
        };
        Ok((near, lead))
    }

    /// Returns the block that is as far in front of the extent at `next` as block `at` of the file, if it is in the same
    /// group.
    fn goal_in_front(&mut self, next: FileBlock, at: u64) -> Outcome<Option<FsBlock>> {
        let Some(extent) = self.lookup(next)?.0 else { return Ok(None) };
        self.check(&extent)?;
        let geometry = &self.op.fs.volume.geometry;
        let (ag, start) = geometry.split(extent.start);
        let distance = extent.offset.0.checked_sub(at);
        let goal = distance.and_then(|it| u64::from(start.0).checked_sub(it));
        Ok(goal.map(|goal| geometry.fs_block(ag, AgBlock(goal as u32))))
    }

    /// Returns the best place for the blocks after those of an extent.
    fn goal_after(&self, extent: &Extent) -> FsBlock {
        let next = extent.start.plus(extent.len);
        if self.op.fs.volume.geometry.contains(next, 1) { next } else { extent.start }
    }

    /// Allocates blocks for the start of a hole, and adds them to the map and the inode's count. Returns what was
    /// allocated.
    fn take(
        &mut self,
        at: FileBlock,
        (min_len, max_len): (u32, u32),
        (near, lead): (FsBlock, u32),
        unwritten: bool,
    ) -> Outcome<(FsBlock, u64)> {
        let inode = &self.handle.inode;
        let for_data = inode.file_type() == Some(FileType::Regular) && self.fork == Fork::Data;
        let (ino, fork, offset) = (self.handle.ino(), self.fork, at.0);
        let owner = RmapOwner::Fork { ino, fork, offset, unwritten };
        let request = ExtentRequest { near, lead, min_len, max_len, owner, for_data };
        let (start, len) = self.op.allocate_extent(&request)?;
        let len = u64::from(len);
        let extent = Extent { offset: at, start, len, unwritten };
        self.change_joined(None, one(extent))?;
        let inode = &mut self.handle.inode;
        inode.set_nblocks(inode.nblocks() + len);
        Ok((start, len))
    }

    /// Converts the blocks of an extent from `at` to `limit` to written or unwritten, as wanted.
    pub(super) fn bring_to_state(
        &mut self,
        extent: Extent,
        at: FileBlock,
        limit: FileBlock,
        want: Want,
    ) -> Outcome<Piece> {
        let limit = limit.max(at.plus(1));
        let Some(part) = extent.part(at, limit) else {
            return Err(self.handle.corrupt("extent", "it lacks an expected block").into());
        };
        let was = if extent.unwritten { Was::Unwritten } else { Was::Written };
        let unwritten = match want {
            Want::Written => false,
            Want::Allocated | Want::Own => extent.unwritten,
            Want::Zeroed => true,
        };
        let (start, len, written) = (part.start, part.len, !unwritten);
        let piece = Piece { start, len, was, written, copied_from: None };
        if unwritten != extent.unwritten {
            // The space was promised when it was allocated: writing to it must not fail for lack of space for the map.
            let claim = self.op.claim;
            self.op.claim = claim.max(Claim::Promised);
            self.convert_rmap(&part)?;
            let pieces = with_part(&extent, Extent { unwritten, ..part });
            self.change_joined(Some(extent), pieces)?;
            self.op.claim = claim;
        }
        Ok(piece)
    }

    /// Updates the reverse map for a part of an extent that changes its state.
    fn convert_rmap(&mut self, part: &Extent) -> Outcome<()> {
        let owner = self.owner_of(part);
        if self.realtime()?.is_some() {
            return self.op.convert_realtime(part.start, part.len, owner);
        }
        let (ag, block) = self.op.fs.volume.geometry.split(part.start);
        self.op.ag(ag)?.rmap_convert(block, part.len as u32, owner)
    }

    fn map_new(&mut self, at: FileBlock, len: u32) -> Outcome<FsBlock> {
        let (extent, next) = self.lookup(at)?;
        let is_hole = extent.is_none_or(|extent| extent.end() <= at) && at.plus(len.into()) <= next;
        if !is_hole {
            return Err(self.handle.corrupt("extent", format!("unexpected blocks at {at}")).into());
        }
        let near = match extent {
            Some(extent) => {
                self.check(&extent)?;
                self.goal_after(&extent)
            }
            None => self.op.metadata_goal(self.handle),
        };
        let (start, _) = self.take(at, (len, len), (near, 0), false)?;
        Ok(start)
    }
}
