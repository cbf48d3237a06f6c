//! A group that becomes longer.

use operation::Outcome;

use super::held::HeldAg;
use crate::format::address::AgBlock;

impl HeldAg<'_, '_> {
    /// Makes the group `length` blocks long, which is more than it has. What it gets is free, and nothing in the
    /// reverse map has ever had it.
    pub(crate) fn extend(&mut self, length: u32) -> Outcome<()> {
        let start = self.guard.length;
        self.guard.length = length;
        self.adjust_agfl()?;
        self.give_space(AgBlock(start), length - start)
    }
}
