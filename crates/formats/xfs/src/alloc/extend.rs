//! Extending a group.

use operations::Outcome;

use super::held::HeldAg;
use crate::format::address::AgBlock;

impl HeldAg<'_, '_> {
    /// Extends the group to `length` blocks. The new blocks become free; they have no owner in the reverse map.
    pub(crate) fn extend(&mut self, length: u32) -> Outcome<()> {
        let start = self.guard.length;
        self.guard.length = length;
        self.adjust_agfl()?;
        self.give_space(AgBlock(start), length - start)
    }
}
