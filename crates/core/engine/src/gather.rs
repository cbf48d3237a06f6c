//! Group commit on devices with slow flushes: concurrent syncs share one flush.
//!
//! If a flush takes much longer than the work between two syncs, threads that sync repeatedly split into two groups:
//! one waits for the running flush, the other for the next one. Each flush then serves half of them. So before a flush
//! starts, its thread waits for the threads of the last two rounds, up to a fraction of the duration of the last flush.
//! A single thread never waits; threads that stopped syncing cause one wait.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Result;
use crate::buffer::Epoch;

/// The wait is the duration of the last flush divided by this, and at most the second value.
const PART: u32 = 2;
const WAIT_MAX: Duration = Duration::from_millis(50);

/// State shared by the threads that sync; one of them writes at a time.
#[derive(Default)]
pub(crate) struct Gathering {
    state: Mutex<GatherState>,
    /// Signals that a thread arrived.
    has_come: Condvar,
    /// Signals that a write is complete.
    has_written: Condvar,
}

#[derive(Default)]
struct GatherState {
    /// A thread is gathering or writing.
    is_led: bool,
    /// Number of threads that arrived since the last write began.
    come: usize,
    /// Number of threads expected before the next write begins.
    expected: usize,
    /// Deadline of the wait for the expected threads.
    until: Option<Instant>,
    /// The last durable checkpoint.
    durable: Epoch,
}

impl Gathering {
    /// Returns when checkpoint `wanted` is durable, either through `write`, which returns the checkpoint that is
    /// durable then, or through another thread. If a write fails, the other threads try by themselves.
    pub(crate) fn share(&self, wanted: Epoch, write: impl FnOnce() -> Result<Epoch>) -> Result<()> {
        let mut state = self.state.lock();
        if state.durable >= wanted {
            return Ok(());
        }
        state.come += 1;
        self.has_come.notify_all();
        while state.is_led {
            self.has_written.wait(&mut state);
            if state.durable >= wanted {
                return Ok(());
            }
        }
        state.is_led = true;
        while let Some(until) = state.until.filter(|_| state.come < state.expected) {
            if self.has_come.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let joined = std::mem::take(&mut state.come);
        drop(state);

        // Wakes the other threads in any case, also on an error or panic.
        let mut ending = Ending { gathering: self, begun: Instant::now(), joined, durable: 0 };
        ending.durable = write()?;
        Ok(())
    }
}

struct Ending<'g> {
    gathering: &'g Gathering,
    begun: Instant,
    joined: usize,
    durable: Epoch,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.gathering.state.lock();
        state.is_led = false;
        state.expected = self.joined + state.come;
        state.until = Some(now + ((now - self.begun) / PART).min(WAIT_MAX));
        state.durable = state.durable.max(self.durable);
        self.gathering.has_written.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    /// Longer than the duration of any test.
    const EVER: Duration = Duration::from_secs(3600);

    impl Gathering {
        /// Waits until `count` threads have arrived since the last write began.
        fn has_waiting(&self, count: usize) {
            let mut state = self.state.lock();
            self.has_come.wait_while(&mut state, |state| state.come < count);
        }

        /// Returns the state after a round of `expected` threads with a very long flush.
        fn after_round(expected: usize) -> Self {
            let until = Some(Instant::now() + EVER);
            let state = Mutex::new(GatherState { expected, until, ..GatherState::default() });
            Self { state, ..Self::default() }
        }
    }

    #[test]
    fn late_threads_are_expected_in_the_next_round() {
        let gathering = Gathering::default();
        let sync = |wanted| {
            gathering.share(wanted, || {
                // The first write waits until all other threads have arrived.
                if wanted == 1 {
                    gathering.has_waiting(3);
                }
                Ok(wanted)
            })
        };
        thread::scope(|scope| {
            scope.spawn(|| sync(1).unwrap());
            while !gathering.state.lock().is_led {
                thread::yield_now();
            }
            (0..3).for_each(|_| drop(scope.spawn(|| sync(2).unwrap())));
        });
        let state = gathering.state.lock();
        assert_eq!((state.durable, state.is_led, state.come), (2, false, 0));
        // No thread arrived during the second write.
        assert_eq!(state.expected, 3);
    }

    #[test]
    fn threads_of_the_last_round_are_awaited() {
        let gathering = Gathering::after_round(3);
        let writes = AtomicU64::new(0);
        let sync = || {
            gathering.share(1, || {
                writes.fetch_add(1, Ordering::SeqCst);
                Ok(1)
            })
        };
        thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| sync().unwrap())));
            gathering.has_waiting(2);
            assert_eq!(writes.load(Ordering::SeqCst), 0);
            sync().unwrap();
        });
        assert_eq!(writes.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_single_thread_does_not_wait() {
        let gathering = Gathering::after_round(1);
        for epoch in 1..20 {
            gathering.share(epoch, || Ok(epoch)).unwrap();
            let mut state = gathering.state.lock();
            assert_eq!(state.expected, 1);
            state.until = Some(Instant::now() + EVER);
        }
    }

    #[test]
    fn absent_threads_are_awaited_once() {
        let gathering = Gathering::after_round(2);
        gathering.state.lock().until = Some(Instant::now());
        gathering.share(1, || Ok(1)).unwrap();
        assert_eq!(gathering.state.lock().expected, 1);
    }

    #[test]
    fn waiting_threads_retry_if_the_writer_fails() {
        let gathering = Gathering::default();
        let (failures, tries) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let failed = gathering.share(1, || {
                        tries.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(5));
                        Err(std::io::Error::other("the device is gone").into())
                    });
                    failures.fetch_add(failed.is_err().into(), Ordering::SeqCst);
                });
            }
        });
        assert_eq!((failures.into_inner(), tries.into_inner()), (4, 4));
    }
}
