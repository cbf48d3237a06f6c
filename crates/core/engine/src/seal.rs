//! Sealing of the blocks of a checkpoint, on several processors if there are many.

use std::sync::OnceLock;
use std::thread;

use crate::Result;
use crate::buffer::{Changed, Epoch, SharedBuffer};
use crate::engine::Engine;

/// Minimum number of blocks per thread. Sealing a block takes about a microsecond, starting a thread about twenty.
const BLOCKS_PER_THREAD: usize = 512;

/// Maximum number of threads. The rest of a checkpoint is written by one thread.
const THREADS_MAX: usize = 8;

impl Engine {
    /// Seals every block of a closed checkpoint before any of them is written, so that a refused block leaves no others
    /// in the log or in place. If a later transaction changes a block at the same time, its frozen image is sealed, or
    /// it was sealed before it was frozen. If several blocks are refused, the error is that of the first block.
    pub(crate) fn seal_all(&self, epoch: Epoch, buffers: &[(u64, SharedBuffer)]) -> Result<()> {
        let threads = (buffers.len() / BLOCKS_PER_THREAD).min(processors()).clamp(1, THREADS_MAX);
        if threads == 1 {
            return self.seal_part(epoch, buffers);
        }
        let mut parts = buffers.chunks(buffers.len().div_ceil(threads));
        let own = parts.next().unwrap_or_default();
        thread::scope(|scope| {
            let others: Vec<_> = parts
                .map(|part| {
                    let work = move || self.seal_part(epoch, part);
                    // If a thread cannot be started, this thread seals its part at the end.
                    (part, thread::Builder::new().spawn_scoped(scope, work).ok())
                })
                .collect();
            let mut outcome = self.seal_part(epoch, own);
            for (part, thread) in others {
                let sealed = match thread.map(thread::ScopedJoinHandle::join) {
                    Some(Ok(sealed)) => sealed,
                    Some(Err(panic)) => std::panic::resume_unwind(panic),
                    None => self.seal_part(epoch, part),
                };
                outcome = outcome.and(sealed);
            }
            outcome
        })
    }

    fn seal_part(&self, epoch: Epoch, buffers: &[(u64, SharedBuffer)]) -> Result<()> {
        for (block, buffer) in buffers {
            let mut contents = buffer.write();
            let contents = &mut *contents;
            let (tag, chunks, data) = match &mut contents.frozen {
                Some(frozen) => (frozen.tag, frozen.chunks, &mut frozen.data),
                None if contents.dirty == epoch => {
                    (contents.tag, contents.chunks, &mut contents.data)
                }
                None => continue,
            };
            let changed = Changed::new(chunks, self.block_size());
            self.format().seal(tag, *block, changed, data)?;
        }
        Ok(())
    }
}

/// Number of processors available to this process; 1 if it is unknown.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
