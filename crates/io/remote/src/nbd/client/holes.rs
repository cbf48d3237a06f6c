//! The last answer about holes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::nbd::protocol::allocation;

/// Time for which an answer is used. Other clients may write the export.
const FRESH: Duration = Duration::from_secs(2);

/// The last answer of the server about holes.
#[derive(Default)]
pub(super) struct Holes {
    known: Mutex<Option<KnownHoles>>,
    /// Number of writes of this client.
    writes: AtomicU64,
}

/// Consecutive extents.
struct KnownHoles {
    asked: Instant,
    /// Number of writes before the request.
    writes: u64,
    start: u64,
    /// End of each extent, and whether it is zeros.
    extents: Vec<(u64, bool)>,
}

impl Holes {
    /// Discards the answer, because a write has ended.
    pub(super) fn forget(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the end of the extent at `offset`, and whether it is zeros. `ask` requests the start and the extents from
    /// an offset on, if they are not known.
    pub(super) fn at(
        &self,
        offset: u64,
        ask: impl FnOnce(u64) -> Option<(u64, Vec<(u32, u32)>)>,
    ) -> Option<(u64, bool)> {
        let writes = self.writes.load(Ordering::Acquire);
        let is_valid = |known: &&KnownHoles| {
            known.writes == writes && known.start <= offset && known.asked.elapsed() < FRESH
        };
        if let Some(found) = self.hold().as_ref().filter(is_valid).and_then(|k| k.at(offset)) {
            return Some(found);
        }
        let asked = Instant::now();
        let (start, extents) = ask(offset)?;
        let mut end = start;
        let ends = extents.into_iter().map(|(len, flags)| {
            end += u64::from(len);
            (end, flags & allocation::ZERO != 0)
        });
        let known = KnownHoles { asked, writes, start, extents: ends.collect() };
        let found = known.at(offset);
        *self.hold() = Some(known);
        found
    }

    fn hold(&self) -> MutexGuard<'_, Option<KnownHoles>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownHoles {
    fn at(&self, offset: u64) -> Option<(u64, bool)> {
        let after = self.extents.partition_point(|(end, _)| *end <= offset);
        self.extents.get(after).copied()
    }
}
