//! Metadata blocks held by a transaction.

use std::ops::Range;

use engine::{BufferId, Txn};

use crate::format::edit::Edit;

/// A block held by a transaction for changing.
pub(crate) struct HeldBlock<'t, 'e> {
    pub(crate) txn: &'t mut Txn<'e>,
    pub(crate) id: BufferId,
}

impl Edit for HeldBlock<'_, '_> {
    fn bytes(&self) -> &[u8] {
        self.txn.data(self.id)
    }

    fn edit(&mut self, range: Range<usize>) -> &mut [u8] {
        self.txn.edit(self.id, range)
    }

    fn shift(&mut self, source: Range<usize>, to: usize) {
        self.txn.shift(self.id, source, to);
    }
}
