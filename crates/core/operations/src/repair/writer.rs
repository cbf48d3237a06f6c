//! Writing steps through an image's own journal or log.

use std::collections::BTreeMap;

use vfs::Result;

use crate::repair::Step;

/// An image's own journal or log, open for writing whole blocks of the file system. A format creates it for an image
/// whose log can be trusted, after writing back the contents of the log.
pub trait StepWriter {
    /// Returns the block size of the file system in bytes.
    fn block_size(&self) -> usize;

    /// Returns the maximum number of blocks of a transaction.
    fn blocks_max(&self) -> usize;

    /// Returns whether the log can hold these steps: a replay after a crash writes all their blocks.
    fn accepts(&self, _steps: &[Step]) -> bool {
        true
    }

    /// Writes blocks in one transaction, which is atomic across a crash and durable on return. The blocks are whole,
    /// and numbered from the start of the device. Blocks of the log itself are skipped.
    ///
    /// # Errors
    /// If the device fails; no further writes are possible then.
    fn write(&mut self, blocks: &BTreeMap<u64, Vec<u8>>) -> Result<()>;

    /// Writes back all blocks and leaves the log empty.
    ///
    /// # Errors
    /// If the device fails.
    fn close(self: Box<Self>) -> Result<()>;
}
