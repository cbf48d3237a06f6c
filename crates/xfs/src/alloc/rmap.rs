//! The reverse map: whom each block in use belongs to. Without that tree nothing here does anything.

use vfs::{Error, Result};

use crate::alloc::Owner;
use crate::format::address::AgBlock;
use crate::op::Op;

impl Op<'_> {
    /// Enters that `len` blocks from `start` on, of the group held as `lease`, belong to `owner`.
    pub(crate) fn rmap_add(
        &mut self,
        lease: usize,
        _start: AgBlock,
        _len: u32,
        _owner: Owner,
    ) -> Result<()> {
        if self.leases[lease].root(super::ags::AgTree::Rmap).levels == 0 {
            return Ok(());
        }
        Err(Error::unsupported("reverse maps", ""))
    }

    /// Takes out that `len` blocks from `start` on belong to `owner`, which must be entered.
    pub(crate) fn rmap_remove(
        &mut self,
        lease: usize,
        _start: AgBlock,
        _len: u32,
        _owner: Owner,
    ) -> Result<()> {
        if self.leases[lease].root(super::ags::AgTree::Rmap).levels == 0 {
            return Ok(());
        }
        Err(Error::unsupported("reverse maps", ""))
    }

    /// Makes blocks of a fork that are entered as in `owner` unwritten ones, or the other way round:
    /// `owner` says what they are now.
    pub(crate) fn rmap_convert(
        &mut self,
        lease: usize,
        _start: AgBlock,
        _len: u32,
        _owner: Owner,
    ) -> Result<()> {
        if self.leases[lease].root(super::ags::AgTree::Rmap).levels == 0 {
            return Ok(());
        }
        Err(Error::unsupported("reverse maps", ""))
    }
}
