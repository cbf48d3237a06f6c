//! Sealing of the blocks of a checkpoint, on several processors if there are many.

use crate::Result;
use crate::buffer::{Changed, Epoch, SharedBuffer};
use crate::engine::Engine;
use crate::spread::spread;

/// Minimum number of blocks per thread. Sealing a block takes about a microsecond.
const BLOCKS_PER_THREAD: usize = 512;

impl Engine {
    /// Seals every block of a closed checkpoint before any of them is written, so that a refused block leaves no others
    /// in the log or in place. Removes the blocks from the list that the checkpoint does not contain any more, because
    /// they were freed after they were changed. If a later transaction changes a block at the same time, its frozen image
    /// is sealed, or it was sealed before it was frozen. If several blocks are refused, the error is that of the first
    /// block.
    pub(crate) fn seal_all(
        &self,
        epoch: Epoch,
        buffers: &mut Vec<(u64, SharedBuffer)>,
    ) -> Result<()> {
        let parts = self.threads.split(buffers, BLOCKS_PER_THREAD);
        let absent = spread(parts.len(), parts, |part| self.seal_part(epoch, part));
        let absent = absent.into_iter().collect::<Result<Vec<_>>>()?.concat();
        if !absent.is_empty() {
            buffers.retain(|(block, _)| absent.binary_search(block).is_err());
        }
        Ok(())
    }

    /// Returns the blocks that the checkpoint does not contain.
    fn seal_part(&self, epoch: Epoch, buffers: &[(u64, SharedBuffer)]) -> Result<Vec<u64>> {
        let mut absent = Vec::new();
        for (block, buffer) in buffers {
            let mut contents = buffer.write();
            let contents = &mut *contents;
            let (tag, chunks, data) = match &mut contents.frozen {
                Some(frozen) => (frozen.tag, frozen.chunks, &mut frozen.data),
                None if contents.dirty == epoch => {
                    (contents.tag, contents.chunks, &mut contents.data)
                }
                None => {
                    absent.push(*block);
                    continue;
                }
            };
            let changed = Changed::new(chunks, self.block_size());
            self.format().seal(tag, *block, changed, data)?;
        }
        Ok(absent)
    }
}
