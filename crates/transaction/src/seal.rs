//! Sealing the blocks of a checkpoint, on several processors if it has many.

use std::sync::OnceLock;
use std::thread;

use crate::Result;
use crate::buffer::{Changed, Epoch, Shared};
use crate::engine::Engine;

/// Blocks that are worth a thread. Sealing one takes about a microsecond, starting a thread some twenty.
const BLOCKS_PER_THREAD: usize = 512;

/// More threads than this are not started: the rest of a checkpoint is written by one.
const THREADS_MAX: usize = 8;

impl Engine {
    /// Seals every block of a closed checkpoint, before any of them is written: one that is refused must not
    /// leave others in the log or at home. A block that a later transaction changes meanwhile is sealed as it
    /// was frozen, or was sealed before and is frozen so. Of several that are refused, the first block's reason
    /// is told.
    pub(crate) fn seal_all(&self, epoch: Epoch, buffers: &[(u64, Shared)]) -> Result<()> {
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
                    // Where no thread can be had, this one does it in the end.
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

    fn seal_part(&self, epoch: Epoch, buffers: &[(u64, Shared)]) -> Result<()> {
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

/// Processors that this process may use; 1 on a host that does not say.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
