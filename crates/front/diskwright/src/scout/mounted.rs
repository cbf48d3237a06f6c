//! Prefetching for programs that read trees through a mount.
//!
//! The kernel requests one file after the other, so a program such as tar waits for each of them. A scout helps programs
//! that read the files of the directories that they list. It starts at the next directory that the program lists. It
//! requests the contents of all files below that directory and after it, in the order of listings.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::thread;

use fuse::ReadObserver;
use parking_lot::{Condvar, Mutex};
use vfs::path::{DirectoryGuard, Order, WalkSteps};
use vfs::{Cookie, FileSystem, FileType, Ino};

use super::ENTRIES_MAX;
use super::contents::{BATCH_BYTES, Batch, LEAD_BYTES_MAX};

/// Credit for reading trees: one for each file whose start is read. The scout needs the first number.
const CREDIT_NEEDED: u64 = 16;
const CREDIT_MAX: u64 = 64;

/// Credit that each listing costs. A program that lists directories only uses it up.
const LISTING_COST: u64 = 4;

/// Maximum number of directories that are known to be scouted.
const SCOUTED_MAX: usize = 100_000;

/// Number of further bytes that are requested until the files of a directory may have left the cache.
const KEPT_BYTES: u64 = 2 * LEAD_BYTES_MAX;

/// Observes the reads of a mount, and controls its scout.
#[derive(Default)]
pub(crate) struct TreeReads {
    state: Mutex<TreeState>,
    has_changed: Condvar,
}

#[derive(Default)]
struct TreeState {
    credit: u64,
    /// Directory to scout, which replaces the current one.
    next: Option<Ino>,
    /// Directories whose files were requested, with the value of `requested` then.
    scouted: HashMap<Ino, u64>,
    /// Number of bytes that were requested.
    requested: u64,
    /// Number of bytes that were read, or need not be.
    read: u64,
    is_waiting: bool,
    is_over: bool,
}

impl TreeState {
    fn is_far_ahead(&self, bytes_max: u64) -> bool {
        self.requested.saturating_sub(self.read) > bytes_max
    }

    fn mark(&mut self, dir: Ino) {
        if self.scouted.len() >= SCOUTED_MAX {
            self.scouted.clear();
        }
        self.scouted.insert(dir, self.requested);
    }

    fn is_scouted(&self, dir: Ino) -> bool {
        self.scouted.get(&dir).is_some_and(|at| self.requested - at <= KEPT_BYTES)
    }
}

impl ReadObserver for TreeReads {
    fn listed(&self, dir: Ino) {
        let mut state = self.state.lock();
        let has_credit = state.credit >= CREDIT_NEEDED;
        state.credit = state.credit.saturating_sub(LISTING_COST);
        if has_credit && !state.is_scouted(dir) {
            state.mark(dir);
            (state.next, state.read) = (Some(dir), state.requested);
            self.has_changed.notify_all();
        }
    }

    fn read(&self, offset: u64, len: u64) {
        let mut state = self.state.lock();
        if offset == 0 {
            state.credit = (state.credit + 1).min(CREDIT_MAX);
        }
        state.read = state.read.saturating_add(len).min(state.requested);
        // The scout continues when it can request a whole batch.
        if state.is_waiting && !state.is_far_ahead(LEAD_BYTES_MAX - BATCH_BYTES.end) {
            state.is_waiting = false;
            self.has_changed.notify_all();
        }
    }
}

impl TreeReads {
    /// Starts the scout of a mount. It ends when the result is dropped.
    pub(crate) fn start<'scope, 'env>(
        &'env self,
        scope: &'scope thread::Scope<'scope, 'env>,
        fs: &'env dyn FileSystem,
    ) -> End<'env> {
        // Without the scout, reads only take longer.
        let _ = thread::Builder::new().spawn_scoped(scope, || while self.scout_next(fs) {});
        End(self)
    }

    /// Waits for a directory and scouts it. Returns false at the end of the mount.
    fn scout_next(&self, fs: &dyn FileSystem) -> bool {
        let mut state = self.state.lock();
        let top = loop {
            if state.is_over {
                return false;
            }
            match state.next.take() {
                Some(top) => break top,
                None => self.has_changed.wait(&mut state),
            }
        };
        drop(state);
        let mut batch = Batch::new();
        let mut dir = top;
        if !self.scout_tree(fs, top, &mut batch) {
            return true;
        }
        // The program will go on with what follows this directory, and then its parents. In a damaged image, these may
        // form a cycle.
        let mut guard = DirectoryGuard::default();
        while guard.enter(dir).is_ok()
            && let Some((parent, following)) = following(fs, dir)
        {
            if !following.into_iter().all(|ino| self.scout_tree(fs, ino, &mut batch)) {
                return true;
            }
            dir = parent;
        }
        batch.request(fs);
        true
    }

    /// Scouts everything below `top`. Returns false if the scout must turn to another directory, or end.
    fn scout_tree(&self, fs: &dyn FileSystem, top: Ino, batch: &mut Batch) -> bool {
        let mut walk = WalkSteps::new(top, Order::Physical);
        while let Some(visit) = walk.advance(fs) {
            // The program reports errors.
            let Ok(visit) = visit else { continue };
            let bytes = batch.add(fs, &visit.attributes);
            let mut state = self.state.lock();
            if visit.attributes.file_type == FileType::Directory {
                state.mark(visit.attributes.ino);
            }
            state.requested = state.requested.saturating_add(bytes);
            state.is_waiting = state.is_far_ahead(LEAD_BYTES_MAX);
            if batch.is_full() || state.is_waiting {
                drop(state);
                batch.request(fs);
                state = self.state.lock();
            }
            while state.is_waiting && state.next.is_none() && !state.is_over {
                self.has_changed.wait(&mut state);
            }
            if state.next.is_some() || state.is_over {
                return false;
            }
        }
        true
    }
}

/// Returns the parent of a directory, and the entries that follow the directory there.
fn following(fs: &dyn FileSystem, dir: Ino) -> Option<(Ino, Vec<Ino>)> {
    let mut parent = None;
    // Without entries the scout ends.
    let _ = fs.readdir(dir, Cookie::default(), &mut |entry| {
        parent = (entry.name == b"..").then_some(entry.ino);
        if parent.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let parent = parent.filter(|parent| *parent != dir)?;
    let (mut is_behind, mut following) = (false, Vec::new());
    // In the order in which programs list it.
    let _ = fs.readdir(parent, Cookie::default(), &mut |entry| {
        let is_other = entry.name != b"." && entry.name != b"..";
        if is_behind && is_other {
            following.push(entry.ino);
        }
        is_behind |= is_other && entry.ino == dir;
        if following.len() < ENTRIES_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    Some((parent, following))
}

/// Ends the scout of a mount.
pub(crate) struct End<'a>(&'a TreeReads);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reads: &TreeReads) -> Option<Ino> {
        reads.state.lock().next.take()
    }

    #[test]
    fn a_program_that_reads_the_files_it_lists_gets_a_scout() {
        let reads = TreeReads::default();
        for dir in 10..20 {
            reads.listed(Ino(dir));
            assert_eq!(next(&reads), None, "nothing was read");
        }
        for _ in 0..20 {
            reads.read(0, 100);
            reads.read(100, 100);
        }
        reads.listed(Ino(20));
        assert_eq!(next(&reads), Some(Ino(20)));
        reads.listed(Ino(20));
        assert_eq!(next(&reads), None, "it was scouted");
        let listed = (21..60).filter(|dir| {
            reads.listed(Ino(*dir));
            next(&reads).is_some()
        });
        assert!(listed.count() < 20, "listings use the credit up");
    }
}
