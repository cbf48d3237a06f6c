//! Copy on write: blocks that other files have, too, are not changed. A file that is about to change
//! what they hold gets others in their place.

use vfs::Result;

use super::change::with_part;
use super::{Extent, Piece, Want, Was};
use crate::alloc::{Owner, Request};
use crate::format::address::FileBlock;
use crate::format::inode::{Fork, flags2};
use crate::inode::Handle;
use crate::op::Op;

/// Whether a file may have blocks that others have. Without the mark it has none.
pub(crate) fn may_share(file: &Handle) -> bool {
    file.inode.flags2() & flags2::REFLINK != 0
}

impl Op<'_> {
    /// As [`Op::bring_to_state`], with other blocks in the place of shared ones where what they hold is to
    /// change. Shared and unshared blocks are different pieces.
    pub(super) fn bring_to_own(
        &mut self,
        file: &mut Handle,
        extent: Extent,
        at: FileBlock,
        limit: FileBlock,
        want: Want,
    ) -> Result<Piece> {
        let changes = match want {
            Want::Allocated => false,
            Want::Own | Want::Zeroed => !extent.unwritten,
            Want::Written => true,
        };
        let limit = limit.max(at.plus(1));
        let Some(part) = extent.part(at, limit).filter(|_| changes && may_share(file)) else {
            return self.bring_to_state(file, extent, at, limit, want);
        };
        let (is_own, len) = self.own_blocks(part.start, part.len)?;
        if is_own {
            return self.bring_to_state(file, extent, at, at.plus(len), want);
        }
        let part = Extent { len, ..part };
        self.replace_shared(file, extent, part, want == Want::Zeroed)
    }

    /// Puts new blocks in the place of a part of an extent, as many as lie together.
    fn replace_shared(
        &mut self,
        file: &mut Handle,
        extent: Extent,
        part: Extent,
        unwritten: bool,
    ) -> Result<Piece> {
        let owner = |unwritten| Owner::Fork {
            ino: file.ino(),
            fork: Fork::Data,
            offset: part.offset.0,
            unwritten,
        };
        let (old_owner, owner) = (owner(part.unwritten), owner(unwritten));
        let max_len = part.len as u32;
        let request = Request { near: part.start, min_len: 1, max_len, owner, for_data: true };
        let (start, len) = self.allocate_extent(&request)?;
        let new = Extent { start, len: len.into(), unwritten, ..part };
        self.change_joined(file, Fork::Data, Some(extent), with_part(&extent, new))?;
        self.free_extent(part.start, len, old_owner);
        // Whatever unwritten blocks held is nobody's contents.
        let (was, copied_from) = match part.unwritten {
            true => (Was::Hole, None),
            false => (Was::Written, Some(part.start).filter(|_| !unwritten)),
        };
        Ok(Piece { start, len: len.into(), was, written: !unwritten, copied_from })
    }
}
