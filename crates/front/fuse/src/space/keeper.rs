//! The thread that checks the free space and limits the data in the kernel's cache.

use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::{Duration, Instant};

use linux::WriteBack;
use vfs::Ino;

use super::level::{SpaceLimits, WritebackSettings};
use super::{Space, free_bytes};
use crate::Adapter;

/// Interval of checks for free space.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Assumed limit of the kernel, if it does not report one: small enough to impose a limit in time.
const OWN_LIMIT: u64 = 64 << 20;

/// Keeps the data in the kernel's cache below the free space, on a thread of the scope, until it is dropped.
pub struct SpaceKeeper<'a> {
    space: &'a Space,
}

impl<'a> SpaceKeeper<'a> {
    /// Starts the thread, for a mount with cached writes.
    pub fn start<'scope, 'env: 'scope + 'a>(
        scope: &'scope Scope<'scope, 'env>,
        adapter: &'env Adapter<'env>,
        cache: WriteBack,
    ) -> Self {
        let keep = move || Keeping::new(adapter, cache).run();
        if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, keep) {
            tracing::warn!(
                "the kernel's write-back may exceed the free space, because the space thread \
                 cannot start: {error}"
            );
        }
        Self { space: &adapter.space }
    }
}

impl Drop for SpaceKeeper<'_> {
    fn drop(&mut self) {
        self.space.wake(|state| state.is_over = true);
    }
}

struct Keeping<'a> {
    adapter: &'a Adapter<'a>,
    cache: WriteBack,
    limits: SpaceLimits,
    level: WritebackSettings,
    /// Free bytes that are not available for file contents.
    useless: u64,
}

impl<'a> Keeping<'a> {
    fn new(adapter: &'a Adapter<'a>, cache: WriteBack) -> Self {
        let total = adapter.fs.statfs().map_or(0, |all| all.blocks * u64::from(all.block_size));
        let limits = SpaceLimits::new(total, cache.own_limit().unwrap_or(OWN_LIMIT));
        Self { adapter, cache, limits, level: WritebackSettings::default(), useless: 0 }
    }

    fn run(mut self) {
        let space = &self.adapter.space;
        loop {
            self.look();
            let mut state = space.state.lock();
            let until = Instant::now() + CHECK_INTERVAL;
            while !state.is_due {
                if self.level == WritebackSettings::default() && state.failed.is_empty() {
                    space.changed.wait(&mut state);
                } else if space.changed.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
            state.is_due = false;
            if state.is_over {
                return;
            }
            if state.has_ended {
                drop(state);
                self.end();
                return;
            }
            self.useless = self.limits.useless(state.useless);
            let untold = std::mem::take(&mut state.untold);
            drop(state);
            // The decision whether writes are rejected must precede the kernel's request.
            self.look();
            self.tell(&untold);
        }
    }

    /// Checks the free space, and changes the level if necessary.
    fn look(&mut self) {
        let free = free_bytes(self.adapter.fs).saturating_sub(self.useless);
        let next = self.limits.level(free, self.level);
        if !next.through {
            self.forgive();
        }
        if next != self.level {
            self.enter(next);
        }
        let credit = self.limits.credit(free, next);
        self.adapter.space.credit.store(credit, Ordering::Relaxed);
    }

    /// Makes writes synchronous after changes have become impossible, so that each one gets its own error.
    fn end(&mut self) {
        if !self.level.through {
            let _ = self.cache.set_write_through(true);
        }
    }

    /// Clears failed write-back after space has become available.
    fn forgive(&self) {
        let space = &self.adapter.space;
        if space.has_failed() {
            space.state.lock().failed.clear();
            space.count_failed();
        }
    }

    fn enter(&mut self, next: WritebackSettings) {
        let before = std::mem::replace(&mut self.level, next);
        if next.through != before.through && !next.through {
            let _ = self.cache.set_write_through(false);
        }
        // If the limit does not exist or may not be set, the kernel's own applies.
        let limited = self.cache.limit(next.waiting_max);
        if next.through != before.through && next.through {
            let refuses_later = self.cache.set_write_through(true).is_err();
            self.adapter.space.refuses_later.store(refuses_later, Ordering::Relaxed);
        } else if limited.is_ok() && next.waiting_max < before.waiting_max.or(Some(u64::MAX)) {
            // A lower limit does not affect older data. If it cannot be stored, its writer gets an error.
            let _ = self.cache.flush();
        }
    }

    /// Makes the kernel request the attributes of files with failed write-back before each write.
    fn tell(&self, files: &[Ino]) {
        for &ino in files {
            let _ = self.cache.forget_attributes(self.adapter.node(ino));
        }
    }
}
