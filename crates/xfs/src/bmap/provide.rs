//! Giving a fork the blocks that a change of its contents needs, in the state it needs them in.

use vfs::reserve::Claim;
use vfs::{FileType, Result};

use super::change::{one, with_part};
use super::{Extent, check, lookup};
use crate::alloc::{Owner, Request};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::extent::LEN_MAX;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

/// What some blocks of a file are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// To hold data that this operation writes.
    Written,
    /// To be there: holes become unwritten.
    Allocated,
    /// To be there, and if they hold data, to be no other file's: what they hold is about to change.
    Own,
    /// To be there and read as zeros: unwritten.
    Zeroed,
}

/// What a block of a file was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    Hole,
    Unwritten,
    Written,
}

/// Some blocks of a file that lie together, as [`Op::provide`] left them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: FsBlock,
    /// Blocks, at least one.
    pub(crate) len: u64,
    pub(crate) was: Was,
    /// Whether what the device holds there is now what the file holds.
    pub(crate) written: bool,
    /// Where the contents are that the blocks must get, as far as they are not written over: others have
    /// those blocks, too.
    pub(crate) copied_from: Option<FsBlock>,
}

impl Piece {
    /// Whether the device holds what must not be seen, unless the operation writes over it.
    pub(crate) fn is_exposed(&self) -> bool {
        self.written && self.was != Was::Written
    }

    /// Whether the map was changed for it.
    pub(crate) fn is_change(&self) -> bool {
        let is_converted = self.written != (self.was == Was::Written);
        self.was == Was::Hole || is_converted || self.copied_from.is_some()
    }
}

impl Op<'_> {
    /// Sees to it that a file has block `at`, and more up to `limit` as far as they lie together, in the
    /// state that is wanted. Blocks that other files have, too, are replaced if what they hold is to
    /// change. Only the map is changed: [`Piece::is_exposed`] and [`Piece::copied_from`] say what must be
    /// written to the device.
    pub(crate) fn provide(
        &mut self,
        file: &mut Handle,
        at: FileBlock,
        limit: FileBlock,
        want: Want,
    ) -> Result<Piece> {
        let (extent, next) = lookup(self, file, Fork::Data, at)?;
        let before = match extent {
            Some(extent) => {
                check(self, file, Fork::Data, &extent)?;
                if at < extent.end() {
                    return self.bring_to_own(file, extent, at, limit, want);
                }
                Some(extent)
            }
            None => None,
        };
        let end = limit.min(next);
        let len = end.0.saturating_sub(at.0).clamp(1, LEN_MAX);
        let near = match before {
            Some(extent) => self.goal_after(&extent),
            None => self.fs.hints.data_goal(self, file),
        };
        let unwritten = want != Want::Written;
        let (start, len) = self.take(file, Fork::Data, at, (1, len as u32), near, unwritten)?;
        self.fs.hints.note_data(self, file, start.plus(len));
        let written = !unwritten;
        Ok(Piece { start, len, was: Was::Hole, written, copied_from: None })
    }

    /// Where blocks behind those of an extent are best.
    fn goal_after(&self, extent: &Extent) -> FsBlock {
        let next = extent.start.plus(extent.len);
        if self.fs.volume.geometry.contains(next, 1) { next } else { extent.start }
    }

    /// Takes blocks for the start of a hole, enters them into the map and counts them. What was had.
    fn take(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        at: FileBlock,
        (min_len, max_len): (u32, u32),
        near: FsBlock,
        unwritten: bool,
    ) -> Result<(FsBlock, u64)> {
        let owner = Owner::Fork { ino: handle.ino(), fork, offset: at.0, unwritten };
        let for_data = handle.inode.file_type() == Some(FileType::Regular) && fork == Fork::Data;
        let request = Request { near, min_len, max_len, owner, for_data };
        let (start, len) = self.allocate_extent(&request)?;
        let len = u64::from(len);
        let extent = Extent { offset: at, start, len, unwritten };
        self.change_joined(handle, fork, None, one(extent))?;
        handle.inode.set_nblocks(handle.inode.nblocks() + len);
        Ok((start, len))
    }

    /// Makes what an extent has from `at` to `limit` written or unwritten, as is wanted.
    pub(super) fn bring_to_state(
        &mut self,
        file: &mut Handle,
        extent: Extent,
        at: FileBlock,
        limit: FileBlock,
        want: Want,
    ) -> Result<Piece> {
        let limit = limit.max(at.plus(1));
        let Some(part) = extent.part(at, limit) else {
            return Err(file.corrupt("extent", "it has not the block that it was found for"));
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
            // The space is the file's already: writing to it must not fail for want of room in the map.
            let claim = self.claim;
            self.claim = claim.max(Claim::Promised);
            self.convert_rmap(file, &part)?;
            let pieces = with_part(&extent, Extent { unwritten, ..part });
            self.change_joined(file, Fork::Data, Some(extent), pieces)?;
            self.claim = claim;
        }
        Ok(piece)
    }

    /// Notes in the reverse map that a part of an extent changes its state.
    fn convert_rmap(&mut self, file: &Handle, part: &Extent) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let (ag, block) = geometry.split(part.start);
        let lease = self.lease(ag)?;
        let owner = Owner::Fork {
            ino: file.ino(),
            fork: Fork::Data,
            offset: part.offset.0,
            unwritten: part.unwritten,
        };
        self.rmap_convert(lease, block, part.len as u32, owner)
    }

    /// Allocates `len` blocks for a hole of a fork of metadata (a directory's or the attributes'), in
    /// one piece, and maps them there as written.
    pub(crate) fn map_new(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        at: FileBlock,
        len: u32,
    ) -> Result<FsBlock> {
        let (extent, next) = lookup(self, handle, fork, at)?;
        let is_hole = extent.is_none_or(|extent| extent.end() <= at) && at.plus(len.into()) <= next;
        if !is_hole {
            return Err(handle.corrupt("extent", format!("blocks at {at} where none should be")));
        }
        let near = match extent {
            Some(extent) => {
                check(self, handle, fork, &extent)?;
                self.goal_after(&extent)
            }
            None => self.metadata_goal(handle),
        };
        let (start, _) = self.take(handle, fork, at, (len, len), near, false)?;
        Ok(start)
    }
}
