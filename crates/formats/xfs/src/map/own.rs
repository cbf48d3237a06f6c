//! Copy on write. A file never changes blocks that it shares with other files. Before it changes their contents, they
//! are replaced by new blocks.

use operations::Outcome;

use super::change::with_part;
use super::fork::ForkMap;
use super::{Extent, Piece, Want, Was};
use crate::alloc::ExtentRequest;
use crate::format::address::FileBlock;
use crate::format::inode::flags2;
use crate::inode::Handle;

/// Returns whether a file may share blocks with others. Files without the flag `REFLINK` share none.
pub(crate) fn may_share(file: &Handle) -> bool {
    file.inode.flags2() & flags2::REFLINK != 0
}

impl ForkMap<'_, '_> {
    /// Like [`ForkMap::bring_to_state`], but replaces shared blocks whose contents are to change. A piece is either
    /// shared or not.
    pub(super) fn bring_to_own(
        &mut self,
        extent: Extent,
        at: FileBlock,
        limit: FileBlock,
        want: Want,
    ) -> Outcome<Piece> {
        // Unwritten blocks have no contents, so they need a copy only if data is written.
        let changes = match want {
            Want::Allocated => false,
            Want::Own | Want::Zeroed => !extent.unwritten,
            Want::Written => true,
        };
        let limit = limit.max(at.plus(1));
        let Some(part) = extent.part(at, limit).filter(|_| changes && may_share(self.handle))
        else {
            return self.bring_to_state(extent, at, limit, want);
        };
        let (is_own, len) = self.op.own_blocks(self.device_address(&part)?, part.len)?;
        if is_own {
            return self.bring_to_state(extent, at, at.plus(len), want);
        }
        let part = Extent { len, ..part };
        self.replace_shared(extent, part, want == Want::Zeroed)
    }

    /// Replaces the start of a part of an extent by new blocks, as many as are contiguous.
    fn replace_shared(&mut self, extent: Extent, part: Extent, unwritten: bool) -> Outcome<Piece> {
        let old_owner = self.owner_of(&part);
        let owner = self.owner_of(&Extent { unwritten, ..part });
        let max_len = part.len as u32;
        let (start, len) = if self.realtime()?.is_some() {
            let (start, len) = self.op.allocate_realtime(Some(part.start), max_len.into())?;
            self.op.own_realtime(start, len, owner)?;
            (start, len as u32)
        } else {
            let request = ExtentRequest {
                near: part.start,
                lead: 0,
                min_len: 1,
                max_len,
                owner,
                for_data: true,
            };
            self.op.allocate_extent(&request)?
        };
        let new = Extent { start, len: len.into(), unwritten, ..part };
        self.change_joined(Some(extent), with_part(&extent, new))?;
        let address = self.device_address(&part)?;
        self.op.free_extent(address, len, old_owner);
        // Unwritten blocks have no contents to copy.
        let (was, copied_from) = match part.unwritten {
            true => (Was::Hole, None),
            false => (Was::Written, Some(part.start).filter(|_| !unwritten)),
        };
        Ok(Piece { start, len: len.into(), was, written: !unwritten, copied_from })
    }
}
