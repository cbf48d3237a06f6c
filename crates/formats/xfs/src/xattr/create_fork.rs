//! Adding an attribute fork to an inode with any data fork.

use operations::Outcome;

use super::change::AttrChange;
use super::forkoff::{
    DEFAULT, DEVICE_BYTES, boundary_for, create_beside_tree, data_bytes, highest, start,
};
use crate::dir::DirChange;
use crate::format::inode::{Fork, ForkFormat};

impl AttrChange<'_, '_> {
    /// Adds an empty attribute fork in the inode, with room for `bytes` if possible. A data fork that leaves no room
    /// for the smallest attribute fork is converted to another form.
    pub(super) fn create_fork(&mut self, bytes: usize) -> Outcome<()> {
        let is_full = data_bytes(self.handle).next_multiple_of(8) > highest(&self.handle.inode);
        match self.handle.inode.format() {
            ForkFormat::Device => {
                start(self.handle, DEVICE_BYTES);
                return Ok(());
            }
            ForkFormat::Btree | ForkFormat::MetaBtree => {
                return Ok(create_beside_tree(self.handle, bytes)?);
            }
            ForkFormat::Extents if is_full => {
                self.op.list_to_tree(self.handle, Fork::Data)?;
                return Ok(create_beside_tree(self.handle, bytes)?);
            }
            ForkFormat::Local if is_full && self.handle.inode.is_dir() => {
                DirChange::new(self.op, self.handle).short_to_block()?;
            }
            ForkFormat::Local if is_full => self.op.move_target_out(self.handle)?,
            ForkFormat::Local | ForkFormat::Extents => {}
        }
        let used = data_bytes(self.handle);
        let wanted = boundary_for(self.handle, bytes).unwrap_or(DEFAULT).max(used);
        start(self.handle, wanted.next_multiple_of(8).min(highest(&self.handle.inode)));
        Ok(())
    }
}
