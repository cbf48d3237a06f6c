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

    /// Syncs `rounds` times in each of `threads`; how often was written.
    fn writes(threads: u64, rounds: u64, took: Duration) -> u64 {
        let gathering = Gathering::default();
        // What is committed, and what is durable of it.
        let (running, writes) = (AtomicU64::new(1), AtomicU64::new(0));
        let sync = || {
            let wanted = running.load(Ordering::SeqCst);
            let write = || {
                let closed = running.fetch_add(1, Ordering::SeqCst);
                thread::sleep(took);
                writes.fetch_add(1, Ordering::SeqCst);
                Ok(closed)
            };
            gathering.share(wanted, write).unwrap();
        };
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..rounds).for_each(|_| sync()));
            }
        });
        writes.into_inner()
    }

    #[test]
    fn threads_that_sync_again_and_again_share_what_is_written() {
        let (threads, rounds) = (8, 20);
        let writes = writes(threads, rounds, Duration::from_millis(40));
        // In two parties there would be twice as many as rounds.
        assert!((rounds..rounds * 3 / 2).contains(&writes), "{writes} for {rounds} rounds");
    }

    #[test]
    fn one_that_is_alone_waits_for_nobody() {
        let took = Duration::from_millis(10);
        let begun = Instant::now();
        assert_eq!(writes(1, 20, took), 20);
        assert!(begun.elapsed() < took * 20 * 3 / 2 + WAIT_MAX);
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
