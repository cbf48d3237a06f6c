//! The attribute that holds what of a file's inline data does not fit into `i_block`.

use smallvec::SmallVec;
use transaction::Corruption;
use vfs::Result;

use super::plan::again;
use crate::format::xattr::{AttributeName, NewAttribute, encode_in_inode};
use crate::op::{Handle, Op};
use crate::read;

impl Op<'_> {
    /// The bytes for [`Op::stage_with_tail`] that take the attribute of inline data (`system.data`)
    /// from an inode and leave the others; nothing changes yet. For a file whose contents move to
    /// blocks: `tail` is what [`read::xattr::slot_area`] gave, and stays as it is if there is no such
    /// attribute.
    #[allow(dead_code, reason = "for what moves inline contents to blocks")]
    pub(crate) fn remove_inline_data_attribute(
        &self,
        handle: &Handle,
        tail: &mut Vec<u8>,
    ) -> Result<()> {
        let mut bytes = vec![0; tail.len()];
        {
            let Some(area) = read::xattr::parse_slot_area(handle, tail)? else { return Ok(()) };
            let others = area.entries().map(again).filter(|a| a.name != AttributeName::INLINE_DATA);
            let mut others: SmallVec<[NewAttribute<'_>; 8]> = others.collect();
            if !encode_in_inode(&mut bytes, &mut others) {
                let damage = Corruption::new("extended attributes", "values overlap each other");
                return Err(damage.of_inode(handle.ino().0).into());
            }
        }
        *tail = bytes;
        Ok(())
    }
}
