//! Room for what programs write, though the kernel does not ask for it.
//!
//! With cached writes the kernel takes what programs write, and asks for room when it writes that back: too
//! late for whoever has written it. So the nearer a file system is to full, the less may wait in the cache,
//! and at the end nothing: then each write waits until it is stored, and fails if there is no room
//! ([`Level`]). A thread sees to that ([`SpaceKeeper`]); requests only count what they take.
//!
//! Where the process may not steer the kernel, a write learns what happened to those before it: once a file
//! could not be written back, the kernel is made to ask for its attributes before each write to it, which
//! is refused as long as there is no room.
//!
//! In both cases what was stored of a file that grows is a beginning of it: after a write-back that found no
//! room, none further behind is done, though it may be small enough to find some.

mod keeper;
mod level;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use fuse_device::Errno;
use parking_lot::{Condvar, Mutex};
use vfs::{FileSystem, Ino};

pub use keeper::SpaceKeeper;

/// What requests and the keeper tell each other.
pub(crate) struct Space {
    /// Bytes that may be taken until somebody has to look how many are left.
    credit: AtomicI64,
    /// Files in [`State::failed`]: none, nearly always.
    failed_count: AtomicUsize,
    /// Writes cannot be made to wait, so that later ones are refused instead.
    refuses_later: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The keeper has something to do.
    is_due: bool,
    /// The keeper is to end.
    is_over: bool,
    /// Nothing is changed any more: no write may wait to be told so.
    has_ended: bool,
    /// Most bytes that were free when a write-back found no room.
    useless: u64,
    /// Files that could not be written back, and where the first bytes are that were not stored.
    failed: HashMap<Ino, u64>,
    /// Those of them that the kernel has to ask about.
    untold: Vec<Ino>,
}

impl State {
    /// Has the keeper make the kernel ask about a file.
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
            // Without a keeper nobody looks.
            credit: AtomicI64::new(i64::MAX),
            failed_count: AtomicUsize::new(0),
            refuses_later: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Space {
    /// A request may have taken so many bytes.
    pub(crate) fn took(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.credit.fetch_sub(bytes, Ordering::Relaxed);
        if before > 0 && before <= bytes {
            self.wake(|_| ());
        }
    }

    /// Bytes of a file are about to be written back.
    ///
    /// # Errors
    /// `ENOSPC` if bytes before them found no room: these would leave a hole.
    pub(crate) fn check(&self, ino: Ino, offset: u64) -> Result<(), Errno> {
        if !self.has_failed() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.failed.get(&ino).is_none_or(|&failed| offset <= failed) {
            return Ok(());
        }
        // That more comes means that whoever writes was not refused: the kernel may have asked for the attributes
        // at the wrong moment, and then knows them. It is made to ask once more.
        if self.refuses_later.load(Ordering::Relaxed) {
            state.tell(ino);
            self.changed.notify_one();
        }
        Err(Errno::NOSPC)
    }

    /// Nothing is changed any more: what programs write from now on must fail when they write it.
    pub(crate) fn end(&self) {
        self.wake(|state| state.has_ended = true);
    }

    /// Bytes of a file were stored.
    pub(crate) fn stored(&self, ino: Ino, offset: u64, len: u64) {
        self.took(len);
        if self.has_failed() {
            let is_it = |failed: u64| failed >= offset && failed - offset < len;
            self.state.lock().failed.retain(|&other, &mut failed| other != ino || !is_it(failed));
            self.count_failed();
        }
    }

    /// Bytes of a file could not be written back, though so many were free.
    pub(crate) fn ran_out(&self, ino: Ino, offset: u64, free: u64) {
        self.wake(|state| {
            let failed = state.failed.entry(ino).or_insert(offset);
            *failed = offset.min(*failed);
            state.useless = state.useless.max(free);
            state.tell(ino);
        });
        self.count_failed();
    }

    /// A file got another size, or is gone: what could not be stored of it matters no more.
    pub(crate) fn forget(&self, ino: Ino) {
        if self.has_failed() {
            self.state.lock().failed.remove(&ino);
            self.count_failed();
        }
    }

    /// A program is about to write to a file.
    ///
    /// # Errors
    /// `ENOSPC` if earlier writes to it found no room and it cannot be had in another way.
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

    fn wake(&self, tell: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        tell(&mut state);
        state.is_due = true;
        self.changed.notify_one();
    }
}

/// Free bytes of a file system that contents of files may take; 0 if it does not tell.
pub(crate) fn free_bytes(fs: &dyn FileSystem) -> u64 {
    fs.statfs().map_or(0, |all| all.blocks_for_contents * u64::from(all.block_size))
}

#[cfg(test)]
mod tests {
    use super::{Errno, Ino, Ordering, Space};

    #[test]
    fn what_lies_behind_bytes_without_room_is_refused_until_they_are_stored() {
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
        // What is written back all the same was not refused: the kernel has to be told again.
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
        assert!(!is_due(), "nobody looks");
        space.credit.store(100, Ordering::Relaxed);
        for (bytes, expected) in [(60, false), (39, false), (1, true), (1, false), (1000, false)] {
            space.took(bytes);
            assert_eq!(is_due(), expected, "{bytes}");
        }
    }
}
