//! Syncing where a flush takes long: those who want it at about the same time share one.
//!
//! Threads that sync again and again fall into two parties where a flush takes much longer than what they do between two of
//! them: one waits for the flush that is under way, the other for the next, and each flush serves half of them. So who
//! is about to begin one waits for those of the last two rounds first, for a part of the time that it takes. Where one thread
//! syncs, nobody waits; where some have stopped, it is waited for them once.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Result;
use crate::buffer::Epoch;

/// What part of the last flush's time is waited for others, and how long at most.
const PART: u32 = 2;
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Those who sync, one of whom writes.
#[derive(Default)]
pub(crate) struct Gathering {
    state: Mutex<State>,
    /// Somebody came, whom the one that writes may wait for.
    has_come: Condvar,
    /// The one that wrote has done so.
    has_written: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody gathers or writes.
    is_led: bool,
    /// Who came since writing began last.
    come: usize,
    /// Who may come before it begins again.
    expected: usize,
    /// How long the others are waited for, at the latest to this moment.
    until: Option<Instant>,
    /// What is durable.
    durable: Epoch,
}

impl Gathering {
    /// Returns when `wanted` is durable: by `write`, which says what is durable then, or because somebody else has written it.
    /// If that fails for one, the others try by themselves.
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

        // Whatever becomes of it, the others go on.
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

    /// Longer than any test takes.
    const EVER: Duration = Duration::from_secs(3600);

    impl Gathering {
        /// Waits until so many have come whom nobody has written for.
        fn has_waiting(&self, count: usize) {
            let mut state = self.state.lock();
            self.has_come.wait_while(&mut state, |state| state.come < count);
        }

        /// As after a round in which so many came, and a flush that took very long.
        fn after_round(expected: usize) -> Self {
            let until = Some(Instant::now() + EVER);
            let state = Mutex::new(State { expected, until, ..State::default() });
            Self { state, ..Self::default() }
        }
    }

    #[test]
    fn who_comes_while_another_writes_is_expected_for_the_next_round() {
        let gathering = Gathering::default();
        let sync = |wanted| {
            gathering.share(wanted, || {
                // The first one writes until all others are there.
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
        // Nobody came while the second round was written.
        assert_eq!(state.expected, 3);
    }

    #[test]
    fn who_was_there_in_the_last_round_is_waited_for() {
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
    fn one_that_is_alone_waits_for_nobody() {
        let gathering = Gathering::after_round(1);
        for epoch in 1..20 {
            gathering.share(epoch, || Ok(epoch)).unwrap();
            let mut state = gathering.state.lock();
            assert_eq!(state.expected, 1);
            state.until = Some(Instant::now() + EVER);
        }
    }

    #[test]
    fn who_does_not_come_is_waited_for_once() {
        let gathering = Gathering::after_round(2);
        gathering.state.lock().until = Some(Instant::now());
        gathering.share(1, || Ok(1)).unwrap();
        assert_eq!(gathering.state.lock().expected, 1);
    }

    #[test]
    fn who_waits_tries_by_itself_if_another_fails() {
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
