//! Writing steps through an image's own journal or log.

use std::collections::BTreeMap;

use vfs::Result;

/// An image's own journal or log, open to write whole blocks of the file system through it. A format makes it for an
/// image whose log can be trusted; what the log held is in its place by then.
pub trait StepWriter {
    /// Size of a block of the file system, in bytes.
    fn block_size(&self) -> usize;

    /// The most blocks that one transaction may have.
    fn blocks_max(&self) -> usize;

    /// Writes blocks in one transaction: after a crash all of them are there or none. They are numbered from the start
    /// of the device, and are whole. Those of the log itself are passed over. Durable when it returns.
    ///
    /// # Errors
    /// If the device fails; nothing can be written any more then.
    fn write(&mut self, blocks: &BTreeMap<u64, Vec<u8>>) -> Result<()>;

    /// Brings everything to its place, and leaves the log empty.
    ///
    /// # Errors
    /// If the device fails.
    fn close(self: Box<Self>) -> Result<()>;
}
