//! Releasing all attributes of an inode that is being deleted.

use engine::Corruption;
use operations::Outcome;

use super::plan::{ValueRefs, value_refs};
use super::value::ValueInodes;
use crate::format::address::Block;
use crate::format::xattr::{Area, block_refcount};
use crate::inode::Handle;
use crate::op::Op;
use crate::xattr;

impl Op<'_> {
    /// Releases everything that the attributes of `handle` use outside of its slot. The attribute block is freed, or
    /// loses a reference if other inodes share it. Value inodes lose a reference and are freed with the last one.
    ///
    /// For the operation that frees the inode: the entries in its slot stay, and are cleared with the slot. `values` is
    /// the result of [`Ext4Core::attributes_guard`](crate::Ext4Core), called for all inodes to release, with their
    /// locks held and before the operation began.
    pub(crate) fn release_attributes(
        &mut self,
        handle: &mut Handle,
        values: Option<&ValueInodes<'_>>,
    ) -> Outcome<()> {
        let fs = self.fs;
        let tail = xattr::slot_tail(fs, handle)?;
        let slot = xattr::parse_slot_area(handle, &tail)?;
        let mut gone: ValueRefs = slot.into_iter().flat_map(value_refs).collect();
        let mut needs_guard = !gone.is_empty();
        let mut count = gone.len();
        let block = Block(handle.inode.file_acl());
        if block != Block(0) {
            let (references, in_block) = self.look_at_block(handle, block)?;
            let noted = self.released_attributes.iter().filter(|&&noted| noted == block).count();
            let others = references.checked_sub(1 + noted as u32).ok_or_else(|| {
                let damage = "it has more references than counted";
                Corruption::new("extended attribute block", damage).at_block(block.0)
            })?;
            // Without the guard, another operation may drop a reference at the same time, so the last reference cannot
            // be determined.
            needs_guard |= !in_block.is_empty();
            count += in_block.len();
            if others == 0 {
                gone.extend(in_block);
            }
            self.drop_block(handle, others > 0 || noted > 0)?;
        }
        self.usage.change_values(handle.ino(), -(count as i64));
        match values {
            Some(values) => self.subtract_references(values, handle, &gone),
            None if !needs_guard => Ok(()),
            None => {
                let problem = "a value is unexpectedly stored in an inode";
                Err(handle.corrupt("extended attributes", problem).into())
            }
        }
    }

    /// Returns the reference count of an attribute block and the values that it refers to.
    fn look_at_block(&self, handle: &Handle, block: Block) -> Outcome<(u32, ValueRefs)> {
        if self.txn.holds(block.0) {
            let problem = "its attribute block is also used elsewhere";
            return Err(handle.corrupt("inode", problem).into());
        }
        let Some(bytes) = xattr::block(self.fs, handle)? else {
            return Ok((0, ValueRefs::new()));
        };
        Ok((block_refcount(&bytes), value_refs(Area::in_block(&bytes)).collect()))
    }
}
