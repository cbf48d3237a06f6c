//! Blocks shared by several files.

use std::ops::Range;

use operations::RunOperations;
use operations::data::{ChangeFiles, MapFiles, Mapping};
use vfs::Result;

use crate::XfsCore;
use crate::inode::Handle;

impl XfsCore {
    /// Returns whether all of some bytes of a file are in written blocks that no other file shares. The result stays
    /// valid while the file is locked.
    pub(super) fn has_own(&self, file: &Handle, bytes: Range<u64>) -> Result<bool> {
        let blocks = self.blocks_of(file, bytes.start, bytes.end - bytes.start)?;
        self.atomically(|op| {
            let mut at = blocks.start;
            while at < blocks.end {
                let run = self.run_at(op, file, at)?;
                let Mapping::Written(start) = run.place else { return Ok(false) };
                let (is_own, len) = op.own_blocks(start, run.len.min(blocks.end.0 - at.0))?;
                if !is_own {
                    return Ok(false);
                }
                at = at.plus(len);
            }
            Ok(true)
        })
    }
}
