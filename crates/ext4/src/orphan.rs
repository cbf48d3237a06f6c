//! To be replaced: the orphan file and the orphan list.

use vfs::Result;

use crate::op::{Handle, Op};

impl Op<'_> {
    /// Notes that a file is being cut, so that a crash does not leave blocks past its size.
    pub(crate) fn add_orphan(&mut self, _file: &mut Handle) -> Result<()> {
        Ok(())
    }

    /// The file is whole again.
    pub(crate) fn remove_orphan(&mut self, _file: &mut Handle) -> Result<()> {
        Ok(())
    }
}
