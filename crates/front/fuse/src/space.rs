//! Space for cached writes, which the kernel does not reserve.
//!
//! With cached writes the kernel accepts data and needs space only at the write-back, too late to report an error to
//! the writer. So the fuller a file system is, the less data may wait in the cache, and finally none: then each write
//! is synchronous and fails without space ([`level`]). A thread controls that ([`SpaceKeeper`]); requests only
//! count the space they take.
//!
//! If the process may not control the kernel, later writes get the error of earlier ones: after a failed write-back of
//! a file, the kernel must request its attributes before each write, and the request fails as long as there is no
//! space.
//!
//! In both cases the stored part of a growing file is a prefix: after a write-back without space, none behind it is
//! accepted, even if it would fit.

mod keeper;
mod level;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use linux::Errno;
use parking_lot::{Condvar, Mutex};
use vfs::{FileSystem, Ino};

pub use keeper::SpaceKeeper;

/// State shared by requests and the keeper.
pub(crate) struct Space {
    /// Number of bytes that may be taken before the keeper must check the free space.
    credit: AtomicI64,
    /// Number of files in [`FlusherState::failed`]: usually 0.
    failed_count: AtomicUsize,
    /// True if writes cannot be made synchronous, so that later ones are rejected instead.
    refuses_later: AtomicBool,
    state: Mutex<FlusherState>,
    changed: Condvar,
}

#[derive(Default)]
struct FlusherState {
    /// True if the keeper has work to do.
    is_due: bool,
    /// True if the keeper must end.
    is_over: bool,
    /// True if changes are no longer possible: all writes must return their own error.
    has_ended: bool,
    /// Maximum number of free bytes when a write-back failed.
    useless: u64,
    /// Files with a failed write-back, and the offset of their first lost bytes.
    failed: HashMap<Ino, u64>,
    /// Files among them whose attributes the kernel must request.
    untold: Vec<Ino>,
}

impl FlusherState {
    /// Requests that the keeper invalidates the kernel's attributes of a file.
    fn tell(&mut self, ino: Ino) {
        if !self.untold.contains(&ino) {
            self.untold.push(ino);
        }
        self.is_due = true;
    }
}

impl Default for Space {
    fn default() -> Self {
        Self {
            // Without a keeper the space is not checked.
            credit: AtomicI64::new(i64::MAX),
            failed_count: AtomicUsize::new(0),
            refuses_later: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Space {
    /// Counts bytes that a request may have taken.
    pub(crate) fn took(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.credit.fetch_sub(bytes, Ordering::Relaxed);
        if before > 0 && before <= bytes {
            self.wake(|_| ());
        }
    }

    /// Checks a write-back at `offset`.
    ///
    /// # Errors
    /// `ENOSPC` if an earlier range of the file found no space: this one would leave a hole.
    pub(crate) fn check(&self, ino: Ino, offset: u64) -> Result<(), Errno> {
        if !self.has_failed() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.failed.get(&ino).is_none_or(|&failed| offset <= failed) {
            return Ok(());
        }
        // A further write-back means that the writer was not rejected: the kernel may have cached the attributes in the
        // meantime. They are invalidated again.
        if self.refuses_later.load(Ordering::Relaxed) {
            state.tell(ino);
            self.changed.notify_one();
        }
        Err(Errno::NOSPC)
    }

    /// Records that changes are no longer possible: later writes must fail synchronously.
    pub(crate) fn end(&self) {
        self.wake(|state| state.has_ended = true);
    }

    /// Counts stored bytes of a file.
    pub(crate) fn stored(&self, ino: Ino, offset: u64, len: u64) {
        self.took(len);
        if self.has_failed() {
            let is_it = |failed: u64| failed >= offset && failed - offset < len;
            self.state.lock().failed.retain(|&other, &mut failed| other != ino || !is_it(failed));
            self.count_failed();
        }
    }

    /// Records a failed write-back, although `free` bytes were free.
    pub(crate) fn ran_out(&self, ino: Ino, offset: u64, free: u64) {
        self.wake(|state| {
            let failed = state.failed.entry(ino).or_insert(offset);
            *failed = offset.min(*failed);
            state.useless = state.useless.max(free);
            state.tell(ino);
        });
        self.count_failed();
    }

    /// Forgets lost data of a file that was truncated or removed.
    pub(crate) fn forget(&self, ino: Ino) {
        if self.has_failed() {
            self.state.lock().failed.remove(&ino);
            self.count_failed();
        }
    }

    /// Checks a write of a program.
    ///
    /// # Errors
    /// `ENOSPC` if earlier writes to the file found no space and no other way can report it.
    pub(crate) fn check_write(&self, ino: Ino) -> Result<(), Errno> {
        let refuses = self.has_failed()
            && self.refuses_later.load(Ordering::Relaxed)
            && self.state.lock().failed.contains_key(&ino);
        if refuses { Err(Errno::NOSPC) } else { Ok(()) }
    }

    fn has_failed(&self) -> bool {
        self.failed_count.load(Ordering::Relaxed) > 0
    }

    fn count_failed(&self) {
        let state = self.state.lock();
        self.failed_count.store(state.failed.len(), Ordering::Relaxed);
    }

    fn wake(&self, tell: impl FnOnce(&mut FlusherState)) {
        let mut state = self.state.lock();
        tell(&mut state);
        state.is_due = true;
        self.changed.notify_one();
    }
}

/// Returns the free bytes for file contents; 0 if they are unknown.
pub(crate) fn free_bytes(fs: &dyn FileSystem) -> u64 {
    fs.statfs().map_or(0, |all| all.blocks_for_contents * u64::from(all.block_size))
}

#[cfg(test)]
mod tests {
    use super::{Errno, Ino, Ordering, Space};

    #[test]
    fn writes_after_unstored_data_are_refused() {
        let (space, one, other) = (Space::default(), Ino(12), Ino(13));
        space.check(one, 0).unwrap();
        space.ran_out(one, 8192, 5);
        space.ran_out(one, 12_288, 3);
        assert_eq!(space.state.lock().useless, 5);
        assert_eq!(space.check(one, 12_288), Err(Errno::NOSPC));
        space.check(one, 8192).unwrap();
        space.check(one, 0).unwrap();
        space.check(other, 12_288).unwrap();
        space.stored(one, 4096, 4096);
        space.stored(other, 8192, 4096);
        assert_eq!(space.check(one, 12_288), Err(Errno::NOSPC));
        space.stored(one, 8192, 4096);
        space.check(one, 12_288).unwrap();
        space.ran_out(one, 0, 0);
        space.forget(one);
        space.check(one, 4096).unwrap();
    }

    #[test]
    fn later_writes_are_refused_where_they_cannot_wait() {
        let (space, ino) = (Space::default(), Ino(12));
        space.ran_out(ino, 0, 0);
        space.check_write(ino).unwrap();
        space.refuses_later.store(true, Ordering::Relaxed);
        assert_eq!(space.check_write(ino), Err(Errno::NOSPC));
        space.check_write(Ino(13)).unwrap();
        // A further write-back means that the writer was not rejected, so the kernel must be notified again.
        space.state.lock().untold.clear();
        assert_eq!(space.check(ino, 4096), Err(Errno::NOSPC));
        assert_eq!(space.state.lock().untold, [ino]);
        space.stored(ino, 0, 4096);
        space.check_write(ino).unwrap();
    }

    #[test]
    fn the_keeper_is_woken_once_when_the_credit_is_used_up() {
        let space = Space::default();
        let is_due = || std::mem::take(&mut space.state.lock().is_due);
        space.took(1 << 40);
        assert!(!is_due(), "unused");
        space.credit.store(100, Ordering::Relaxed);
        for (bytes, expected) in [(60, false), (39, false), (1, true), (1, false), (1000, false)] {
            space.took(bytes);
            assert_eq!(is_due(), expected, "{bytes}");
        }
    }
}
