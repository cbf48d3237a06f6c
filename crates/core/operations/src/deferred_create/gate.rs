//! Gates: mutual exclusion of names that are deferred in a directory and callers that need it without any.
//!
//! A thread that creates a deferred file first increments the count of names, then locks the directory, then checks for
//! flush requests. A thread that needs the directory flushed first increments their count and then checks the count
//! of names. If that is not zero, it locks the directory and applies the deferred files. So in either order, nothing
//! is deferred in a directory while it is flushed.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use engine::locks::atomic::AtomicU32;
use vfs::Ino;

/// Number of gates. Directories that share one are flushed together.
const GATES: usize = 256;

#[derive(Default)]
struct Gate {
    /// Number of names that are deferred or about to be.
    names: AtomicU32,
    /// Number of flush requests.
    flushers: AtomicU32,
}

/// The gates of all directories.
pub(super) struct Gates {
    gates: Box<[CachePadded<Gate>]>,
}

/// A flush request: while it exists, no name of the directory is deferred.
#[must_use = "names are deferred again when it is dropped"]
pub(super) struct Flushed<'w> {
    gate: Option<&'w Gate>,
}

/// A name that is about to be deferred. Dropping it before it is kept removes it from the count.
pub(super) struct Entering<'w> {
    gate: &'w Gate,
}

impl Default for Gates {
    fn default() -> Self {
        Self { gates: (0..GATES).map(|_| CachePadded::default()).collect() }
    }
}

impl Gates {
    fn gate(&self, dir: Ino) -> &Gate {
        &self.gates[(dir.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % GATES]
    }

    /// Counts a name that is about to be deferred. The caller must then lock the directory, and after that check
    /// [`Entering::is_allowed`].
    pub(super) fn enter(&self, dir: Ino) -> Entering<'_> {
        let gate = self.gate(dir);
        gate.names.fetch_add(1, Ordering::SeqCst);
        Entering { gate }
    }

    /// Blocks deferred creates in a directory. Returns the request, and whether something may already be deferred
    /// there.
    pub(super) fn block(&self, dir: Ino) -> (Flushed<'_>, bool) {
        let gate = self.gate(dir);
        gate.flushers.fetch_add(1, Ordering::SeqCst);
        (Flushed { gate: Some(gate) }, self.may_have_names(dir))
    }

    /// Returns whether names of a directory may be deferred.
    pub(super) fn may_have_names(&self, dir: Ino) -> bool {
        self.gate(dir).names.load(Ordering::SeqCst) != 0
    }

    /// Returns the number of names that are deferred or about to be, in all directories.
    pub(super) fn names(&self) -> usize {
        self.gates.iter().map(|gate| gate.names.load(Ordering::Relaxed) as usize).sum()
    }

    /// Subtracts `names` names of a directory that were applied.
    pub(super) fn leave(&self, dir: Ino, names: usize) {
        self.gate(dir).names.fetch_sub(names as u32, Ordering::SeqCst);
    }
}

impl Flushed<'_> {
    /// A request for a file system in which nothing is ever deferred.
    pub(super) const NOTHING_DEFERRED: Self = Self { gate: None };
}

impl Drop for Flushed<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            gate.flushers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Entering<'_> {
    /// Returns whether the name may be deferred. The directory must be locked.
    pub(super) fn is_allowed(&self) -> bool {
        self.gate.flushers.load(Ordering::SeqCst) == 0
    }

    /// Keeps the name counted until [`Gates::leave`].
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.gate.names.fetch_sub(1, Ordering::SeqCst);
    }
}
