//! Periodic sync.

use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Adapter;

/// Makes changes of an adapter durable at intervals, on a thread of the scope, until it is dropped. A sync in progress
/// is completed; the scope waits for it.
///
/// Nothing is written without changes, and nothing after damage if the mount stops writing then
/// ([`crate::OnDamage::ReadOnly`]).
pub struct Syncer {
    stop: Arc<Stop>,
}

/// Stop flag, with a condition variable for waiting threads.
#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Syncer {
    /// Starts the thread, unless the interval is zero.
    pub fn start<'scope, 'env: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        adapter: &'env Adapter<'env>,
        interval: Duration,
    ) -> Self {
        let stop = Arc::new(Stop::default());
        if !interval.is_zero() {
            let stop = Arc::clone(&stop);
            let sync = move || sync_until(&stop, adapter, interval);
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, sync) {
                tracing::warn!(
                    "changes become durable only at fsync and unmount, because the sync thread \
                     cannot start: {error}"
                );
            }
        }
        Self { stop }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        *self.stop.is_set.lock() = true;
        self.stop.changed.notify_one();
    }
}

impl Stop {
    /// Waits for the interval. Returns whether to stop.
    fn wait(&self, interval: Duration) -> bool {
        let until = Instant::now().checked_add(interval);
        let mut is_set = self.is_set.lock();
        while !*is_set {
            match until {
                Some(until) => {
                    if self.changed.wait_until(&mut is_set, until).timed_out() {
                        break;
                    }
                }
                None => self.changed.wait(&mut is_set),
            }
        }
        *is_set
    }
}

fn sync_until(stop: &Stop, adapter: &Adapter<'_>, interval: Duration) {
    while !stop.wait(interval) {
        if adapter.has_stopped() || adapter.is_shut_down() || !adapter.take_changed() {
            continue;
        }
        if let Err(error) = adapter.fs.sync() {
            // Logged once: every caller of fsync gets the error.
            adapter.not_stored(&error);
            adapter.note_change();
        }
    }
}
