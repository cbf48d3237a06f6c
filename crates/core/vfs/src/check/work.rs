//! Parallel work.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::check::{Observer, Phase};

/// Calls `one` with every number below `count`, on up to `threads` threads. Each thread takes the lowest remaining
/// number, so that reads in the order of numbers stay nearly sequential. Each thread has its own state, created by
/// `state`. Reports progress, and ends early if the check is cancelled.
pub fn each<S>(
    threads: NonZero<usize>,
    count: u64,
    phase: Phase,
    observer: &dyn Observer,
    state: impl Fn() -> S + Sync,
    one: impl Fn(&mut S, u64) + Sync,
) {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut state = state();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || observer.is_cancelled() {
                return;
            }
            one(&mut state, number);
            observer.progress(phase, done.fetch_add(1, Ordering::Relaxed) + 1, count);
        }
    };
    observer.progress(phase, 0, count);
    let more = threads.get().min(usize::try_from(count).unwrap_or(usize::MAX)).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..more {
            // If a thread cannot be started, fewer threads do the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{BitSet, Finding};

    struct Nobody;

    impl Observer for Nobody {
        fn found(&self, finding: Finding) {
            panic!("{finding:?}");
        }
    }

    #[test]
    fn every_number_is_worked_on_once() {
        for threads in [1, 2, 5] {
            let (set, threads) = (BitSet::new(1000), NonZero::new(threads).unwrap());
            each(
                threads,
                1000,
                Phase::Inodes,
                &Nobody,
                || (),
                |(), number| assert!(set.insert(number)),
            );
            assert_eq!(set.count(0..1000), 1000);
        }
    }
}
