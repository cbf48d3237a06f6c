//! Work that is done by several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Observer, Phase};

/// Calls `one` with every number below `count`, by up to `threads` threads, each taking the lowest number that is
/// left: what is read in the order of numbers stays nearly in order. Each thread has a state of its own, made by
/// `state`. Tells of the progress, and ends early if the check is cancelled.
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
            // A machine that gives no further thread does the work with fewer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BitSet, Finding};

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
