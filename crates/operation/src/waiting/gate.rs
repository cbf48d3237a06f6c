//! Who may let names of a directory wait, and who must not meanwhile.
//!
//! A file that is to wait is counted first; then its directory is locked; then it is looked whether somebody needs
//! the directory quiet. Who needs it quiet says so first, and then looks at the count: if it is not zero, the
//! directory is locked and what waits in it is applied. So, whoever comes first, nothing waits in a directory as
//! long as it is kept quiet.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use transaction::locks::atomic::AtomicU32;
use vfs::Ino;

/// Gates there are. Directories that share one are quiet together.
const GATES: usize = 256;

#[derive(Default)]
struct Gate {
    /// Names that wait or are about to.
    names: AtomicU32,
    /// How many need quiet.
    quiet: AtomicU32,
}

/// The gates of all directories.
pub(super) struct Gates {
    gates: Box<[CachePadded<Gate>]>,
}

/// As long as there is one, no name of a directory starts to wait.
#[must_use = "names wait again when it is dropped"]
pub struct Quiet<'w> {
    gate: Option<&'w Gate>,
}

/// A name that is about to wait. Dropped before it is kept, it does not.
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

    /// Counts a name that is to wait. The directory must be locked after this, and [`Entering::is_allowed`] be asked
    /// after that.
    pub(super) fn enter(&self, dir: Ino) -> Entering<'_> {
        let gate = self.gate(dir);
        gate.names.fetch_add(1, Ordering::SeqCst);
        Entering { gate }
    }

    /// Keeps a directory quiet; whether something may wait in it already.
    pub(super) fn quiet(&self, dir: Ino) -> (Quiet<'_>, bool) {
        let gate = self.gate(dir);
        gate.quiet.fetch_add(1, Ordering::SeqCst);
        (Quiet { gate: Some(gate) }, self.may_wait(dir))
    }

    /// Whether names of a directory may wait.
    pub(super) fn may_wait(&self, dir: Ino) -> bool {
        self.gate(dir).names.load(Ordering::SeqCst) != 0
    }

    /// Names that wait or are about to, of all directories.
    pub(super) fn names(&self) -> usize {
        self.gates.iter().map(|gate| gate.names.load(Ordering::Relaxed) as usize).sum()
    }

    /// So many names of a directory wait no more.
    pub(super) fn leave(&self, dir: Ino, names: usize) {
        self.gate(dir).names.fetch_sub(names as u32, Ordering::SeqCst);
    }
}

impl Quiet<'_> {
    /// Of a file system in which nothing ever waits.
    pub(super) const NOTHING_WAITS: Self = Self { gate: None };
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            gate.quiet.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Entering<'_> {
    /// Whether the name may wait. The directory must be locked.
    pub(super) fn is_allowed(&self) -> bool {
        self.gate.quiet.load(Ordering::SeqCst) == 0
    }

    /// The name waits: it is counted until [`Gates::leave`].
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.gate.names.fetch_sub(1, Ordering::SeqCst);
    }
}
