//! The attribute that stores inline data beyond `i_block`.

use smallvec::SmallVec;
use vfs::Result;

use super::plan::again;
use crate::Ext4Core;
use crate::format::xattr::{AttributeName, NewAttribute, encode_in_inode};
use crate::inode::Handle;
use crate::xattr;

impl Ext4Core {
    /// Returns the rest of an inode's slot without the attribute for inline data (`system.data`). For
    /// [`Op::stage_with_tail`](crate::op::Op), when the contents move to blocks.
    pub(crate) fn tail_without_inline_data(&self, handle: &Handle) -> Result<Vec<u8>> {
        let old = xattr::slot_tail(self, handle)?;
        let Some(area) = xattr::parse_slot_area(handle, &old)? else {
            return Ok(old.into_vec());
        };
        let others = area.entries().map(again).filter(|a| a.name != AttributeName::INLINE_DATA);
        let mut others: SmallVec<[NewAttribute<'_>; 8]> = others.collect();
        let mut tail = vec![0; old.len()];
        if !encode_in_inode(&mut tail, &mut others) {
            return Err(handle.corrupt("extended attributes", "values overlap each other"));
        }
        Ok(tail)
    }
}
