//! Adding blocks to a tree and freeing them.

use operations::Outcome;

use super::{Cursor, Node, Supply, Tree};

impl<'a, T: Tree, S: Supply<'a, T>> Cursor<'_, 'a, T, S> {
    /// Returns a new, empty block, close to the block `near` of the tree if possible.
    pub(super) fn new_node(&mut self, level: usize, near: u64) -> Outcome<Node> {
        let pointer = self.anchor.allocate_block(near)?;
        self.anchor.count_block(true)?;
        let place = self.place_of(pointer)?;
        let tag = self.tag();
        let id = self.anchor.txn_mut().create(place.0, tag)?;
        let geometry = self.anchor.geometry();
        let header = T::SHAPE.header_size(geometry.features.crc());
        let bytes = self.anchor.txn_mut().edit(id, 0..header);
        T::SHAPE.init(geometry, place, tag.owner, level as u16, bytes);
        Ok(Node { block: pointer, buffer: Some(id), level })
    }

    /// Frees a block of the tree.
    pub(super) fn free_node(&mut self, node: Node) -> Outcome<()> {
        let place = self.place_of(node.block)?;
        self.anchor.txn_mut().forget(place.0);
        self.anchor.count_block(false)?;
        self.anchor.free_block(node.block)
    }
}
